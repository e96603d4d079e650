"""The dialects in which requests come, and what turns a request into generations and events into its answer.

base.py            a request in, a parsed request out, an encoder: Request, ParsedRequest, ResponseEncoder
dialect.py         what a dialect is: Dialect, its paths: Route, OpenApi, Way
records.py         values as the bytes of an answer, which base.py has too
table.py           DIALECTS, the table of ours
adapters.py        which adapter a request names
client_fields.py   what clients call what an engine finds wrong
sessions.py        what a session is to those who handle a request
response_store.py  what a store of responses is to dialects
coding.py          what headers say of a body: its type, how it is encoded
control.py         requests that ask for no generation: `requestType`
routing.py         which path of a dialect's it is on
tracing.py         which trace a request belongs to
detection.py       which dialect a request is in; `receive` parses it, `refusal` refuses it
common/            what dialects share: bodies, fields, schemas, images, vectors
conversation/      what clients send as messages and tools, made a Conversation
openai/            chat and text completions, embeddings, the list of models
anthropic/         Anthropic's Messages and count_tokens
responses/         OpenAI's responses: input and output of items, named events
azure/             Azure AI Model Inference, on OpenAI's chat reader
minimal/           the minimal chat API, on OpenAI's chat reader
lmi/               `inputs` and `parameters` as in LMI containers; dynamic batches; embeddings
rerank/            ranks, scores and classes: Jina, Cohere, vLLM, Text Embeddings Inference
tgi/               Text Generation Inference, on LMI's parameters
tokens/            the tokens of prompts and their text, on OpenAI's chat reader
transcription/     audio written down: OpenAI's transcriptions and translations

To add one, write a folder or a file whose DIALECT is a `Dialect` and put it into DIALECTS. Users bring theirs with
`option.output_formatter=module:Class` or the entry point group `lmi.dialects`; those are asked before ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.former_names import former_names
from .adapters import NO_ADAPTERS, AdapterNames, NotReadyError, named_by_request, take_names
from .base import FORMER_NAMES, ParsedRequest, Request, Response
from .coding import decoded, is_encoded
from .common.body_size import LARGE
from .common.json_body import control_of, ends_of
from .control import CANCEL, KIND, NO_CONTROL, Control
from .detection import Hooks, detect, explicit_dialect, read_body, receive, refusal
from .dialect import Dialect, Route
from .routing import misrouted, route_of, routed
from .sessions import SESSION_HEADER, Session
from .table import DIALECTS, check_dialect, fallback

__all__ = [
    "CANCEL",
    "DIALECTS",
    "KIND",
    "LARGE",
    "NO_ADAPTERS",
    "NO_CONTROL",
    "SESSION_HEADER",
    "AdapterNames",
    "Control",
    "Dialect",
    "Hooks",
    "NotReadyError",
    "ParsedRequest",
    "Request",
    "Response",
    "Route",
    "Session",
    "check_dialect",
    "control_of",
    "decoded",
    "detect",
    "ends_of",
    "explicit_dialect",
    "fallback",
    "is_encoded",
    "misrouted",
    "named_by_request",
    "read_body",
    "receive",
    "refusal",
    "route_of",
    "routed",
    "take_names",
]

if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__ = former_names(__name__, {**FORMER_NAMES, "FORMATS": "DIALECTS"})

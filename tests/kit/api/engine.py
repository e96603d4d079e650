"""The engine's side: its client's channel, limits, pictures, what comes of several sequences."""

from __future__ import annotations

from typing import Any

from lmi.model.adapters.adapter import Adapter
from lmi.model.backend import limits
from lmi.model.heap import freeze
from lmi.model.log import show_content
from lmi.model.log_filters import Tidy
from lmi.model.media.parts import Budget, media_parts
from lmi.model.media.url_policy import MediaError, Target
from lmi.model.media.url_policy import allowed as allowed_url
from lmi.model.media.url_policy import public as public_address
from lmi.model.nodes.facts import facts_of
from lmi.model.nodes.follower import join as join_leader
from lmi.model.nodes.leader import Followers
from lmi.model.process.channel import Channel, LoopReading
from lmi.model.process.child import EngineChild
from lmi.model.process.client import EngineClient
from lmi.model.process.ending.start_errors import start_error
from lmi.model.process.engine_loop import EngineLoop
from lmi.model.process.messages import (
    Abort,
    AdapterOutcome,
    Add,
    FromEngine,
    Ready,
    Release,
    RemoveAdapter,
    Scrape,
    Scraped,
    SetAdapter,
    Start,
    Stats,
    Step,
    ToEngine,
)
from lmi.model.process.prepare import RequestPreparer
from lmi.model.process.token_budget import TokenBudget
from lmi.model.search.beam import Prefix
from lmi.model.search.best_of import Ranking, ranked
from lmi.model.text.answers.call_reader import CallForm, form_of
from lmi.model.text.answers.forced_calls import ForcedCalls
from lmi.model.text.answers.held_calls import HeldCalls
from lmi.model.text.answers.parsers import Splitter
from lmi.model.text.answers.part import Part
from lmi.model.text.answers.reasoning import Reasoning
from lmi.model.text.answers.splitting import split, split_whole
from lmi.model.text.answers.text_marks import PlainTokens
from lmi.model.text.answers.text_splitter import TextSplitter
from lmi.model.text.prompt_limits import PIECE as PROMPT_PIECE
from lmi.model.text.response_limit import TOKEN as RESPONSE_TOKEN
from lmi.model.text.response_limit import check_size
from lmi.model.text.tokenizer import Tokenizer
from lmi.model.vllm import core as vllm_core
from lmi.model.vllm.guides.backends import GuideBackends
from lmi.model.vllm.guides.structured import structured_outputs
from lmi.model.vllm.library.internals import v2_takes_processors
from lmi.model.vllm.library.output_reader import output_reader
from lmi.model.vllm.library.parts import part as vllm_part
from lmi.model.vllm.media import decoder as media_decoder
from lmi.model.vllm.media.decoding import Cut as DecodingCut
from lmi.model.vllm.media.decoding import Job as DecodingJob
from lmi.model.vllm.options import engine_arguments
from lmi.model.vllm.request.chat import ChatRenderer
from lmi.model.vllm.request.prompts.encoding import TextEncoder
from lmi.model.vllm.request.prompts.known_parts import KnownParts, parts_of
from lmi.model.vllm.request.prompts.plain_chat import PlainChat, plain_chat
from lmi.model.vllm.request.sampling import TRANSFERS as EXTRA_OF_VLLM
from lmi.model.vllm.sequences.group import SequenceGroup
from lmi.model.vllm.sequences.pace import Overdue, Pace
from lmi.model.vllm.sequences.sequence import OutputSequence
from lmi.model.vllm.setup.plugins import registered as registered_parsers

__all__ = [
    "EXTRA_OF_VLLM",
    "PROMPT_PIECE",
    "RESPONSE_TOKEN",
    "Abort",
    "Adapter",
    "AdapterOutcome",
    "Add",
    "Budget",
    "CallForm",
    "Channel",
    "ChatRenderer",
    "DecodingCut",
    "DecodingJob",
    "EngineChild",
    "EngineClient",
    "EngineLoop",
    "Followers",
    "ForcedCalls",
    "FromEngine",
    "GuideBackends",
    "HeldCalls",
    "KnownParts",
    "LoopReading",
    "MediaError",
    "OutputSequence",
    "Overdue",
    "Pace",
    "Part",
    "PlainChat",
    "PlainTokens",
    "Prefix",
    "Ranking",
    "Ready",
    "Reasoning",
    "Release",
    "RemoveAdapter",
    "RequestPreparer",
    "Scrape",
    "Scraped",
    "SequenceGroup",
    "SetAdapter",
    "Splitter",
    "Start",
    "Stats",
    "Step",
    "Target",
    "TextEncoder",
    "TextSplitter",
    "Tidy",
    "ToEngine",
    "TokenBudget",
    "Tokenizer",
    "allowed_url",
    "check_size",
    "engine_arguments",
    "facts_of",
    "form_of",
    "freeze",
    "join_leader",
    "limits",
    "media_decoder",
    "media_parts",
    "output_reader",
    "parts_of",
    "plain_chat",
    "public_address",
    "ranked",
    "registered_parsers",
    "renderer_of",
    "show_content",
    "split",
    "split_whole",
    "start_error",
    "structured_outputs",
    "v2_takes_processors",
    "vllm_core",
]


def renderer_of(config: Any) -> Any:
    """What renders prompts with this VllmConfig."""
    return vllm_part("vllm.renderers:renderer_from_config")(config)

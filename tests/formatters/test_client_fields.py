"""What clients call what an engine finds wrong: each path of a Generation that an engine names, in each dialect.

The errors themselves, as vLLM's front raises them, are in tests/model/vllm/request/test_named_errors.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from lmi.formatters.client_fields import ClientFields

from ..kit.api.dialects import DIALECTS, receive
from ..kit.api.options import typed_settings
from ..kit.api.types import Conversation, Failed, Generation, ParsedRequest, Request
from ..kit.paths import ROOT
from ..kit.rows import each_row

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
TEXTS = {"query": "a", "documents": ["b", "c"]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GRAMMAR = {"parameters": {"grammar": {"type": "json", "value": SCHEMA}}}
TYPED = {"type": "json_schema", "schema": SCHEMA}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}

BODIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "openai chat": ("/v1/chat/completions", {**CHAT, "response_format": FORM}, {}),
    "openai chat, newer": ("/v1/chat/completions", {**CHAT, "max_completion_tokens": 5}, {}),
    "openai text": ("/v1/completions", {"prompt": ["a", "b"], "guided_regex": "a"}, {}),
    "openai embeddings": ("/v1/embeddings", {"input": ["a", "b"]}, {"task": "embed"}),
    "responses": ("/v1/responses", {"input": "a", "text": {"format": {**TYPED, "name": "a"}}}, {}),
    "anthropic": ("/v1/messages", {**CHAT, "max_tokens": 5, "output_format": TYPED}, {}),
    "azure": ("/chat/completions?", {**CHAT, "response_format": FORM}, {}),
    "minimal": ("/chat/completions", {**CHAT, "model": "m", "response_format": FORM}, {}),
    "lmi": ("/invocations", {"inputs": "a", "parameters": {"top_n_tokens": 2}}, {}),
    "lmi beams": ("/invocations", {"inputs": "a", "parameters": {"num_beams": 2}}, {}),
    "lmi vectors": ("/invocations", {"inputs": ["a"]}, {"task": "embed"}),
    "dynamic": ("/invocations", {"inputs": ["a", "b"]}, {"rolling_batch": "disable"}),
    "tgi": ("/generate", {"inputs": "a", **GRAMMAR}, {}),
    "tgi, LMI's": ("/invocations", {"inputs": "a", **GRAMMAR}, {"tgi_compat": True}),
    "rerank": ("/rerank", TEXTS, {"task": "rank"}),
    "rerank by vectors": ("/rerank", TEXTS, {"task": "embed"}),
    "rerank TEI": ("/rerank", {"query": "a", "texts": ["b", "c"]}, {"task": "rank"}),
    "score": ("/score", {"text_1": ["a", "b"], "text_2": ["c", "d"], "instruction": "i"}, {"task": "rank"}),
    "classify": ("/classify", {"input": ["a", "b"]}, {"task": "classify"}),
    "predict": ("/predict", {"inputs": [["a"], ["b", "c"]]}, {"task": "classify"}),
    "tokenize": ("/tokenize", {"prompt": "a"}, {}),
    "tokenize chat": ("/tokenize", CHAT, {}),
    "detokenize": ("/detokenize", {"tokens": [1]}, {}),
    "transcription": ("/v1/audio/transcriptions", {"file": "UklGRg=="}, {}),
}  # fmt: skip
"""By a name: the path, a body, and fields of the settings. Errors are about the last generation."""

URL = "messages[2].content[1].image_url.url"
OPENAIS = {
    "prompt": "messages", "prompt.messages[2]": "messages[2]", "prompt.messages[2].content[1].url": URL,
    "prompt.messages[2].content[1].type": "messages[2].content[1].type", "prompt.tools": "tools",
    "prompt.tools[3].parameters": "tools[3].function.parameters", "prompt.tools[3].name": "tools[3].function.name",
    "prompt.tool_choice": "tool_choice", "sampling.max_tokens": "max_tokens", "sampling.logprobs": "top_logprobs",
    "sampling.prompt_logprobs": "prompt_logprobs", "sampling.bad_words": "bad_words",
    "sampling.stop_token_ids": "stop_token_ids", "sampling.truncate": "truncate_prompt_tokens",
    "sampling.include_stop": "include_stop_str_in_output", "sampling.min_tokens": "min_tokens",
    "sampling.structured_output": "response_format.json_schema.schema",
}  # fmt: skip
LMIS = {
    "prompt": "inputs", "sampling.max_tokens": "parameters.max_new_tokens",
    "sampling.stop": "parameters.stop_sequences",
    "sampling.bad_words": "parameters.bad_sequences", "sampling.min_tokens": "parameters.min_length",
    "sampling.typical_p": "parameters.typical_p", "sampling.logprobs": "parameters.logprobs",
    "sampling.prompt_logprobs": "parameters.prompt_logprobs", "sampling.beams": "parameters.num_beams",
    "sampling.truncate": "parameters.truncate", "sampling.stop_token_ids": "parameters.stop_token_ids",
    "sampling.logit_bias": "parameters.logit_bias",
}  # fmt: skip
NAMES: dict[str, dict[str, str]] = {
    "openai chat": OPENAIS,
    "openai chat, newer": {"sampling.max_tokens": "max_completion_tokens"},
    "azure": OPENAIS,
    "minimal": OPENAIS,
    "tokenize chat": {"prompt": "messages", "prompt.messages[2].content[1].url": URL},
    "tokenize": {"prompt": "prompt"},
    "detokenize": {"prompt": "tokens"},
    "transcription": {
        "prompt": "prompt", "transcription.audio": "file", "transcription.timestamps": "response_format",
        "transcription.language": "language", "sampling.max_tokens": "max_completion_tokens", "adapter": "adapters",
    },
    "openai text": {
        "prompt": "prompt[1]", "sampling.logprobs": "logprobs", "sampling.max_tokens": "max_tokens",
        "sampling.truncate": "truncate_prompt_tokens", "sampling.structured_output": "guided_regex",
    },
    "openai embeddings": {
        "prompt": "input[1]", "embedding.dimensions": "dimensions", "embedding.truncate": "truncate_prompt_tokens",
        "adapter": "adapters",
    },
    "responses": {
        "prompt": "input", "prompt.messages[2]": "input", "prompt.tools": "tools", "prompt.tool_choice": "tool_choice",
        "sampling.max_tokens": "max_output_tokens", "sampling.logprobs": "top_logprobs",
        "sampling.truncate": "truncation", "sampling.structured_output": "text.format.schema",
    },
    "anthropic": {
        "prompt": "messages", "prompt.messages[2]": "messages", "prompt.tools[3].parameters": "tools[3].input_schema",
        "prompt.tools[3].name": "tools[3].name", "prompt.tools": "tools", "prompt.tool_choice": "tool_choice",
        "sampling.stop": "stop_sequences", "sampling.max_tokens": "max_tokens",
        "sampling.structured_output": "output_format.schema",
    },
    "lmi": {**LMIS, "sampling.logprobs": "parameters.top_n_tokens"},
    "lmi beams": LMIS,
    "lmi vectors": {"prompt": "inputs[0]", "embedding.dimensions": "parameters.dimensions"},
    "dynamic": {**LMIS, "prompt": "inputs[1]"},
    "tgi": {
        **LMIS, "sampling.logprobs": "parameters.top_n_tokens", "sampling.n": "parameters.best_of",
        "sampling.structured_output": "parameters.grammar",
    },
    "tgi, LMI's": {**LMIS, "sampling.structured_output": "parameters.grammar"},
    "rerank": {
        "prompt": "query", "scoring.document": "documents[1]", "scoring.truncate": "truncate_prompt_tokens",
        "scoring.template_arguments": "chat_template_kwargs",
        "scoring.template_arguments.instruction": "chat_template_kwargs.instruction",
    },
    "rerank by vectors": {"prompt": "documents[1]"},
    "rerank TEI": {"prompt": "query", "scoring.document": "texts[1]"},
    "score": {
        "prompt": "text_1[1]", "scoring.document": "text_2[1]", "scoring.template_arguments.instruction": "instruction",
    },
    "classify": {"prompt": "input[1]"},
    "predict": {"prompt": "inputs[1]", "scoring.document": "inputs[1]"},
}  # fmt: skip


def asked(name: str) -> ParsedRequest:
    path, body, settings = BODIES[name]
    query = {"api-version": "2024-05-01-preview"} if path.endswith("?") else {}
    request = Request(msgspec.json.encode(body), path=path.rstrip("?"), query=query, request_id="7")
    made = receive(request, typed_settings(**settings))
    assert isinstance(made, ParsedRequest), made
    return made


@each_row("name", BODIES)
def test_the_clients_own_field_is_named(name: str) -> None:
    made = asked(name)
    last = len(made.generations) - 1
    for path, field in NAMES[name].items():
        told = made.fields.failed(Failed("ParameterError", f"{path}: expected less, got more", path), last)
        assert told == Failed("ParameterError", f"{field}: expected less, got more", field)


def test_every_dialect_is_in_the_table() -> None:
    assert {asked(name).dialect for name in BODIES} == {dialect.name for dialect in DIALECTS}


# --- What engines name is a Generation's ---

ROOTS = ("prompt", "sampling", "embedding", "scoring", "transcription", "adapter")
PATH = re.compile(rf"({'|'.join(ROOTS)})([.\[][\w.\[\]{{}}]+)?")


def written() -> Iterator[tuple[str, str]]:
    """The paths that are written in errors, or stand for themselves, with their files; `{}` is anything."""
    for file in sorted((ROOT / "model").rglob("*.py")):
        if "transformers" in file.parts or file.name == "former_fields.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            texts: list[str] = []
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple):
                given = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            elif isinstance(node, ast.Call):
                texts = [text for one in node.args if (text := shape(one)) is not None]
            for text in texts:
                if "." in (found := text.partition(": ")[0]) and PATH.fullmatch(found):
                    yield found, str(file.relative_to(ROOT))


def shape(node: ast.expr) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(one.value if isinstance(one, ast.Constant) else "{}" for one in node.values)  # type: ignore[misc]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def test_engines_name_what_a_generation_has() -> None:
    found = set(written())
    assert len({path for path, _ in found}) > 10
    for path, file in found:
        root, name, *_ = re.split(r"[.\[]", path)
        kinds: dict[str, Any] = {"prompt": Conversation}
        struct = kinds.get(root) or next(
            one
            for one in msgspec.inspect.type_info(Generation).fields  # type: ignore[attr-defined]
            if one.encode_name == root
        )
        names = struct.__struct_fields__ if struct is Conversation else fields_of(struct.type)
        assert name == "{}" or name in names, (path, file)


def fields_of(info: Any) -> set[str]:
    kinds = getattr(info, "types", [info])
    return {field.name for kind in kinds for field in getattr(kind, "fields", ())}


# --- How a name is found ---


@each_row(
    ("path", "name"),
    [
        ("sampling.top_p", "p.top_p"),
        ("prompt.tools[0].parameters", "tools[2].schema"),
        ("prompt.tools[1].parameters", "tools[1].schema"),
        ("prompt.tools[1].name", "tools[1].name"),
        ("prompt", "input[1]"),
        ("prompt.messages[4].content[0].url", "messages[4].content[0].image_url.url"),
        ("adapter", "adapters"),
        # No path: an engine of a user's may say anything.
        ("haiku", "haiku"),
        ("", ""),
    ],
)
def test_the_longest_beginning_that_is_known(path: str, name: str) -> None:
    table = {
        "sampling": "p",
        "prompt": "input",
        "prompt.tools[].parameters": "tools[].schema",
        "prompt.tools[]": "tools[]",
    }
    fields = ClientFields(table, {"prompt.tools[0].parameters": "tools[2].schema"}, [{}, {"prompt": "input[1]"}])
    assert fields.name(path, 1) == name


def test_a_message_without_the_path_in_front_stays() -> None:
    fields = ClientFields({"prompt": "inputs"})
    assert fields.failed(Failed("ContextError", "it is long", "prompt")) == Failed(
        "ContextError", "it is long", "inputs"
    )
    assert fields.failed(Failed("GenerationError", "prompt: it failed")) == Failed(
        "GenerationError", "prompt: it failed"
    )

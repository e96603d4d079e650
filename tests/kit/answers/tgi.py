"""The shapes of TGI's answers, as JSON schemas (text-generation-inference, docs/openapi.json, components/schemas).

There `nullable` is what TGI writes as null, and what is not required may be left out. Here every key that TGI always
writes is required (router/src/lib.rs), and no other key is allowed but LMI's `inputs`, where it is.
"""

from __future__ import annotations

from typing import Any

import jsonschema

__all__ = ["ERROR", "INFO", "PREFILL", "TOKEN", "check", "lines", "whole"]

Schema = dict[str, Any]

WHOLE_NUMBER: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
LOGPROB: Schema = {"type": ["number", "null"], "maximum": 0}
SEED: Schema = {"type": ["integer", "null"], "minimum": 0}
FINISH_REASON: Schema = {"enum": ["length", "eos_token", "stop_sequence"]}


def closed(required: Schema, optional: Schema | None = None) -> Schema:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


TOKEN = closed({"id": WHOLE_NUMBER, "text": TEXT, "logprob": LOGPROB, "special": {"type": "boolean"}})
PREFILL = closed({"id": WHOLE_NUMBER, "text": TEXT, "logprob": LOGPROB})
SEQUENCE: Schema = {
    "finish_reason": FINISH_REASON,
    "generated_tokens": WHOLE_NUMBER,
    "seed": SEED,
    "prefill": array(PREFILL),
    "tokens": array(TOKEN),
}
BEST_OF = closed({"generated_text": TEXT, **SEQUENCE}, {"top_tokens": array(array(TOKEN))})
ERROR = closed({"error": {"type": "string", "pattern": r"^[^\n]+$"}, "error_type": TEXT})
INFO = closed(
    {
        "model_id": TEXT,
        "model_sha": OPTIONAL_TEXT,
        "model_pipeline_tag": OPTIONAL_TEXT,
        "max_concurrent_requests": WHOLE_NUMBER,
        "max_best_of": WHOLE_NUMBER,
        "max_stop_sequences": WHOLE_NUMBER,
        "max_input_tokens": WHOLE_NUMBER,
        "max_total_tokens": WHOLE_NUMBER,
        "validation_workers": WHOLE_NUMBER,
        "max_client_batch_size": WHOLE_NUMBER,
        "router": TEXT,
        "version": TEXT,
        "sha": OPTIONAL_TEXT,
        "docker_label": OPTIONAL_TEXT,
    }
)


def whole(*, details: bool, inputs: bool, top: bool = False, best_of: bool = False) -> Schema:
    """A whole answer; with LMI's `inputs` in the details, `top_tokens`, `best_of_sequences`."""
    keys = SEQUENCE | ({"inputs": TEXT} if inputs else {})
    keys |= {"top_tokens": array(array(TOKEN))} if top else {}
    keys |= {"best_of_sequences": array(BEST_OF)} if best_of else {}
    return closed({"generated_text": TEXT, **({"details": closed(keys)} if details else {})})


def lines(*, details: bool, inputs: bool, top: bool = False) -> tuple[Schema, Schema]:
    """Any line of a stream but the last, and the last."""
    keys = {"finish_reason": FINISH_REASON, "generated_tokens": WHOLE_NUMBER, "seed": SEED}
    keys |= {"input_length": WHOLE_NUMBER} | ({"inputs": TEXT} if inputs else {})
    null: Schema = {"type": "null"}
    line: Schema = {"index": {"type": "integer", "minimum": 1}, "token": TOKEN}
    line |= {"top_tokens": array(TOKEN)} if top else {}
    return (
        closed({**line, "generated_text": null, "details": null}),
        closed({**line, "generated_text": TEXT, "details": closed(keys) if details else null}),
    )


def check(document: object, schema: Schema) -> None:
    """Raises jsonschema.ValidationError where the document has not the shape."""
    jsonschema.validate(document, schema)

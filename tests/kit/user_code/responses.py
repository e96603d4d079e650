# mypy: ignore-errors
# pyright: reportReturnType=false, reportOptionalCall=false
"""A user's model.py: the forms of djl_python's async handlers.

What a request wants is its `mode`, what an answer meets with is told by its text.
"""

import time
from pathlib import Path

from djl_python.input_parser import input_formatter
from djl_python.output_formatter import output_formatter

HERE = Path(__file__).parent

with (HERE / "executions").open("a") as executions:
    executions.write("model.py\n")


def wait(name):
    """Slow until the test says so."""
    (HERE / f"{name}.waiting").touch()
    while not (HERE / f"{name}.release").exists():
        time.sleep(0.01)


@input_formatter
def read_question(decoded_payload, tokenizer=None, **kwargs):
    mode = decoded_payload.pop("mode", None)
    if mode == "raise":
        raise ValueError("no such\nquestion")
    if mode == "wrong":
        return [decoded_payload]
    if mode == "slow":
        wait("input")
    if "question" in decoded_payload:
        tokens = len(tokenizer(decoded_payload["question"])["input_ids"])
        assert tokens > 0
        decoded_payload["inputs"] = decoded_payload.pop("question")
        decoded_payload.setdefault("parameters", {})["max_new_tokens"] = 100
    return decoded_payload


@output_formatter
def write_answer(response):
    if isinstance(response, str):
        if '"finish_reason":"length"' in response:
            raise RuntimeError("cut off")
        return response
    text = response.get("generated_text", "")
    if "eight legs" in text:
        raise KeyError("legs")
    if "Shakespeare" in text:
        return 5
    if "Paris" in text:
        wait("output")
    if "Deep Learning" in text:
        return {"answer": text, "by": write_answer.__name__}
    if "generated_text" not in response and hasattr(response, "choices"):
        response.choices[0].message.content = response.choices[0].message.content.upper()
    return response

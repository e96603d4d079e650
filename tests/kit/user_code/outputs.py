# mypy: ignore-errors
# pyright: reportReturnType=false, reportOptionalCall=false
"""A user's model.py: the forms of djl_python's rolling-batch handlers, with a field of the user's own, and a handle."""

import json
import time
from pathlib import Path

from djl_python import Input
from djl_python.encode_decode import decode
from djl_python.input_parser import input_formatter
from djl_python.output_formatter import output_formatter
from djl_python.request_io import RequestInput, TextGenerationOutput, TextInput

from lmi.handler import handle as serve

HERE = Path(__file__).parent

with (HERE / "executions").open("a") as executions:
    executions.write("model.py\n")


class Question(TextInput):
    asked_by = None
    mode = None


@input_formatter
def read_question(input_item: Input, **kwargs) -> RequestInput:
    body = decode(input_item, input_item.get_property("Content-Type"))
    question = Question()
    question.input_text = body["question"]
    question.asked_by = body.get("asked_by")
    question.mode = body.get("mode")
    question.parameters = {"max_new_tokens": 100, "stream": body.get("stream", False), "details": True}
    if question.mode == "raise input":
        raise ValueError("no such question")
    return question


@output_formatter
def write_answer(request_output: TextGenerationOutput) -> str:
    question = request_output.input
    sequence = request_output.sequences[request_output.best_sequence_index]
    token, index, first, last = sequence.get_next_token()
    if question.mode == "raise" and index == 3:
        raise KeyError("third")
    if question.mode == "wrong" and last:
        return {"not": "text"}
    if question.mode == "slow" and first:
        (HERE / "output.waiting").touch()
        while not (HERE / "output.release").exists():
            time.sleep(0.01)
    line = {"piece": token.text, "by": question.asked_by}
    if last:
        line["reason"] = sequence.finish_reason
        line["whole"] = "".join(one.text for one in sequence.tokens)
    return json.dumps(line) + "\n"


def handle(inputs):
    (HERE / "handled").touch()
    return serve(inputs)

# mypy: ignore-errors
"""A user's model.py: the oldest form of an output formatter, and the package's handle imported as it is."""

import json
from pathlib import Path

from djl_python.output_formatter import output_formatter

from lmi.handler import handle

__all__ = ["handle", "write_token"]

with (Path(__file__).parent / "executions").open("a") as executions:
    executions.write("model.py\n")


@output_formatter
def write_token(token, first_token, last_token, details, generated_text, request_id):
    if "Hamlet" in generated_text:
        raise RuntimeError("not him")
    line = {"id": token.id, "text": token.text, "log_prob": token.log_prob}
    if first_token:
        line["first"] = True
    if last_token:
        line["generated_text"] = generated_text
        line["details"] = details
        assert isinstance(request_id, int)
    return json.dumps(line) + "\n"

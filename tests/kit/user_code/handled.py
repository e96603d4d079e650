"""A model.py with a handle that answers some requests itself, as djl_python's custom handlers are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from djl_python import Input, Output  # type: ignore[import-not-found,unused-ignore]
from djl_python.async_utils import (  # type: ignore[import-not-found,unused-ignore]
    create_non_stream_output,
    create_stream_chunk_output,
)

HERE = Path(__file__).parent


async def counted(number: int) -> Any:
    for one in range(number):
        yield create_stream_chunk_output({"count": one}, one == number - 1)


async def handle(inputs: Input) -> Any:
    if inputs.is_empty():
        (HERE / "initialised").write_text(json.dumps(inputs.get_properties()))
        return None
    asked = json.loads(inputs.get_as_bytes() or b"{}")
    if "mine" in asked:
        told = {"mine": asked["mine"], "tenant": inputs.get_property("Tenant")}
        return create_non_stream_output(told, properties={"X-Amzn-SageMaker-Custom-Attributes": "by=handle"})
    if "count" in asked:
        return counted(asked["count"])
    if "fail" in asked:
        raise RuntimeError(asked["fail"])
    return Output().error("no such tenant", code=403) if inputs.get_property("tenant") == "unknown" else None

"""smolagents: an agent that calls tools, and one that writes code; both streamed but for one loop."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import world
from configured import model
from mcp import StdioServerParameters
from PIL import Image
from smolagents import ActionStep, CodeAgent, FinalAnswerStep, LogLevel, ToolCallingAgent, ToolCollection, tool

PICTURE = Image.open(io.BytesIO(world.PICTURE))


@tool
def read_file(path: str) -> str:
    """Reads a file.

    Args:
        path: Where it is.
    """
    return world.read_file(path)


@tool
def flood() -> str:
    """More than a model can read."""
    return world.flood()


@tool
def look() -> str:
    """What the camera sees."""
    return "Here."


def show(step: ActionStep, **_: Any) -> None:
    """Gives the model the camera's picture, as smolagents' documentation has it."""
    if step.observations and "Here." in step.observations:
        step.observations_images = [PICTURE]


def agent(*tools: Any, streams: bool = True) -> Any:
    kind = {"tools": ToolCallingAgent, "code": CodeAgent}[os.environ["KIND"]]
    return kind(
        tools=[read_file, flood, look, *tools],
        model=model,
        stream_outputs=streams,
        step_callbacks=[show],
        verbosity_level=LogLevel.OFF,
        # Else the code's output is cut.
        **({"max_print_outputs_length": 1_000_000} if kind is CodeAgent else {}),
    )


def told(events: Sequence[Any]) -> dict[str, Any]:
    steps = [event for event in events if isinstance(event, ActionStep) and not event.is_final_answer]
    results: list[str] = []
    for step in steps:
        if step.error is not None:
            results.append(step.error.message)
        else:
            # Several results come in the order of random ids.
            printed = (step.observations or "").partition("Last output from code snippet")[0]
            results += sorted(printed.removeprefix("Execution logs:\n").split("\n"))
    (final,) = [event for event in events if isinstance(event, FinalAnswerStep)]
    return {"answer": final.output, "thoughts": [], "results": [result for result in results if result]}


async def streamed(question: str) -> dict[str, Any]:
    return told([*agent().run(question, stream=True)])


async def whole(question: str) -> dict[str, Any]:
    return told([*agent(streams=False).run(question, stream=True)])


async def picture(question: str) -> dict[str, Any]:
    return told([*agent().run(question, stream=True, images=[PICTURE])])


async def mcp(question: str) -> dict[str, Any]:
    command, *arguments = world.WEATHER
    server = StdioServerParameters(command=command, args=arguments)
    with ToolCollection.from_mcp(server, trust_remote_code=True, structured_output=True) as found:
        return told([*agent(*found.tools).run(question, stream=True)])


async def again(first: str, second: str) -> dict[str, Any]:
    made = agent()
    made.run(first)
    return told([*made.run(second, stream=True, reset=False)])


world.play(
    {"tool": streamed, "several": streamed, "error": streamed, "look": streamed, "full": streamed}
    | {"whole": whole, "picture": picture, "mcp": mcp, "again": again}
)

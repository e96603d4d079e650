"""What clients call what an engine finds wrong: it names a path in a Generation, and the dialect knows the field.

    sampling.max_tokens           --ClientFields.name-->   parameters.max_new_tokens     by the dialect's table
    prompt.tools[0].parameters                             tools[2].input_schema         where this request has it
    prompt                                                 inputs[7]                     of its seventh generation

A table has fields by their paths. `[]` stands for an index, and in a field for the path's indices, one after the other.
What it does not have is called as the longest beginning of its path is, and on from there by its own name: with
{"sampling": "parameters"}, `sampling.top_p` is `parameters.top_p`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..model.events import Failed

__all__ = ["ClientFields", "Paths", "prompt_names"]

Paths = Mapping[str, str]
"""Fields by paths."""

USUAL: Paths = {
    "adapter": "adapters",
    "prompt.messages": "messages",
    "prompt.messages[].content[].url": "messages[].content[].image_url.url",
    "prompt.tools": "tools",
    "prompt.tools[]": "tools[].function",
    "prompt.tool_choice": "tool_choice",
    "prompt.processor_arguments": "mm_processor_kwargs",
    "prompt.template_arguments": "chat_template_kwargs",
    "prompt.template_arguments.reasoning_effort": "reasoning_effort",
    "scoring.template_arguments": "chat_template_kwargs",
    "sampling": "",
    "embedding": "",
    "scoring": "",
}
"""What is not said otherwise: OpenAI's names of messages and tools, and else the engine's own."""

STEP = re.compile(r"\[\d+\]|\.?[^.\[]+")
INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ClientFields:
    """The fields of one request."""

    table: Paths = field(default_factory=dict[str, str])
    """Its dialect's."""
    own: Paths = field(default_factory=dict[str, str])
    """Where it has something else than its dialect usually has."""
    each: Sequence[Paths] = ()
    """The same of each of its generations, where they differ."""

    def name(self, path: str, prompt: int = 0) -> str:
        """What the client calls a path in generation number `prompt`; what is no path is left as it is."""
        tables = (*self.each[prompt : prompt + 1], self.own, self.table, USUAL)
        steps = STEP.findall(path)
        for count in range(len(steps), 0, -1):
            known = "".join(steps[:count])
            general = INDEX.sub("[]", known)
            for table in tables:
                found = table.get(known)
                if found is None and (found := table.get(general)) is not None:
                    for index in INDEX.findall(known):
                        found = found.replace("[]", f"[{index}]", 1)
                if found is not None:
                    return (found + "".join(steps[count:])).lstrip(".")
        return path

    def failed(self, event: Failed, prompt: int = 0) -> Failed:
        """What an engine says of generation number `prompt`, with the client's name of what it is about."""
        path = event.param
        if path is None:
            return event
        name, message = self.name(path, prompt), event.message
        faults = tuple(replace(fault, name=name) for fault in event.faults)
        if faults:
            message = faults[0].sentence("")
        elif message.startswith(f"{path}: "):
            message = name + message[len(path) :]
        return Failed(event.kind, message, name, faults)


def prompt_names(field: str, count: int, *, listed: bool | None = None) -> tuple[Paths, ...]:
    """ClientFields.each of so many prompts in a field: a list, even where it is of one, if it is `listed`."""
    listed = count > 1 if listed is None else listed
    return tuple({"prompt": f"{field}[{number}]" if listed else field} for number in range(count))

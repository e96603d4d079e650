"""What a user's dialect says of its fields in the former way (model/former_fields.py), in today's.

Generation(prompt_field="about", ...)  -->  ParsedRequest(fields=ClientFields(each=[{"prompt": "about"}]))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import Struct

from ...formatters.client_fields import ClientFields
from ...formatters.common.fields import log_once
from ...model.generation import Conversation, Generation

__all__ = ["with_former"]


def with_former(fields: ClientFields, generations: Sequence[Generation], dialect: str) -> ClientFields:
    """`fields`, and after them what these generations of a user's dialect say."""
    former = [dict(_former(generation)) for generation in generations]
    if not any(former):
        return fields
    log_once(
        "the dialect %s gives its fields' names in a Generation: ParsedRequest has them now, as "
        'fields=ClientFields({"prompt": "..."}); they still work',
        dialect,
    )
    given = [*fields.each, *({} for _ in generations[len(fields.each) :])]
    return replace(fields, each=[{**old, **new} for old, new in zip(former, given, strict=True)])


def _former(generation: Generation) -> Iterator[tuple[str, str]]:
    prompt, sampling = generation.prompt, generation.sampling
    yield from _given(generation, "prompt_field", "prompt")
    yield from ((f"sampling.{name}", field) for name, field in generation.fields.items())
    yield from _given(sampling.structured_output, "field", "sampling.structured_output")
    yield from _given(sampling.beams, "field", "sampling.beams")
    yield from _given(generation.scoring, "document_field", "scoring.document")
    if isinstance(prompt, Conversation):
        yield from _images(prompt)
        yield from _tools(prompt)


def _given(struct: Struct | None, name: str, path: str) -> Iterator[tuple[str, str]]:
    if struct is not None and (field := getattr(struct, name)) != path:
        yield path, field


def _images(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Of each part of a dict's content with a "field": what the client calls it, and its URL."""
    for number, message in enumerate(conversation.messages):
        content = message.get("content") if isinstance(message, dict) else None
        for index, part in enumerate(content if isinstance(content, list) else ()):
            if (name := part.get("field")) is not None:
                path = f"prompt.messages[{number}].content[{index}]"
                yield from ((path, name[: name.rindex("]") + 1]), (f"{path}.url", name))


def _tools(conversation: Conversation) -> Iterator[tuple[str, str]]:
    yield from _given(conversation, "tools_field", "prompt.tools")
    tools = "tools" if conversation.tools_field == "prompt.tools" else conversation.tools_field
    schema = conversation.schema_field
    for index, field in enumerate(conversation.schema_fields):
        yield f"prompt.tools[{index}].parameters", field
    if not conversation.schema_fields and (tools, schema) != ("tools", "function.parameters"):
        yield "prompt.tools[].parameters", f"{tools}[].{schema}"

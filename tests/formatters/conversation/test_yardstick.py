"""The yardstick of what dialects share: one of a kind that is not ours, in a file of at most 300 lines.

    POST /api/chat    {"messages": [{"role", "content", "images", "thinking", "tool_calls"}], "think", "tools", ...}
    a line each       {"message": {"role", "content", "thinking", "tool_calls"}, "done"}

It is Ollama's, as its documentation describes it: calls have no ids and come whole, images are base64, a stream is the
default. What it needs beyond this file, every dialect has: forms and tables, the builder, the block assembler.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from lmi.formatters import Dialect, ParsedRequest, Request, Response, Route, receive
from lmi.formatters.base import JSON, Payload, encode, line_record
from lmi.formatters.client_fields import ClientFields, Paths
from lmi.formatters.common.blocks import BlockEncoder, BlockKind, Growing
from lmi.formatters.common.fields import Parameter, Table, paths_of
from lmi.formatters.common.forms import Form, Listed, Tagged, TextOr
from lmi.formatters.common.guides import JSON_GUIDE, AskedGuide
from lmi.formatters.common.kinds import Boolean, Filled, Integer, Number, Text, Texts
from lmi.formatters.conversation.builder import Arguments, Builder
from lmi.formatters.conversation.content import MAX_MESSAGES, Content
from lmi.formatters.conversation.media import MediaUrl
from lmi.formatters.conversation.template_arguments import think
from lmi.formatters.conversation.tools import FUNCTION, Choice, Offer, use
from lmi.formatters.dialect import OpenApi, own_response
from lmi.model.errors import LmiError
from lmi.model.events import CallDelta, Delta, Finish, Started
from lmi.model.generation import Conversation, Generation, Sampling
from lmi.model.options import Settings

from ...kit.api.options import typed_settings
from ...kit.api.types import Event, said
from ...kit.rows import each_row

OPTIONS = (
    Parameter("temperature", Number(0, 2), None, "temperature"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    Parameter("top_k", Integer(0), None, "top_k"),
    Parameter("seed", Integer(0), None, "seed"),
    Parameter("num_predict", Integer(1), None, "max_tokens"),
    Parameter("stop", Texts(), (), "stop"),
)
CALL = Form({"function": Form({"name": Filled(), "arguments": Arguments()}, ("name",))}, ("function",))
MESSAGE = Tagged(
    "role",
    {
        "system": Form({"content": Text()}, ("content",)),
        "user": Form({"content": Text(), "images": Listed(MediaUrl(base64=True), noun="images")}, ("content",)),
        "assistant": Form({"content": Text(), "thinking": Text(), "tool_calls": Listed(CALL, noun="calls")}),
        "tool": Form({"content": Text(), "tool_name": Text()}, ("content",)),
    },
)
MESSAGES = Listed(MESSAGE, 1, MAX_MESSAGES, "messages")
TOOL = Tagged("type", {"function": Form({"function": FUNCTION}, ("function",))})
FIELDS = (
    Parameter("messages", MESSAGES, None, "messages"),
    Parameter("tools", Listed(TOOL, most=1024, noun="tools"), (), "tools"),
    Parameter("format", TextOr(JSON_GUIDE, "a schema", ("json",)), None, "format"),
    Parameter("model", Text(), None),
    Parameter("stream", Boolean(), True, "stream"),
    Parameter("think", Boolean(("low", "medium", "high")), None, "think"),
    Parameter("options", Table(OPTIONS), None, "options"),
    Parameter("keep_alive", Text(), None),
)
BODY = Table(FIELDS, ("messages",))
PATHS: Paths = {**paths_of(OPTIONS, "sampling", Sampling, "options."), "prompt": "messages"}


def read(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The call; raises RequestError."""
    values = BODY.read("", payload, settings)[0]
    sampling, _ = values["options"] or ({}, {})
    builder = Builder()
    _say(builder, values["messages"])
    offers = [_offer(tool["function"], f"tools[{index}].function") for index, (_, tool) in enumerate(values["tools"])]
    tools = use(offers, Choice(), "tools", "tools[].function", "tools[].function.parameters")
    wanted, arguments = values["think"], dict[str, Any]()
    effort = wanted if isinstance(wanted, str) else None
    think(arguments, settings, effort=effort, thinks=wanted if isinstance(wanted, bool) else None)
    guide = values["format"].output if isinstance(values["format"], AskedGuide) else None
    prompt = Conversation(
        messages=builder.messages(),
        tools=tools.tools,
        tool_choice=tools.choice,
        template_arguments=arguments,
        include_reasoning=wanted is not False,
    )
    generation = Generation(
        request_id=request.request_id,
        prompt=prompt,
        sampling=Sampling(**sampling, structured_output=guide),
        stream=values["stream"],
    )
    kind, content_type = (Stream, LINES) if generation.stream else (Whole, JSON)
    reply = kind(content_type=content_type, model=settings.model_name)
    return ParsedRequest((generation,), reply, fields=ClientFields(PATHS, builder.fields | tools.own))


def _say(builder: Builder, messages: list[tuple[str, dict[str, Any]]]) -> None:
    """Calls have no ids here: a result belongs to the first call that has none yet."""
    made = answered = 0
    for role, given in messages:
        if role == "assistant":
            turn = builder.answer()
            turn.say(given.get("content", ""))
            turn.reasoning += [given["thinking"]] if "thinking" in given else []
            for call in given.get("tool_calls", ()):
                turn.call(f"call_{made}", call["function"]["name"], call["function"].get("arguments", "{}"))
                made += 1
        elif role == "tool":
            builder.result(f"call_{answered}", given["content"])
            answered += 1
        else:
            content = Content()
            content.text(given["content"])
            for image in given.get("images", ()):
                content.media("image", *image)
            builder.say(role, content)


def _offer(function: dict[str, Any], place: str) -> Offer:
    return Offer(function.pop("name"), function, place, f"{place}.parameters")


LINES = "application/x-ndjson"


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new, or all of it."""

    content: str
    role: str = msgspec.field(default_factory=lambda: "assistant")
    thinking: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a stream, or the answer."""

    model: str
    message: Said
    done: bool = msgspec.field(default_factory=lambda: False)
    done_reason: str = ""
    prompt_eval_count: int = 0
    eval_count: int = 0


@dataclass(slots=True, kw_only=True)
class Whole(BlockEncoder[Growing]):
    """One body."""

    model: str

    def _made(self, kind: BlockKind, call: CallDelta | None) -> Growing:
        return Growing(kind, len(self.blocks), name=(call.name or "") if call else "")

    def _close(self) -> list[bytes]:
        texts = {kind: "".join(one.text for one in self.blocks if one.kind == kind) for kind in ("text", "reasoning")}
        calls = tuple(_call(one) for one in self.blocks if one.kind == "call")
        return [encode(self._last(Said(texts["text"], thinking=texts["reasoning"], tool_calls=calls)))]

    def _last(self, message: Said) -> Line:
        reason = "length" if self.finishes[0].reason == "length" else "stop"
        return Line(self.model, message, True, reason, self.prompt_tokens, self.generated_tokens)

    def _refuse(self, error: LmiError) -> Response:
        return refuse(error, None, Request(b""), typed_settings())


@dataclass(slots=True, kw_only=True)
class Stream(Whole):
    """A line for each piece; a call comes whole."""

    def _begin(self, records: list[bytes]) -> None:
        self.begun = True

    def _grew(self, block: Growing, piece: str, records: list[bytes]) -> None:
        if block.kind == "call":
            block.pieces.append(piece)
        else:
            message = Said(piece) if block.kind == "text" else Said("", thinking=piece)
            records.append(line_record(Line(self.model, message)))

    def _closed(self, block: Growing, records: list[bytes]) -> None:
        if block.kind == "call":
            records.append(line_record(Line(self.model, Said("", tool_calls=(_call(block),)))))

    def _close(self) -> list[bytes]:
        records: list[bytes] = []
        self._end_all(records)
        return [*records, line_record(self._last(Said("")))]

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [line_record({"error": error.message})]


def _call(block: Growing) -> dict[str, Any]:
    return {"function": {"name": block.name, "arguments": block.arguments}}


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    return Response(encode({"error": error.message}), error.status, failure=error)


CHAT = OpenApi("A chat", BODY.described, {JSON: (Line,), LINES: (Line,)})
YARDSTICK = Dialect(
    name="yardstick",
    body_field="",
    routes=(Route("/api/chat", described=CHAT),),
    openapi=(CHAT,),
    names_model=True,
    matches=lambda payload, request, settings: False,
    marks=frozenset(),
    parse=read,
    refuse=refuse,
    read_file=None,
    for_formatters=own_response,
)


SETTINGS = typed_settings(model_name="served", reasoning_parser="qwen3", tool_call_parser="hermes")
ASKED = {"role": "user", "content": "Look", "images": ["iVBORw0KGgo="]}
CALLED = {"role": "assistant", "thinking": "Hm", "tool_calls": [{"function": {"name": "look", "arguments": {"at": 1}}}]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
ANSWER = (
    Started(7),
    Delta(0, "", reasoning="Hm"),
    Delta(0, "\n"),
    Delta(0, "So"),
    Delta(0, "", calls=(CallDelta(0, "call_1", "look", '{"at"'), CallDelta(0, arguments=": 1}"))),
    Delta(0, "", finish=Finish("eos", generated_tokens=5)),
)
CALL_OF_IT = {"function": {"name": "look", "arguments": {"at": 1}}}


def ask(**fields: Any) -> ParsedRequest:
    body = {"model": "m", "messages": [ASKED], **fields}
    found = receive(Request(json.dumps(body).encode(), path="/api/chat"), SETTINGS, [YARDSTICK])
    assert isinstance(found, ParsedRequest), found
    return found


def lines(reply: Any, *events: Event) -> list[Any]:
    return [json.loads(record) for event in events for record in reply.feed(event)]


def test_a_history_is_what_a_template_takes() -> None:
    made = ask(messages=[ASKED, CALLED, {"role": "tool", "content": "seen"}], tools=TOOLS, think="low")
    (generation,) = made.generations
    assert isinstance(generation.prompt, Conversation)
    user, called, result = said(generation.prompt)
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    assert (called["reasoning"], called["tool_calls"][0]["function"]["arguments"]) == ("Hm", '{"at":1}')
    assert result == {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "seen"}
    assert generation.prompt.tools == tuple(TOOLS)
    assert generation.prompt.template_arguments["reasoning_effort"] == "low"
    assert made.fields.name("prompt.messages[0].content[1].url") == "messages[0].images[0]"


def test_a_stream() -> None:
    *told, last = lines(ask().reply, *ANSWER)
    assert [one["message"] for one in told] == [
        {"role": "assistant", "content": "", "thinking": "Hm"},
        {"role": "assistant", "content": "\nSo"},
        {"role": "assistant", "content": "", "tool_calls": [CALL_OF_IT]},
    ]
    assert (last["done"], last["done_reason"], last["prompt_eval_count"], last["eval_count"]) == (True, "stop", 7, 5)


def test_a_whole_answer() -> None:
    (body,) = lines(ask(stream=False).reply, *ANSWER)
    assert body["message"] == {
        "role": "assistant", "content": "\nSo", "thinking": "Hm", "tool_calls": [CALL_OF_IT],
    }  # fmt: skip


@each_row(
    ("fields", "place"),
    [
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ],
)
def test_a_fault_is_named_by_its_place(fields: dict[str, Any], place: str) -> None:
    body = {"messages": [ASKED], **fields}
    answer = receive(Request(json.dumps(body).encode(), path="/api/chat"), SETTINGS, [YARDSTICK])
    assert isinstance(answer, Response)
    assert (answer.status, json.loads(answer.body)["error"].partition(":")[0]) == (400, place)

"""djl_python's formatters, fed by hand: which form a function has, what it is given, what becomes of what it returns.

The objects are those of the djl_python in DJL's Python engine, a jar that Python imports from.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi.handler.user_code.formatters.djl_formatters import InputFormatter, OutputFormatter

from ....kit.api.dialects import named, receive
from ....kit.api.errors import OptionError, ParameterError, UnsupportedError, UserCodeError
from ....kit.api.handler import FormatterResponse, Function, Workers, response_of, text_of
from ....kit.api.options import typed_settings
from ....kit.api.types import (
    Delta,
    Event,
    Failed,
    Finish,
    Hooks,
    ParsedRequest,
    Payload,
    Request,
    Response,
    ResponseEncoder,
    Started,
    Token,
)
from ....kit.djl import hosting
from ....kit.rows import each_row

lmi, openai, tgi = map(named, ("lmi", "openai", "tgi"))

pytestmark = pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available()))

SETTINGS = typed_settings()
WORKERS = Workers(1)
TOKENS = tuple(Token(number, text, -0.5 * number) for number, text in enumerate(["Hel", "lo", " ", "world", ""]))
WORDS = "Hello world"


@pytest.fixture(scope="module", autouse=True)
def djl_python() -> Iterator[None]:
    """djl_python on the path, for this module."""
    with hosting.djl_python():
        yield


def parse(dialect: Any, payload: Payload) -> ParsedRequest:
    parsed: ParsedRequest = dialect.parse(payload, Request(b"", request_id="r"), SETTINGS)
    return parsed


def call_of(function: Callable[..., Any], payload: Payload, dialect: Any = lmi) -> ParsedRequest:
    formatter = OutputFormatter(function, "model.py: output formatter mine", SETTINGS, WORKERS)
    request = Request(b"", request_id="r")
    return formatter.around(parse(dialect, payload), dialect, payload, request, SETTINGS, None)


def feed(reply: ResponseEncoder, *events: Event) -> list[bytes]:
    records: list[bytes] = []
    for event in events:
        if not reply.finished:
            records += reply.feed(event)
    return records


def deltas(cuts: set[int]) -> list[Event]:
    """TOKENS as events that end at `cuts`, and at the last token."""
    events: list[Event] = [Started(2)]
    pending: list[Token] = []
    for number, token in enumerate(TOKENS):
        pending.append(token)
        last = number == len(TOKENS) - 1
        if last or number in cuts:
            finish = Finish("eos", generated_tokens=len(TOKENS)) if last else None
            events.append(Delta(0, "".join(one.text for one in pending), tuple(pending), finish))
            pending = []
    return events


CUTS = st.sets(st.integers(0, len(TOKENS) - 2))


def by_token(token: Any, first: bool, last: bool, details: dict[str, Any], text: str, request_id: int) -> str:
    return json.dumps([token.as_dict(), first, last, details, text]) + "\n"


def by_output(request_output: Any) -> str:
    sequence = request_output.sequences[request_output.best_sequence_index]
    token, index, _, last = sequence.get_next_token()
    question = request_output.input
    line = [token.text, index, last, request_output.finished, question.input_text, question.parameters.get("stream")]
    return json.dumps([*line, sequence.finish_reason, sequence.cumulative_log_prob]) + "\n"


by_output.__annotations__["request_output"] = "RequestOutput"


@settings(deadline=None)
@given(cuts=CUTS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_oldest_form_is_called_for_every_token(cuts: set[int], stream: bool) -> None:
    payload = {"inputs": "Hi", "stream": stream, "parameters": {"details": True, "return_full_text": True}}
    call = call_of(by_token, payload)
    assert call.generations[0].tokens
    assert call.generations[0].sampling.logprobs == 0
    records = feed(call.reply, *deltas(cuts))
    assert len(records) == (len(TOKENS) if stream else 1)
    lines = [json.loads(line) for line in b"".join(records).splitlines()]
    assert [line[0] for line in lines] == [
        {"id": token.id, "text": token.text, "log_prob": token.logprob} for token in TOKENS
    ]
    assert [line[1:3] for line in lines] == [[True, False], *([[False, False]] * 3), [False, True]]
    assert [line[4] for line in lines] == ["Hi"] * 4 + ["Hi" + WORDS]
    assert [line[3]["generated_tokens"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line[3]["finish_reason"] for line in lines] == [None] * 4 + ["eos_token"]
    assert lines[0][3]["prompt_tokens"] == 2
    assert call.reply.content_type == ("application/jsonlines" if stream else "application/json")


@settings(deadline=None)
@given(cuts=CUTS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_form_of_outputs_is_called_for_every_token(cuts: set[int], stream: bool) -> None:
    call = call_of(by_output, {"inputs": "Hi", "stream": stream})
    lines = [json.loads(line) for line in b"".join(feed(call.reply, *deltas(cuts))).splitlines()]
    assert [line[0] for line in lines] == [token.text for token in TOKENS]
    assert [line[1] for line in lines] == [0, 1, 2, 3, 4]
    assert [line[2:4] for line in lines] == [[False, False]] * 4 + [[True, True]]
    assert all(line[4:6] == ["Hi", stream] for line in lines)
    assert lines[-1][6:] == ["eos_token", -5.0]


def test_a_conversations_prompt_comes_from_the_engine() -> None:
    call = call_of(by_output, {"messages": [{"role": "user", "content": "Hi"}]}, openai)
    assert call.generations[0].echo
    records = feed(call.reply, Started(3, text="<user>Hi</user>"), *deltas(set())[1:])
    assert json.loads(records[0].splitlines()[0])[4] == "<user>Hi</user>"


def test_what_has_several_sequences_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="n: expected one sequence"):
        call_of(by_output, {"messages": [{"role": "user", "content": "Hi"}], "n": 2}, openai)
    with pytest.raises(UnsupportedError, match="prompt: expected one sequence"):
        call_of(by_token, {"prompt": ["a", "b"]}, openai)


def test_a_failing_engine_is_told_of_in_the_dialects_own_form() -> None:
    for stream in (False, True):
        call = call_of(by_token, {"inputs": "Hi", "stream": stream})
        (record,) = feed(call.reply, Failed("GenerationError", "it broke"))
        assert json.loads(record)["error"] == "it broke"
        assert call.reply.status == 424
        assert call.reply.failure is not None
    call = call_of(by_token, {"inputs": "Hi", "stream": True})
    records = feed(call.reply, Started(1), Delta(0, "Hel", TOKENS[:1]), Failed("GenerationError", "it broke"))
    assert call.reply.status == 200
    assert json.loads(records[-1])["error"] == "it broke"
    assert json.loads(records[-1])["token"]["id"] == -1


def test_a_sequence_that_ends_without_a_token_is_closed() -> None:
    call = call_of(by_output, {"inputs": "Hi", "stream": True})
    records = feed(call.reply, Started(1), Delta(0, "Hel", TOKENS[:1]), Delta(0, "", finish=Finish("content_filter")))
    assert [json.loads(record)[3] for record in records] == [False, True]
    assert json.loads(records[-1])[6] == "content_filter"


# The form of responses.


@settings(deadline=None)
@given(cuts=CUTS)
def test_a_response_is_the_documented_answer_and_vllms_completion(cuts: set[int]) -> None:
    seen: list[Any] = []

    def mine(response: Any) -> Any:
        seen.append(response)
        response["generated_text"] += "!"
        response.more = 1
        return response

    call = call_of(mine, {"inputs": "Hi", "parameters": {"details": True}})
    (record,) = feed(call.reply, *deltas(cuts))
    body = json.loads(record)
    assert body["generated_text"] == WORDS + "!"
    assert body["more"] == 1
    assert body["details"]["finish_reason"] == "eos_token"
    (response,) = seen
    assert response.details.tokens[1].text == "lo"
    assert response.choices[0].text == WORDS
    assert response.usage.completion_tokens == len(TOKENS)
    assert not hasattr(response, "nothing")


def test_a_response_whose_completion_was_changed_is_one() -> None:
    def mine(output: Any) -> Any:
        if hasattr(output, "choices"):
            output.choices[0].text = output.choices[0].text.upper()
        return output

    call = call_of(mine, {"inputs": "Hi"})
    body = json.loads(feed(call.reply, *deltas(set()))[0])
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == WORDS.upper()
    assert "generated_text" not in body


def test_reading_the_completion_changes_nothing() -> None:
    def reads(output: Any) -> Any:
        assert output.choices[0].text == WORDS
        assert output.usage.completion_tokens == len(TOKENS)
        assert "generated_text" in output.model_dump()
        return output

    (untouched,) = feed(call_of(lambda output: output, {"inputs": "Hi"}).reply, *deltas(set()))
    (body,) = feed(call_of(reads, {"inputs": "Hi"}).reply, *deltas(set()))
    assert body == untouched
    assert json.loads(body) == {"generated_text": WORDS}


@each_row("as_completion", [False, True])
def test_tgis_list_of_one_is_given_as_its_answer(as_completion: bool) -> None:
    def mine(response: Any) -> Any:
        assert response.choices[0].text == WORDS
        if as_completion:
            response.choices[0].text += "!"
        else:
            response["generated_text"] += "!"
        return response

    compatible = msgspec.structs.replace(SETTINGS, tgi_compat=True)
    payload = {"inputs": "Hi"}
    request = Request(b"", request_id="r")
    formatter = OutputFormatter(mine, "it", compatible, WORKERS)
    call = formatter.around(tgi.parse(payload, request, compatible), tgi, payload, request, compatible, None)
    body = json.loads(feed(call.reply, *deltas(set()))[0])
    if as_completion:
        assert body["choices"][0]["text"] == WORDS + "!"
    else:
        assert [one["generated_text"] for one in body] == [WORDS + "!"]


def test_chat_is_given_as_it_is() -> None:
    def mine(output: Any) -> Any:
        output.choices[0].message.content = "mine"
        return output

    call = call_of(mine, {"messages": [{"role": "user", "content": "Hi"}]}, openai)
    body = json.loads(feed(call.reply, *deltas(set()))[0])
    assert body["choices"][0]["message"]["content"] == "mine"


@each_row(
    ("returned", "sent", "content_type"),
    [
        ("data: {}\n\n", b"data: {}\n\n", "text/event-stream"),
        ({"a": "é"}, '{"a":"é"}\n'.encode(), "application/jsonlines"),
        ("plain", b"plain\n", "application/jsonlines"),
        ("", b"", "text/event-stream"),
    ],
)
def test_a_streams_records_are_what_is_returned(returned: Any, sent: bytes, content_type: str) -> None:
    seen: list[str] = []

    def mine(response: str) -> Any:
        seen.append(response)
        return returned

    call = call_of(mine, {"inputs": "Hi", "stream": True})
    records = feed(call.reply, Started(2), Delta(0, "Hel", TOKENS[:1]), Delta(0, "lo", TOKENS[1:2], Finish("eos")))
    assert all(text.startswith("data: ") and text.endswith("\n\n") for text in seen)
    assert seen[-1] == "data: [DONE]\n\n"
    assert [json.loads(text[6:])["choices"][0]["text"] for text in seen[:-1]] == ["Hel", "lo"]
    assert records == [sent] * (len(seen) if sent else 0)
    assert call.reply.content_type == content_type
    assert call.reply.finished


class Pydantic:
    def model_dump_json(self) -> str:
        return '{"a":1}'

    def model_dump(self) -> dict[str, Any]:
        return {"a": 1}


FORMATTED: list[tuple[Any, str]] = [
    ("text", "text"),
    ({"a": {"b": Pydantic()}}, '{"a":{"b":{"a":1}}}'),
    (Pydantic(), '{"a":1}'),
    (SimpleNamespace(model_dump=lambda: {"b": 2}), '{"b":2}'),
    ([1, {"a": 2}], '[1,{"a":2}]'),
    (FormatterResponse({"a": [{"b": 1}]}), '{"a":[{"b":1}]}'),
]


@each_row(("returned", "text"), FORMATTED, ids=[text for _, text in FORMATTED])
def test_what_may_be_returned(returned: Any, text: str) -> None:
    assert text_of(returned, Function(str, "f", WORKERS)) == text


@each_row("returned", [None, 5, b"bytes", {"a": object()}, {1, 2}], ids=["nothing", "int", "bytes", "no JSON", "set"])
def test_what_may_not_be_returned(returned: Any) -> None:
    with pytest.raises(UserCodeError, match=r"^f returned .*, expected a dict, a str, bytes, a Response or an object"):
        text_of(returned, Function(str, "f", WORKERS))


ATTRIBUTES = {"X-Amzn-SageMaker-Custom-Attributes": "trace=7"}


@each_row("returned", [b"text", bytearray(b"text"), Response(b"text"), (b"text", "application/json")])
def test_what_has_bytes(returned: Any) -> None:
    answer = response_of(returned, Function(str, "f", WORKERS))
    assert (answer.body, answer.content_type) == (b"text", "application/json")


WRONG: list[Any] = [Response(b"", 400), Response("text"), Response(b"", headers={"a": 1})]  # type: ignore[arg-type,dict-item]


@each_row("returned", WRONG, ids=["status", "body", "headers"])
def test_a_wrong_response(returned: Any) -> None:
    with pytest.raises(UserCodeError, match=r"^f returned a wrong Response, expected one of status 200"):
        response_of(returned, Function(str, "f", WORKERS))


def test_a_response_has_headers_of_its_own() -> None:
    call = call_of(lambda response: Response(b"<a/>", content_type="text/xml", headers=ATTRIBUTES), {"inputs": "Hi"})
    assert feed(call.reply, *deltas(set())) == [b"<a/>"]
    assert (call.reply.status, call.reply.content_type, call.reply.headers) == (200, "text/xml", ATTRIBUTES)


def test_the_first_of_a_stream_has_its_headers() -> None:
    chunks = iter([b"", b"data: 1\n\n"])

    def mine(response: Any) -> Response:
        chunk = next(chunks, b"data: 2\n\n")
        return Response(chunk, headers=ATTRIBUTES if b"1" in chunk else {"late": "x"})

    call = call_of(mine, {"messages": [{"role": "user", "content": "Hi"}], "stream": True}, openai)
    records = feed(call.reply, *deltas({1, 2, 3}))
    assert records[:2] == [b"data: 1\n\n", b"data: 2\n\n"]
    assert (call.reply.content_type, call.reply.headers) == ("text/event-stream", ATTRIBUTES)


def test_a_failing_function_is_named_whatever_it_raises() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise ValueError

    for error, shown in (
        (OddError(), "OddError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyError("a\nb"), "KeyError: 'a\\nb'"),
    ):

        def mine(response: Any, error: BaseException = error) -> Any:
            raise error

        call = call_of(mine, {"inputs": "Hi"})
        (record,) = feed(call.reply, *deltas(set()))
        assert json.loads(record)["error"] == f"model.py: output formatter mine raised {shown}"
        assert call.reply.status == 424


@settings(deadline=None)
@given(cuts=CUTS)
def test_what_was_good_before_a_function_failed_is_sent(cuts: set[int]) -> None:
    """However many tokens come together."""

    def mine(token: Any, first: bool, last: bool, details: dict[str, Any], text: str, request_id: int) -> str:
        if token.text == "world":
            raise ValueError("too much")
        return str(token.text)

    call = call_of(mine, {"inputs": "Hi", "stream": True})
    *good, told = feed(call.reply, *deltas(cuts))
    assert good == [b"Hel", b"lo", b" "]
    assert json.loads(told)["error"] == "model.py: output formatter mine raised ValueError: too much"


def test_a_request_error_of_the_users_is_the_clients() -> None:
    def mine(payload: dict[str, Any]) -> dict[str, Any]:
        raise ParameterError("temperature: too hot", "temperature")

    answer = read(mine, b'{"messages": []}')
    assert isinstance(answer, Response)
    assert "temperature: too hot" in answer.body.decode()


# Forms by signature.


def one(response: Any) -> None: ...
def several(output: Any, **kwargs: Any) -> None: ...
def two(one: Any, other: Any) -> None: ...


@each_row(("function", "form"), [(one, "response"), (several, "response"), (by_token, "oldest"), (by_output, "output")])
def test_forms_of_output_formatters(function: Any, form: str) -> None:
    assert OutputFormatter(function, "it", SETTINGS, WORKERS).form == form


def test_a_form_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match=r"it: expected \(response\), .*, got \(one: "):
        OutputFormatter(two, "it", SETTINGS, WORKERS)


def test_annotations_of_djl_pythons_own_classes() -> None:
    from djl_python import Input  # type: ignore[import-not-found,unused-ignore]
    from djl_python.request_io import (  # type: ignore[import-not-found,unused-ignore]
        RequestInput,
        RequestOutput,
        TextInput,
    )

    class Mine(TextInput):  # type: ignore[misc,unused-ignore]
        pass

    def output(anything: Any) -> str: ...  # type: ignore[empty-body]
    def item(anything: Any, **kwargs: Any) -> Any: ...
    def made(anything: Any) -> Any: ...

    output.__annotations__["anything"] = typing.cast(Any, RequestOutput)
    item.__annotations__["anything"] = typing.cast(Any, Input)
    made.__annotations__["return"] = typing.cast(Any, Mine)
    assert issubclass(Mine, RequestInput)
    assert OutputFormatter(output, "it", SETTINGS, WORKERS).form == "output"
    assert InputFormatter(item, "it", SETTINGS, WORKERS).item
    assert InputFormatter(made, "it", SETTINGS, WORKERS).item


# Input formatters.


def read(function: Callable[..., Any], body: bytes, **request: Any) -> ParsedRequest | Response:
    formatter = InputFormatter(function, "model.py: input formatter mine", SETTINGS, WORKERS)

    class Reading(Hooks):
        def read(self, request: Request) -> Payload:
            return formatter.read(request)[0]

    return receive(Request(body, **request), SETTINGS, (), Reading())


def test_the_payload_decides_the_dialect() -> None:
    def mine(decoded_payload: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": decoded_payload["ask"]}]}

    call = read(mine, b'{"ask": "Hi"}')
    assert isinstance(call, ParsedRequest)
    assert call.fields.name("prompt") == "messages"


def test_a_formatter_of_payloads_sees_headers_and_attributes() -> None:
    def mine(payload: dict[str, Any], request: Request) -> dict[str, Any]:
        assert request.headers["x-amzn-sagemaker-inference-id"] == "i-1"
        return {**payload, "inputs": request.attributes["Tenant"]}

    headers = {"x-amzn-sagemaker-inference-id": "i-1"}
    call = read(mine, b"{}", headers=headers, attributes={"Tenant": "a"})
    assert isinstance(call, ParsedRequest)
    assert call.generations[0].prompt == "a"
    # The decoded body may be called so.
    call = read(lambda request: {"inputs": request["ask"]}, b'{"ask": "b"}')
    assert isinstance(call, ParsedRequest)


@each_row("returned", [None, "text", [], {"inputs": object()}], ids=["nothing", "text", "list", "no JSON"])
def test_a_payload_has_to_be_json(returned: Any) -> None:
    answer = read(lambda payload: returned, b"{}")
    assert isinstance(answer, Response)
    assert isinstance(answer.failure, UserCodeError)
    assert "model.py: input formatter mine returned" in answer.failure.message


def test_a_request_input_becomes_an_lmi_request() -> None:
    from djl_python.encode_decode import decode  # type: ignore[import-not-found,unused-ignore]
    from djl_python.request_io import TextInput  # type: ignore[import-not-found,unused-ignore]

    def mine(input_item: Any, **kwargs: Any) -> Any:
        assert kwargs["is_rolling_batch"] is True
        body = decode(input_item, input_item.get_property("content-type"))
        assert input_item.get_property("requestId") == "r7"
        return TextInput(input_text=body["ask"], parameters={"max_new_tokens": 7, "stream": True})

    call = read(mine, b'{"ask": "Hi"}', headers={"content-type": "application/json"}, request_id="r7")
    assert isinstance(call, ParsedRequest)
    (generation,) = call.generations
    assert (generation.prompt, generation.stream, generation.sampling.max_tokens) == ("Hi", True, 7)


def test_djl_pythons_own_reading_of_a_request_works() -> None:
    """Users' formatters call it and change what it gives."""
    from djl_python.input_parser import format_input  # type: ignore[import-not-found,unused-ignore]

    def mine(input_item: Any, **kwargs: Any) -> Any:
        made = format_input(input_item, **kwargs)
        made.input_text += "?"
        return made

    body = b'{"inputs": "Hi", "parameters": {"max_new_tokens": 3}, "stream": true}'
    call = read(mine, body, headers={"content-type": "application/json"})
    assert isinstance(call, ParsedRequest)
    assert call.generations[0].prompt == "Hi?"
    assert call.generations[0].stream


def test_a_formatter_of_items_reads_any_content_type() -> None:
    def mine(input_item: Any) -> dict[str, Any]:
        return {"inputs": input_item.get_as_string()}

    call = read(mine, b"Hi", headers={"content-type": "text/plain"})
    assert isinstance(call, ParsedRequest)
    assert call.generations[0].prompt == "Hi"

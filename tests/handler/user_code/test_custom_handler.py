"""`handle` in model.py beside our entry point: when it is called, with what, and what becomes of what it returns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lmi.handler.user_code.custom_handler import NAME

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.errors import OptionError
from ...kit.api.handler import (
    Exchange,
    Service,
    answer_of,
    application,
    attributes_of,
    check_model_dir,
    frame_of_exchange,
    load_extensions,
)
from ...kit.api.options import make_settings
from ...kit.api.types import Delta, EngineEvent, Finish, Request, Started
from ...kit.djl import hosting
from ...kit.registered import llama_dir
from ...kit.rows import each_row
from ...kit.user_code.service import MakeScripted
from ...kit.waiting import until

pytestmark = pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available()))

CUSTOM = "X-Amzn-SageMaker-Custom-Attributes"
END = Finish("eos", generated_tokens=1)
LMI = {"inputs": "Hi"}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
DEFAULT = {"generated_text": "Hello"}

START = """
import asyncio, json, threading, time
from djl_python import Input, Output
from djl_python.async_utils import create_non_stream_output, create_stream_chunk_output

calls = []

async def handle(inputs: Input):
    calls.append(inputs)
    if inputs.is_empty():
        return None
    asked = inputs.get_as_json()
"""


@pytest.fixture(scope="module", autouse=True)
def djl_python() -> Iterator[None]:
    with hosting.djl_python():
        yield


Make = Callable[..., Service]


@pytest.fixture
def served(scripted: MakeScripted) -> Make:
    """A service with this code, or with this body of `handle`, which answers at once."""

    def make(body: str, **options: str) -> Service:
        code = body if "def handle" in body or "import handle" in body else START + indented(body)
        then: list[EngineEvent] = [Started(1), Delta(0, "Hello", finish=END)]
        return scripted({"model.py": code}, then=then, **{"entryPoint": "lmi.handler", **options}).service

    return make


def indented(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.strip("\n").splitlines())


def ended(service: Service, body: Any = LMI, headers: dict[str, str] | None = None, **request: Any) -> Exchange:
    opened = opening(service, body, headers, **request)
    until(lambda: opened.finished)
    return opened


def opening(service: Service, body: Any, headers: dict[str, str] | None = None, **request: Any) -> Exchange:
    headers = headers or {}
    opened = service.open(
        Request(
            body if isinstance(body, bytes) else json.dumps(body).encode(),
            headers={name.lower(): value for name, value in headers.items()},
            attributes=attributes_of(headers.items()),
            **{"request_id": "r-1", **request},
        )
    )
    assert isinstance(opened, Exchange), opened
    return opened


def whole(exchange: Exchange) -> Any:
    return json.loads(b"".join(exchange.records))


def calls() -> list[Any]:
    return sys.modules["model"].calls  # type: ignore[no-any-return]


def test_none_goes_on_with_the_request(served: Make) -> None:
    service = served("return None")
    assert whole(ended(service)) == DEFAULT
    assert whole(ended(service, CHAT))["choices"][0]["message"]["content"] == "Hello"
    # The initialisation, and each request once.
    assert [one.is_empty() for one in calls()] == [True, False, False]


def test_the_initialisation_has_the_options(served: Make, tmp_path: Path) -> None:
    served("return None", max_rolling_batch_size="7", my_prefix="x")
    (first,) = calls()
    properties = first.get_properties()
    assert {name: properties[name] for name in ("entryPoint", "max_rolling_batch_size", "my_prefix", "model_dir")} == {
        "entryPoint": "lmi.handler",
        "max_rolling_batch_size": "7",
        "my_prefix": "x",
        "model_dir": str(tmp_path),
    }


def test_what_a_request_is_given_as(served: Make) -> None:
    service = served("return None")
    headers = {
        "Content-Type": "application/json",
        "X-Amzn-SageMaker-Inference-Id": "i-1",
        CUSTOM: "tenant=a;X-Amzn-SageMaker-Target-Model=m",
    }
    ended(service, LMI, headers, query={"q": "1"})
    asked = calls()[-1]
    assert asked.get_as_json() == LMI
    assert len(asked.get_batches()) == 1
    for name, value in (
        ("X-Amzn-SageMaker-Inference-Id", "i-1"), ("X-Amzn-SageMaker-Target-Model", "m"), ("tenant", "a"),
        ("Content-Type", "application/json"), ("requestId", "r-1"),
    ):  # fmt: skip
        assert asked.get_property(name) == value
    assert asked.get_as_string("q") == "1"


OUTPUTS: dict[str, tuple[str, int, str, bytes]] = {
    "a frame": (
        "return create_non_stream_output({'a': 1}, properties={'X-Mine': 'x'})", 200, "application/json", b'{"a": 1}\n'
    ),
    "a body": ("return Output().add('text').add_property('content-type', 'text/plain')", 200, "text/plain", b"text"),
    "bytes": ("return Output().add(b'\\xff\\x00')", 200, "application/json", b"\xff\x00"),
    "JSON": ("return Output().add_as_json({'a': None})", 200, "application/json", b'{\n  "a":null\n}'),
    "nothing": ("return Output()", 200, "application/json", b""),
    "of several items": ("return Output().add('x', key='other').add('y', key='data')", 200, "application/json", b"y"),
    "another status": ("return Output(201, 'made').add('x')", 201, "application/json", b"x"),
    "what looks like a frame": ("return Output().add(b'\\x00\\x00')", 200, "application/json", b"\x00\x00"),
}  # fmt: skip


@each_row(("code", "status", "content_type", "body"), OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_is_the_answer(served: Make, code: str, status: int, content_type: str, body: bytes) -> None:
    exchange = ended(served(code))
    reply = exchange.call.reply
    assert (reply.status, reply.content_type, b"".join(exchange.records)) == (status, content_type, body)
    assert reply.failure is None
    assert reply.headers.get("X-Mine") == ("x" if "X-Mine" in code else None)


EXPECTED = "None, an Output or an async generator of Outputs"
UNREADABLE = "Custom handler failed: model.py: an Output of handle cannot be read: "
FAILURES: dict[str, tuple[str, int, str]] = {
    "an error's frame": ("return create_non_stream_output('', error='no quota', code=429)", 429, "no quota"),
    "an error": ("return Output().error('boom')", 424, "boom"),
    "a code": ("return Output(400, 'bad').add('x')", 400, "bad"),
    "an exception": (
        "raise RuntimeError('no')", 424, "Custom handler failed: model.py: handle raised RuntimeError: no"
    ),
    "a dict": (
        "return {'a': 1}", 424,
        f"Custom handler failed: model.py: handle returned a dict, expected {EXPECTED}",
    ),
    "no Output in the generator": (
        "async def g():\n    yield 'x'\nreturn g()", 424,
        "Custom handler failed: model.py: the generator of handle returned a str, expected Outputs",
    ),
    "an exception before its first": (
        "async def g():\n    raise ValueError('early')\n    yield\nreturn g()", 424,
        "Custom handler failed: model.py: the generator of handle raised ValueError: early",
    ),
    "a code that is no number": (
        "return Output(code='403', message='no')", 424,
        UNREADABLE + "TypeError: 'str' object cannot be interpreted as an integer",
    ),
    "no properties": (
        "made = Output().add('x')\nmade.properties = None\nreturn made", 424,
        UNREADABLE + "AttributeError: 'NoneType' object has no attribute 'items'",
    ),
    "content that is text": (
        "made = Output()\nmade.content.add(value='text')\nreturn made", 424,
        UNREADABLE + "TypeError: string argument without an encoding",
    ),
    "an unreadable Output in the generator": (
        "async def g():\n    yield Output(code='403')\nreturn g()", 424,
        UNREADABLE + "TypeError: 'str' object cannot be interpreted as an integer",
    ),
    "a first piece that is not JSON": (
        "return Output().add_stream_content(iter([threading]), output_formatter=None)", 424,
        UNREADABLE + "TypeError: Encoding objects of type module is unsupported",
    ),
    "a first piece with half a character": (
        "return Output().add_stream_content(iter(['a\\ud83d']), output_formatter=None)", 424,
        UNREADABLE + "UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud83d' in position 1: surrogates not "
        "allowed",
    ),
}  # fmt: skip


@each_row(("code", "status", "said"), FAILURES.values(), ids=FAILURES)
def test_what_fails_is_told(served: Make, code: str, status: int, said: str) -> None:
    service = served(code)
    exchange = ended(service)
    assert service.admission.open == 0
    assert exchange.failure is not None
    assert (exchange.call.reply.status, exchange.failure.message) == (status, said)
    frame = frame_of_exchange(exchange, first=True, merge=False)
    # Java writes the body of an error.
    assert (frame.last, frame.code, frame.failure) == (True, status, exchange.failure)


@each_row("body", [LMI, CHAT, {"prompt": "a"}, {"neither": 1}], ids=str)
def test_a_failure_has_the_containers_form_in_every_dialect(served: Make, body: dict[str, object]) -> None:
    exchange = ended(served("raise RuntimeError('x')"), body)
    assert (exchange.call.reply.status, exchange.call.reply.content_type) == (424, "application/json")
    assert whole(exchange) == {"error": "Custom handler failed: model.py: handle raised RuntimeError: x", "code": 424}


def test_a_mistake_of_the_clients(served: Make) -> None:
    service = served("from lmi.handler.api import PayloadError\nraise PayloadError('tenant: missing', 'tenant')")
    exchange = ended(service, CHAT)
    assert (exchange.call.reply.status, whole(exchange)["error"]["param"]) == (400, "tenant")


STREAMS: dict[str, tuple[str, list[str], str]] = {
    "frames": (
        """
async def g():
    for n in range(3):
        await asyncio.sleep(0)
        yield create_stream_chunk_output({"n": n}, n == 2)
return g()
""",
        ['{"n": 0}\n', '{"n": 1}\n', '{"n": 2}\n'],
        "application/jsonlines",
    ),
    "without a last mark": (
        """
async def g():
    yield Output().add("a").add_property("Content-Type", "text/event-stream")
    yield Output()
    yield Output().add("b")
return g()
""",
        ["a", "b"],
        "text/event-stream",
    ),
    "more behind the last mark": (
        """
async def g():
    for text in "abc":
        yield create_stream_chunk_output(text, text == "b")
return g()
""",
        ["a\n", "b\n"],
        "application/jsonlines",
    ),
    "stream content": (
        "return Output().add_stream_content(iter(['a', b'b', {'c': 1}]), output_formatter=None)",
        ["a", "b", '{"c":1}'],
        "application/jsonlines",
    ),
    "formatted stream content": (
        "return Output().add_stream_content(iter([['a']]))",
        ['{"outputs": ["a"]}\n'],
        "application/jsonlines",
    ),
    "an error's frame": (
        """
async def g():
    yield create_stream_chunk_output("a", False)
    yield create_stream_chunk_output("", True, error="cut", code=424)
return g()
""",
        ["a\n", '{"error":"cut","code":424}\n'],
        "application/jsonlines",
    ),
    "an exception": (
        """
async def g():
    yield create_stream_chunk_output("a", False)
    raise KeyError("b")
return g()
""",
        [
            "a\n",
            '{"error":"Custom handler failed: model.py: the generator of handle raised KeyError: \'b\'","code":424}\n',
        ],
        "application/jsonlines",
    ),
    "a mistake of the client's": (
        """
from lmi.handler.api import PayloadError
async def g():
    yield create_stream_chunk_output("a", False)
    raise PayloadError("tenant: missing", "tenant")
return g()
""",
        ["a\n", '{"error":"tenant: missing","code":424}\n'],
        "application/jsonlines",
    ),
    "a later piece that is not JSON": (
        "return Output().add_stream_content(iter(['a', threading]), output_formatter=None)",
        ["a", f'{{"error":"{UNREADABLE}TypeError: Encoding objects of type module is unsupported","code":424}}\n'],
        "application/jsonlines",
    ),
    "a later unreadable Output": (
        """
async def g():
    yield create_stream_chunk_output("a", False)
    yield Output(code="x")
return g()
""",
        [
            "a\n",
            f'{{"error":"{UNREADABLE}TypeError: \'str\' object cannot be interpreted as an integer","code":424}}\n',
        ],
        "application/jsonlines",
    ),
}


@each_row(("code", "records", "content_type"), STREAMS.values(), ids=STREAMS)
def test_a_stream(served: Make, code: str, records: list[str], content_type: str) -> None:
    exchange = ended(served(code))
    assert [record.decode() for record in exchange.records] == records
    assert (exchange.call.reply.status, exchange.call.reply.content_type) == (200, content_type)
    assert exchange.call.streamed
    assert (exchange.failure is not None) == ('"error"' in records[-1])


def test_handle_may_be_a_generator_or_plain(served: Make) -> None:
    generator = """
from djl_python import Output
async def handle(inputs):
    if not inputs.is_empty():
        yield Output().add("a")
"""
    plain = """
from djl_python import Output
def handle(inputs):
    return None if inputs.is_empty() else Output().add("b")
"""
    with pytest.raises(OptionError, match="handle returned an async_generator at the initialisation"):
        served(generator)
    assert list(ended(served(plain)).records) == [b"b"]


def test_a_stream_whose_client_goes_is_closed(served: Make) -> None:
    code = """
async def g():
    global closed
    try:
        while True:
            yield create_stream_chunk_output("a", False)
            await asyncio.sleep(0.001)
    finally:
        closed.set()
return g()
"""
    service = served(START.replace("calls = []", "calls = []\nclosed = threading.Event()") + indented(code))
    opened = opening(service, LMI)
    until(lambda: len(opened.records) > 2)
    opened.abort()
    assert sys.modules["model"].closed.wait(10)
    assert service.metrics.in_flight == 0


def test_a_cancel_is_not_shown_to_it_and_waits_for_none_of_its_threads(served: Make) -> None:
    code = """
async def g():
    while True:
        yield create_stream_chunk_output("a", False)
        await asyncio.sleep(0.001)
return g()
"""
    service = served(code, user_code_threads="1", max_rolling_batch_size="1", max_queued_requests="0")
    stream = opening(service, LMI, request_id="a" * 20)
    until(lambda: bool(stream.records))
    cancel = {"requestType": "CANCEL", "request_id": "a" * 20}
    # With no place left, too.
    answer = answer_of(service.open(Request(json.dumps(cancel).encode(), request_id="b" * 20)))
    assert (answer.status, json.loads(answer.body)) == (200, {"result": f"Request {'a' * 20} cancelled"})
    until(lambda: stream.finished)
    assert b"the request was cancelled" in stream.records[-1]
    assert len(calls()) == 2
    assert service.admission.open == 0


@each_row(
    "code",
    [
        "await asyncio.sleep(60)",
        "time.sleep(2)",
        "async def g():\n    await asyncio.sleep(60)\n    yield\nreturn g()",
    ],
    ids=["async", "blocking", "generator"],
)
def test_one_that_hangs_is_given_up(served: Make, code: str) -> None:
    service = served(code, user_code_timeout="0.2")
    exchange = ended(service)
    assert exchange.failure is not None
    assert "has not returned within 0.2 seconds (option.user_code_timeout)" in exchange.failure.message


def test_it_sees_requests_before_their_route(served: Make) -> None:
    service = served("return Output().add('mine') if inputs.get_property('route') == '/mine' else None")
    assert list(ended(service, LMI, {CUSTOM: "route=/mine"}).records) == [b"mine"]
    assert whole(ended(service, {}, {CUSTOM: "route=/v1/models"}))["object"] == "list"
    unknown = ended(service, LMI, {CUSTOM: "route=/other"})
    assert (unknown.call.reply.status, whole(unknown)["code"]) == (404, 404)


def test_formatters_and_handle_together(served: Make) -> None:
    code = (
        START
        + indented("return None")
        + "\ndef write(response):\n    return 'formatted'\nwrite.is_output_formatter = True\n"
    )
    assert list(ended(served(code)).records) == [b"formatted"]


def test_on_the_local_server(served: Make) -> None:
    service = served(
        "return create_non_stream_output({'by': 'me'}, properties={'X-Amzn-SageMaker-Custom-Attributes': 'a=b'}) "
        "if 'mine' in asked else None"
    )
    with TestClient(application(service)) as http:
        mine = http.post("/invocations", json={"mine": 1})
        assert (mine.json(), mine.headers[CUSTOM]) == ({"by": "me"}, "a=b")
        assert mine.headers["content-length"] == str(len(mine.content))
        assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
        # Asked before the route is looked at, as behind DJL.
        asked = len(calls())
        assert http.post("/invocations", json={}, headers={CUSTOM: "route=/v1/models"}).json()["object"] == "list"
        assert len(calls()) == asked + 1
        # What comes on a page's own path is no request for the model, however much is open.
        for method, path in (("GET", "/v1/models"), ("HEAD", "/v1/models"), ("GET", "/version")):
            for stopped in (False, True):
                service.stopping = stopped
                assert http.request(method, path).status_code == 200
        assert len(calls()) == asked + 1


def test_it_sees_the_request_as_it_came(served: Make) -> None:
    """Whatever the route that it names makes of it."""
    said = "{**inputs.get_properties(), 'items': [str(one) for one in inputs.content.get_keys()]}"
    service = served(f"return create_non_stream_output({said})")
    named = whole(ended(service, LMI, {CUSTOM: "a=b; route=/info?api-version=2024-05-01"}))
    assert ("dialect" in named, "api-version" in named["items"], named["a"]) == (False, False, "b")


WRAPPERS = {
    "ours itself": "from lmi.handler import handle\n",
    "by another name": "from lmi.handler import handle as serve\ndef handle(inputs):\n    raise RuntimeError\n",
    "the module": "import lmi.handler as ours\ndef handle(inputs):\n    return ours.handle(inputs)\n",
}


@each_row("code", WRAPPERS.values(), ids=WRAPPERS)
def test_one_that_serves_by_ours_is_none(served: Make, code: str) -> None:
    service = served(code)
    opened = service.open(Request(json.dumps(LMI).encode()))
    assert isinstance(opened, Exchange)
    assert whole(opened) == DEFAULT


@each_row("entry", ["", "model.py", "model"])
def test_one_that_is_the_entry_point_is_djls(served: Make, entry: str) -> None:
    service = served("def handle(inputs):\n    raise RuntimeError\n", entryPoint=entry)
    assert isinstance(service.open(Request(json.dumps(LMI).encode())), Exchange)
    assert service.extensions is not None
    assert service.extensions.handler is None


@each_row("kind", ["", "async "], ids=["plain", "async"])
def test_ours_called_from_within_it_goes_on(served: Make, kind: str) -> None:
    """As where ours is imported in the function only."""
    call = "await lmi.handler.handle(inputs)" if kind else "lmi.handler.handle(inputs)"
    code = f"import lmi.handler\ncalls = []\n{kind}def handle(inputs):\n    calls.append(1)\n    return {call}\n"
    assert whole(ended(served(code))) == DEFAULT
    assert len(calls()) == 2


FAULTS = {
    "an import that fails": ("import nothing_there\n" + START, r"model\.py: .*No module named 'nothing_there'"),
    "a syntax error": ("def handle(inputs)\n", r"model\.py: SyntaxError"),
    "it raises at the start": (
        "def handle(inputs):\n    raise RuntimeError('no weights')\n",
        r"model\.py: handle raised RuntimeError: no weights at the initialisation",
    ),
    "it takes over at the start": (
        "from djl_python import Output\ndef handle(inputs):\n    return Output()\n",
        r"model\.py: handle returned an Output at the initialisation .* by option\.entryPoint=model\.py",
    ),
}


@each_row(("code", "said"), FAULTS.values(), ids=FAULTS)
def test_a_start_that_fails_names_it(served: Make, code: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        served(code)


def test_without_djl_python_the_start_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "djl_python.request_io", None)
    (tmp_path / "model.py").write_text("def handle(inputs):\n    return None\n")
    with pytest.raises(OptionError, match=f"{NAME} needs djl_python"):
        load_extensions(make_settings(tmp_path, entryPoint="lmi.handler"))


def test_check_names_it(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("option.entryPoint=lmi.handler\noption.backend=echo:Echo\n")
    (tmp_path / "model.py").write_text("def handle(inputs):\n    raise RuntimeError\n")
    assert "your own code: handle" in check_model_dir(tmp_path, {}, here=False)


def test_a_request_that_waits_for_an_adapter_is_asked_about_once(served: Make, tmp_path: Path) -> None:
    llama_dir(tmp_path / "base")
    service = served("return None", enable_lora="true", model_id=str(tmp_path / "base"))
    assert service.adapters is not None
    entry = service.adapters.enter("a", str(write_adapter(tmp_path / "a", LLAMA)), alias=None)
    waiting = opening(service, LMI, {"X-Amzn-SageMaker-Adapter-Identifier": "a"})
    until(lambda: len(calls()) == 2)
    assert not waiting.finished
    service.adapters.load(entry)
    until(lambda: waiting.finished)
    assert whole(waiting) == DEFAULT
    assert len(calls()) == 2

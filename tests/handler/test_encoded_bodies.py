"""Bodies with a Content-Encoding, or a byte order mark: alike in every dialect and on every host."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from starlette.testclient import TestClient

from ..kit.api.dialects import LARGE
from ..kit.api.handler import (
    PlainBatch,
    RollingBatch,
    Service,
    Whole,
    application,
    djl_request_of,
    started_service,
)
from ..kit.api.types import Delta, Finish, Request, Started
from ..kit.djl.hosting import available, djl_python_path
from ..kit.rows import each_row
from ..kit.user_code.engine import ScriptedEngine
from ..kit.waiting import until

END = Finish("eos", generated_tokens=1)
MOST = 1 << 20
"""option.max_body_bytes."""

Encode = Callable[[bytes], bytes]


def bare(body: bytes) -> bytes:
    """Deflate without zlib's head, which some clients send for `deflate`."""
    encoder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return encoder.compress(body) + encoder.flush()


def named(body: bytes) -> bytes:
    """As the program gzip writes it: the head has the file's name."""
    plain = gzip.compress(body)
    return plain[:3] + b"\x08" + plain[4:10] + b"body.json\x00" + plain[10:]


def zstd(body: bytes) -> bytes:
    """The head of its frame says how long it is."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(body)


def streamed_zstd(body: bytes) -> bytes:
    """The head does not say."""
    encoder = zstandard.ZstdCompressor().compressobj()
    return encoder.compress(body) + encoder.flush()


def far_back(body: bytes) -> bytes:
    """A frame whose decoder needs more memory than one of a web's has to have (RFC 9659)."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=24)
    encoder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return encoder.compress(body) + encoder.flush()


SERVED: list[tuple[str, Encode]] = [
    ("gzip", gzip.compress), ("GZip", gzip.compress), ("x-gzip", gzip.compress), ("gzip", named),
    ("deflate", zlib.compress), ("deflate", bare), ("zstd", zstd), ("zstd", streamed_zstd), ("identity", bytes),
    ("", bytes),
]  # fmt: skip
EXPECTED = "Content-Encoding: expected gzip, deflate or zstd, got "
RATIO = re.compile(r"at most 100 times its \d+ bytes once it is decoded")
REFUSED: dict[str, tuple[str, Encode, int, str]] = {
    "br": ("br", bytes, 415, f"{EXPECTED}'br'"),
    "unknown": ("rot13", bytes, 415, f"{EXPECTED}'rot13'"),
    "several": ("gzip, deflate", lambda body: zlib.compress(gzip.compress(body)), 415, f"{EXPECTED}'gzip, deflate'"),
    "twice": ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body)), 415, f"{EXPECTED}'gzip, gzip'"),
    "not encoded": ("gzip", bytes, 400, "the body is not gzip: "),
    "not deflate": ("deflate", bytes, 400, "the body is not deflate: "),
    "cut off": ("gzip", lambda body: gzip.compress(body)[:-9], 400, "the body is not gzip: it ends too early"),
    "changed": ("gzip", lambda body: gzip.compress(body)[:-8] + bytes(8), 400, "the body is not gzip: "),
    "more behind it": ("gzip", lambda body: gzip.compress(body) + b"{}", 400, "the body is not gzip: bytes follow"),
    "encoded twice": ("gzip", lambda body: gzip.compress(gzip.compress(body)), 400, "the body is not "),
    "empty": ("gzip", lambda _: gzip.compress(b""), 400, "the body is empty"),
    "too long": ("gzip", lambda body: gzip.compress(body.ljust(MOST + 1)), 413, "at most 1048576 bytes"),
    "a bomb": ("deflate", lambda _: zlib.compress(bytes(1 << 26)), 413, "at most 1048576 bytes"),
    "not zstd": ("zstd", bytes, 400, "the body is not zstd: "),
    "zstd that is cut off": ("zstd", lambda body: zstd(body)[:-1], 400, "the body is not zstd: "),
    "a stream that is cut off": ("zstd", lambda body: streamed_zstd(body)[:-1], 400, "the body is not zstd: "),
    "zstd that is changed": ("zstd", lambda body: zstd(body)[:-4] + bytes(4), 400, "the body is not zstd: "),
    "more behind zstd": ("zstd", lambda body: zstd(body) + b"{}", 400, "the body is not zstd: "),
    "two frames": ("zstd", lambda body: zstd(body) * 2, 400, "the body is not zstd: "),
    "far back": ("zstd", far_back, 400, "the body is not zstd: "),
    "empty zstd": ("zstd", lambda _: zstd(b""), 400, "the body is empty"),
    "zstd that is too long": ("zstd", lambda body: zstd(body.ljust(MOST + 1)), 413, "at most 1048576 bytes"),
    "a stream that is too long": ("zstd", lambda body: streamed_zstd(body.ljust(MOST + 1)), 413, "at most 1048576"),
    "a bomb of zstd": ("zstd", lambda _: streamed_zstd(bytes(1 << 28)), 413, "at most 1048576 bytes"),
}
AZURE = "?api-version=2024-05-01-preview"
ROUTES: dict[str, tuple[str, Any]] = {
    "lmi": ("/invocations", {"inputs": "Hi"}),
    "by its body": ("/invocations", {"messages": [{"role": "user", "content": "Hi"}], "model": "m"}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "responses": ("/v1/responses", {"input": "Hi", "store": False}),
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}),
    "tgi": ("/generate", {"inputs": "Hi"}),
    "azure": (f"/chat/completions{AZURE}", {"messages": [{"role": "user", "content": "Hi"}]}),
    "minimal": ("/chat/completions", {"model": "any", "messages": [{"role": "user", "content": "Hi"}]}),
}
PAIRS = [(coding, encode) for coding, encode in SERVED if encode is not bytes]


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.submit_then = [Started(1), Delta(0, "Hello", finish=END)]
    return engine


@pytest.fixture
def service(engine: ScriptedEngine, tmp_path: Path) -> Iterator[Service]:
    made = started_service(engine, tmp_path, max_body_bytes=str(MOST))
    yield made
    made.close()


def client(service: Service) -> TestClient:
    return TestClient(application(service), base_url="http://local")


def headers(coding: str) -> dict[str, str]:
    return {"content-type": "application/json", "content-encoding": coding}


@each_row("route", ROUTES)
def test_each_dialect_reads_them_and_refuses_in_its_own_form(
    service: Service, engine: ScriptedEngine, route: str
) -> None:
    """A byte order mark is no part of JSON. What is refused has the form of another content type."""
    path, body = ROUTES[route]
    content = json.dumps(body).encode()
    engine.generations.clear()
    with client(service) as http:
        for plain in (content, codecs.BOM_UTF8 + content):
            for given, coding in ((plain, ""), (gzip.compress(plain), "gzip")):
                answer = http.post(path, content=given, headers=headers(coding))
                assert (answer.status_code, "Hello" in answer.text) == (200, True), (coding, answer.text)
        assert len(engine.generations) == 4
        assert all(one.prompt == engine.generations[0].prompt for one in engine.generations)
        other = http.post(path, content=content, headers={"content-type": "text/plain"})
        answer = http.post(path, content=zlib.compress(content), headers=headers("br"))
        assert (answer.status_code, set(answer.json())) == (415, set(other.json()))
        assert f"{EXPECTED}'br'" in answer.text
        assert "the body is empty" in http.post(path, content=codecs.BOM_UTF8, headers=headers("")).text
    assert len(engine.generations) == 4


@each_row("case", ["br", "cut off", "too long"])
def test_what_is_refused(service: Service, engine: ScriptedEngine, case: str) -> None:
    """With the status that an OpenAI client expects; the others are of DJL's hosts, below."""
    coding, encode, status, words = REFUSED[case]
    body = encode(json.dumps(ROUTES["chat"][1]).encode())
    engine.generations.clear()
    with client(service) as http:
        answer = http.post("/v1/chat/completions", content=body, headers=headers(coding))
        assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text
        again = http.post("/v1/chat/completions", json=ROUTES["chat"][1])
        assert again.status_code == 200
    assert len(engine.generations) == 1


def test_what_asks_something_of_the_server_itself(service: Service) -> None:
    """A request that is ended by its id, an adapter that is registered."""
    with client(service) as http:
        for path, body in (("/cancel", {"request_id": "a" * 16}), ("/adapters", {"name": "a", "src": "b"})):
            plain = http.post(path, json=body)
            for coding, encode in PAIRS:
                content = encode(codecs.BOM_UTF8 + json.dumps(body).encode())
                answer = http.post(path, content=content, headers=headers(coding))
                assert (answer.status_code, answer.text) == (plain.status_code, plain.text)
            refused = http.post(path, content=json.dumps(body), headers=headers("br"))
            assert (refused.status_code, f"{EXPECTED}'br'" in refused.text) == (415, True)
            bomb = http.post(path, content=gzip.compress(bytes(1 << 20)), headers=headers("gzip"))
            assert (bomb.status_code, "at most 65536 bytes" in bomb.text) == (413, True)


@each_row(("coding", "encode"), PAIRS)
def test_a_body_becomes_a_hundred_times_as_long_at_most(tmp_path: Path, coding: str, encode: Encode) -> None:
    """But for a megabyte, that may come of however few."""
    service = started_service(ScriptedEngine(), tmp_path, max_body_bytes=str(16 << 20))
    try:
        for size, refused in ((1 << 20, False), ((1 << 20) + 1, True), (15 << 20, True)):
            whole = PlainBatch(service).answer(request(coding, encode(b"{}".ljust(size))))
            assert isinstance(whole, Whole)
            assert (whole.status, bool(RATIO.search(whole.body.decode()))) == ((413, True) if refused else (424, False))
    finally:
        service.close()


def test_zstd_where_nothing_reads_it(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with client(service) as http:
        for coding in ("zstd", "br"):
            answer = http.post("/v1/chat/completions", content=zstd(b"{}"), headers=headers(coding))
            expected = f"Content-Encoding: expected gzip or deflate, got '{coding}'"
            assert (answer.status_code, expected in answer.text) == (415, True)


LINES = [
    (b'{"inputs": "Hi"}', 200, ""), (b'{"inputs": "Hi"}\n', 200, ""), (b'\xef\xbb\xbf{"inputs": "Hi"}\r\n', 200, ""),
    (b'{"inputs": "Hi"}\n{"inputs": "Hi"}\n', 424, "one line of application/jsonlines, which is a request, got 2"),
    (b"\n", 424, "the body is empty"),
]  # fmt: skip


@each_row(("body", "status", "words"), LINES)
def test_a_line_of_json_lines_is_json(service: Service, body: bytes, status: int, words: str) -> None:
    """As SageMaker's batch transform sends each (SplitType=Line), encoded or not, on every host."""
    kind = "application/jsonlines"
    with client(service) as http:
        for content, coding in ((body, ""), (gzip.compress(body), "gzip")):
            given = {"content-type": kind, "content-encoding": coding}
            answer = http.post("/invocations", content=content, headers=given)
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
    sent = Request(body, headers={"content-type": kind}, attributes={"Content-Type": kind})
    (frame,) = RollingBatch(service, poll_timeout=30).step([sent])
    assert (frame.last, frame.failure is None) == (True, status == 200)
    whole = PlainBatch(service).answer(sent)
    assert isinstance(whole, Whole)
    assert (whole.status, words in whole.body.decode()) == (status, True)


CHARSETS = [
    ("utf-8", "utf-8", "Grüße", 200), ("UTF8", "utf-8", "Grüße", 200), ('"utf-8"', "utf-8", "Grüße", 200),
    ("us-ascii", "ascii", "Hi", 200), ("iso-8859-1", "latin-1", "Hi", 200), ("iso-8859-1", "latin-1", "Grüße", 415),
    ("utf-16", "utf-16", "Hi", 415), ("UTF-16LE", "utf-16-le", "Hi", 415), ("utf-32", "utf-32", "Hi", 415),
]  # fmt: skip


@each_row(("charset", "encoding", "text", "status"), CHARSETS)
def test_json_is_utf_8(service: Service, charset: str, encoding: str, text: str, status: int) -> None:
    """RFC 8259, 8.1. A charset that has another name for the same bytes is no fault."""
    body = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False).encode(encoding)
    kind = f"application/json; charset={charset}"
    with client(service) as http:
        answer = http.post("/v1/chat/completions", content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    if status == 415:
        assert "Content-Type: expected charset=utf-8, got " in answer.json()["error"]["message"]


# --- Behind DJL Serving, whose Java hands bodies on as they came ---


def request(coding: str, body: bytes, **fields: Any) -> Request:
    sent = {"Content-Type": "application/json", "Content-Encoding": coding}
    return Request(body, headers={name.lower(): value for name, value in sent.items()}, attributes=sent, **fields)


PLAIN = json.dumps({"inputs": "Hi"}).encode()
BIG = json.dumps({"inputs": "a" * LARGE}).encode()


@each_row("body", [PLAIN, BIG], ids=["small", "large"])
@each_row(("coding", "encode"), SERVED)
def test_each_host_of_djl_reads_them(service: Service, coding: str, encode: Encode, body: bytes) -> None:
    (frame,) = RollingBatch(service, poll_timeout=30).step([request(coding, encode(body))])
    assert (frame.data, frame.last) == (b'{"generated_text":"Hello"}', True)
    assert [one.status for one in PlainBatch(service).answers([request(coding, encode(body))] * 2)] == [200, 200]


@each_row("case", REFUSED)
def test_each_host_of_djl_refuses(service: Service, case: str) -> None:
    coding, encode, status, words = REFUSED[case]
    sent = request(coding, encode(PLAIN))
    (frame,) = RollingBatch(service, poll_timeout=30).step([sent])
    assert frame.failure is not None
    assert (frame.last, words in frame.failure.message) == (True, True)
    whole = PlainBatch(service).answer(sent)
    assert isinstance(whole, Whole)
    # LMI's form has one status for what is wrong with a request.
    assert (whole.status, words in json.loads(whole.body)["error"]) == ({400: 424}.get(status, status), True)


@pytest.mark.skipif(available() is not None, reason=str(available()))
def test_as_java_hands_them_on(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers are properties, in the letters that the client wrote (RequestParser); no part of its pipeline decodes
    (ServerInitializer of DJL Serving 0.36)."""
    monkeypatch.syspath_prepend(str(djl_python_path()))
    from djl_python import Input

    inputs = Input()
    inputs.properties |= {"Content-Type": "application/json", "Content-encoding": "gzip"}
    inputs.content.add("data", gzip.compress(PLAIN))
    (frame,) = RollingBatch(service, poll_timeout=30).step([djl_request_of(inputs)])
    assert frame.data == b'{"generated_text":"Hello"}'


def ended(service: Service, sent: Request) -> tuple[int, bytes]:
    """Status and body of what becomes of a request."""
    found = service.open(sent)
    until(lambda: found.finished)
    return found.call.reply.status, b"".join(found.records)


@pytest.mark.parametrize("body", [PLAIN, BIG], ids=["small", "large"])
def test_user_code_has_the_body_decoded(engine: ScriptedEngine, tmp_path: Path, body: bytes) -> None:
    """And no header that says otherwise."""
    (tmp_path / "model.py").write_text(
        "def read(decoded_payload, request):\n"
        "    assert 'content-encoding' not in request.headers | request.attributes\n"
        "    assert 'Content-Encoding' not in request.attributes\n"
        "    return {'inputs': f'{len(request.body)} bytes, {sorted(decoded_payload)}'}\n"
    )
    service = started_service(engine, tmp_path, input_formatter="model:read")
    try:
        assert ended(service, request("gzip", gzip.compress(body))) == (200, b'{"generated_text":"Hello"}')
        assert engine.generations[-1].prompt == f"{len(body)} bytes, ['inputs']"
    finally:
        service.close()

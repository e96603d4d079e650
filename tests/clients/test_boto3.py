"""boto3's `sagemaker-runtime` client, in every dialect, on every host, through a bridge that stands for the service."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from lmi.formatters import DIALECTS

from ..demo.model import question
from ..kit.bridge import Bridge, runtime, serving
from ..kit.hosts import Host

pytestmark = [pytest.mark.engine, pytest.mark.djl]

ASKED = question("unicode")
JSON = "application/json"
JSON_LINES = "application/jsonlines"
SSE = "text/event-stream"

Body = dict[str, Any]


@dataclass(frozen=True)
class Spoken:
    """How a caller of an endpoint speaks a dialect.

    whole: the body of a request that asks ASKED.
    bad: the same with a temperature of -1; `status` is what that is answered with, 200 where it is told in the stream.
    kinds: the content types of a whole and of a streamed answer.
    text: the text of a whole answer; `piece`: of a record of a stream.
    end: the last line of a stream, where it is no record.
    accept: the content type that is asked for, if any.
    """

    dialect: str
    whole: Body
    bad: Body
    status: int
    kinds: tuple[str, str]
    text: Callable[[Any], str]
    piece: Callable[[Any], str]
    end: bytes | None = None
    accept: str = ""

    @property
    def stream(self) -> Body:
        """The body of the same request for a stream."""
        return {**self.whole, "stream": True}


def generate(**parameters: Any) -> Body:
    return {"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 400, **parameters}}


def chat(**fields: Any) -> Body:
    return {"model": "any", "messages": [{"role": "user", "content": ASKED.prompt}], **fields}


def complete(**fields: Any) -> Body:
    return {"model": "any", "prompt": ASKED.prompt, "max_tokens": 400, **fields}


def delta(record: Any) -> str:
    return str(record["choices"][0]["delta"].get("content") or "") if record["choices"] else ""


SPOKEN = {
    "lmi": Spoken(
        "lmi",
        generate(details=True),
        generate(temperature=-1),
        424,
        (JSON, JSON_LINES),
        lambda answer: answer["generated_text"],
        lambda record: record["token"]["text"],
    ),
    "tgi": Spoken(
        "tgi",
        generate(details=True),
        generate(temperature=-1),
        422,
        (JSON, SSE),
        lambda answer: answer[0]["generated_text"],
        lambda record: "" if record["token"]["special"] else record["token"]["text"],
    ),
    "dynamic": Spoken(
        "dynamic",
        {"inputs": [ASKED.prompt], "parameters": {"max_new_tokens": 400}},
        generate(temperature=-1),
        424,
        (JSON, JSON_LINES),
        lambda answer: answer[0]["generated_text"],
        lambda record: record["outputs"][0],
    ),
    "openai, chat": Spoken(
        "openai",
        chat(temperature=0),
        chat(temperature=-1),
        400,
        (JSON, SSE),
        lambda answer: answer["choices"][0]["message"]["content"],
        delta,
        b"data: [DONE]",
    ),
    "openai, text": Spoken(
        "openai",
        complete(temperature=0),
        complete(temperature=-1),
        400,
        (JSON, SSE),
        lambda answer: answer["choices"][0]["text"],
        lambda record: record["choices"][0]["text"],
        b"data: [DONE]",
    ),
    "azure": Spoken(
        "azure",
        chat(temperature=0),
        chat(temperature=-1),
        422,
        (JSON, SSE),
        lambda answer: answer["choices"][0]["message"]["content"],
        delta,
        b"data: [DONE]",
    ),
    "minimal": Spoken(
        "minimal",
        chat(temperature=0),
        chat(temperature=-1),
        400,
        (JSON, JSON),
        lambda answer: answer["message"]["content"],
        lambda record: record["message"]["content"],
    ),
    "minimal, events": Spoken(
        "minimal",
        chat(temperature=0),
        chat(temperature=-1),
        200,
        (JSON, SSE),
        lambda answer: answer["message"]["content"],
        lambda record: record["message"]["content"],
        b"data: [END]",
        SSE,
    ),
}
"""Every dialect in DIALECTS must be here: `test_every_dialect_is_spoken`."""

NAMES = [known.NAME for known in DIALECTS]


def test_every_dialect_is_spoken() -> None:
    assert set(NAMES) <= {spoken.dialect for spoken in SPOKEN.values()}


SERVED = [name for name, spoken in SPOKEN.items() if spoken.dialect in NAMES]


@pytest.fixture(params=SERVED)
def spoken(request: pytest.FixtureRequest) -> Spoken:
    return SPOKEN[request.param]


class Endpoint:
    """A host as an endpoint of SageMaker, and as it is."""

    def __init__(self, host: Host, bridge: Bridge, client: Any) -> None:
        self.bridge = bridge
        self.client = client
        self._url = f"{host.url}/invocations"

    def invoke(self, spoken: Spoken, body: Body | bytes, *, stream: bool = False) -> Any:
        """What boto3 gives for a request in a dialect."""
        call = self.client.invoke_endpoint_with_response_stream if stream else self.client.invoke_endpoint
        return call(
            EndpointName="demo",
            ContentType=JSON,
            CustomAttributes=f"dialect={spoken.dialect}",
            Body=encoded(body),
            **({"Accept": spoken.accept} if spoken.accept else {}),
        )

    def direct(self, spoken: Spoken, body: Body | bytes) -> httpx.Response:
        """What the host itself answers."""
        headers = {
            "content-type": JSON,
            "X-Amzn-SageMaker-Custom-Attributes": f"dialect={spoken.dialect}",
            "accept": spoken.accept or "*/*",
        }
        return httpx.post(self._url, content=encoded(body), headers=headers, timeout=120, verify=False)


def encoded(body: Body | bytes) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture(scope="module")
def endpoint(host: Host) -> Iterator[Endpoint]:
    bridge = Bridge(host.url, seed=3)
    with serving(bridge.app) as url, closing(runtime(url)) as client:
        yield Endpoint(host, bridge, client)


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream that was cut anywhere: as docs/clients.md tells callers to read it."""
    rest = b""
    for part in parts:
        *complete, rest = (rest + part).split(b"\n")
        yield from complete
    assert rest == b"", "the stream does not end with a newline"


def records(spoken: Spoken, given: Iterable[bytes]) -> list[Any]:
    """The documents of a stream's lines."""
    *documents, last = [line for line in given if line]
    if spoken.end is None:
        documents.append(last)
    else:
        assert last == spoken.end
    return [json.loads(document.removeprefix(b"data: ")) for document in documents]


def same(one: Any, other: Any) -> bool:
    """Whether two answers to the same request are the same but for what names the answer and when it was made."""
    match one, other:
        case dict(), dict():
            volatile = {"created"} if not isinstance(one.get("id"), str) else {"created", "id"}
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one.keys() - volatile)
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case float(), float():
            # The last digits depend on what else a step computed, and on what the prefix cache held.
            return math.isclose(one, other, abs_tol=1e-3)
        case _:
            return bool(one == other)


def test_a_whole_answer_is_the_hosts(endpoint: Endpoint, spoken: Spoken) -> None:
    answer = endpoint.invoke(spoken, spoken.whole)
    with answer["Body"] as body:
        given = json.load(body)
    direct = endpoint.direct(spoken, spoken.whole)
    assert direct.status_code == 200
    assert answer["ContentType"].partition(";")[0] == spoken.kinds[0]
    assert spoken.text(given) == ASKED.answer
    assert same(given, direct.json())


def test_a_stream_that_is_cut_anywhere_is_put_together_again(endpoint: Endpoint, spoken: Spoken) -> None:
    answer = endpoint.invoke(spoken, spoken.stream, stream=True)
    with closing(answer["Body"]) as events:
        parts = [event["PayloadPart"]["Bytes"] for event in events]
    assert b"".join(parts) == endpoint.bridge.sent
    assert any(0x80 <= part[0] < 0xC0 for part in parts), "no part begins inside a character"
    assert answer["ContentType"].partition(";")[0] == spoken.kinds[1]
    given = records(spoken, lines(parts))
    assert len(given) > 10
    assert "".join(map(spoken.piece, given)) == ASKED.answer
    direct = endpoint.direct(spoken, spoken.stream)
    assert direct.status_code == 200
    expected = records(spoken, direct.content.split(b"\n"))
    assert "".join(map(spoken.piece, expected)) == ASKED.answer
    assert same(given[0], expected[0])
    assert same(given[-1], expected[-1])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("readable", [True, False], ids=["bad value", "not JSON"])
@pytest.mark.parametrize("spoken", [name for name in SERVED if SPOKEN[name].status != 200], indirect=True)
def test_a_refusal_is_a_model_error(endpoint: Endpoint, spoken: Spoken, readable: bool, stream: bool) -> None:
    body: Body | bytes = {**spoken.bad, "stream": stream} if readable else b'{"stream": true, '
    with pytest.raises(endpoint.client.exceptions.ModelError) as caught:
        endpoint.invoke(spoken, body, stream=stream)
    told = caught.value.response
    direct = endpoint.direct(spoken, body)
    assert told["OriginalStatusCode"] == direct.status_code
    assert told["OriginalMessage"] == direct.text
    if readable:
        assert direct.status_code == spoken.status
        assert "temperature" in direct.text
    else:
        assert 400 <= direct.status_code < 500


def test_a_dialect_that_does_not_exist_is_a_model_error(endpoint: Endpoint) -> None:
    with pytest.raises(endpoint.client.exceptions.ModelError) as caught:
        endpoint.client.invoke_endpoint(
            EndpointName="demo", ContentType=JSON, CustomAttributes="dialect=latin", Body=encoded(chat())
        )
    assert caught.value.response["OriginalStatusCode"] == 424
    assert "latin" in caught.value.response["OriginalMessage"]

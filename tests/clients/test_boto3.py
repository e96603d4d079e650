"""boto3's `sagemaker-runtime` client, in every dialect, on every host, through a bridge that stands for the service."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from ..kit.answers.spoken import ASKED, JSON, SPOKEN, Body, Spoken, chat, records
from ..kit.api.dialects import GENERATING
from ..kit.clients.bridge import Bridge, runtime, serving
from ..kit.hosts.host import Host

pytestmark = [pytest.mark.engine, pytest.mark.djl]

NAMES = [known.name for known in GENERATING]


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


@pytest.fixture
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


NAMES_AND_TIMES = {"completed_at", "created", "created_at", "id", "item_id", "request_id"}


def same(one: Any, other: Any) -> bool:
    """Whether two answers to the same request are the same but for what names the answer and when it was made."""
    match one, other:
        case dict(), dict():
            # A token's id is a number.
            volatile = NAMES_AND_TIMES - ({"id"} if not isinstance(one.get("id"), str) else set())
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
    given = told["OriginalMessage"]
    assert given == direct.text or same(json.loads(given), direct.json())
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

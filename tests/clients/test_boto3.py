"""boto3's `sagemaker-runtime` client, in every dialect, on a rolling batch: through a bridge, which is the service."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from ..kit.answers.spoken import ASKED, JSON, SPOKEN, Body, Spoken, records
from ..kit.api.dialects import GENERATING
from ..kit.clients.bridge import Bridge, runtime, serving
from ..kit.hosts.host import Host
from ..kit.hosts.pool import HostPool

pytestmark = [pytest.mark.engine, pytest.mark.djl]

NAMES = [known.name for known in GENERATING]


def test_every_dialect_is_spoken() -> None:
    assert set(NAMES) <= {spoken.dialect for spoken in SPOKEN.values()}


SERVED = [pytest.param(one, id=name) for name, one in SPOKEN.items() if one.dialect in NAMES]


class Endpoint:
    """A host as an endpoint of SageMaker, and as it is."""

    def __init__(self, host: Host, bridge: Bridge, client: Any) -> None:
        self.bridge = bridge
        self.client = client
        self._url = f"{host.url}/invocations"

    def invoke(self, spoken: Spoken, body: Body, *, stream: bool = False) -> Any:
        """What boto3 gives for a request in a dialect."""
        call = self.client.invoke_endpoint_with_response_stream if stream else self.client.invoke_endpoint
        return call(
            EndpointName="demo",
            ContentType=JSON,
            CustomAttributes=f"dialect={spoken.dialect}",
            Body=json.dumps(body),
            **({"Accept": spoken.accept} if spoken.accept else {}),
        )

    def direct(self, spoken: Spoken, body: Body) -> httpx.Response:
        """What the host itself answers."""
        headers = {
            "content-type": JSON,
            "X-Amzn-SageMaker-Custom-Attributes": f"dialect={spoken.dialect}",
            "accept": spoken.accept or "*/*",
        }
        return httpx.post(self._url, content=json.dumps(body), headers=headers, timeout=120, verify=False)


@pytest.fixture
def endpoint(hosts: HostPool) -> Iterator[Endpoint]:
    host = hosts.get("rolling")
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


@pytest.mark.parametrize("spoken", SERVED)
def test_a_whole_answer_is_the_hosts(endpoint: Endpoint, spoken: Spoken) -> None:
    answer = endpoint.invoke(spoken, spoken.whole)
    with answer["Body"] as body:
        given = json.load(body)
    direct = endpoint.direct(spoken, spoken.whole)
    assert direct.status_code == 200
    assert answer["ContentType"].partition(";")[0] == spoken.kinds[0]
    assert spoken.text(given) == ASKED.answer
    assert same(given, direct.json())


@pytest.mark.parametrize("spoken", SERVED)
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


@pytest.mark.parametrize("spoken", [one for one in SERVED if one.values[0].status != 200])
def test_a_refusal_is_a_model_error(endpoint: Endpoint, spoken: Spoken) -> None:
    for stream in (False, True):
        body = {**spoken.bad, "stream": stream}
        with pytest.raises(endpoint.client.exceptions.ModelError) as caught:
            endpoint.invoke(spoken, body, stream=stream)
        told = caught.value.response
        direct = endpoint.direct(spoken, body)
        assert told["OriginalStatusCode"] == direct.status_code == spoken.status
        given = told["OriginalMessage"]
        assert given == direct.text or same(json.loads(given), direct.json())
        assert "temperature" in given

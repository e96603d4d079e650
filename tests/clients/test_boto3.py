"""boto3's `sagemaker-runtime` client, in every dialect, on a rolling batch: through a bridge, which is the service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from ..kit.answers.spoken import ASKED, JSON, SPOKEN, Body, Spoken, records
from ..kit.api.dialects import GENERATING
from ..kit.clients.bridge import Bridge, runtime, serving
from ..kit.hosts.pool import HostPool


def test_every_dialect_is_spoken() -> None:
    assert {spoken.dialect for spoken in SPOKEN.values()} == {known.name for known in GENERATING}


class Endpoint:
    """A host as an endpoint of SageMaker."""

    def __init__(self, bridge: Bridge, client: Any) -> None:
        self.bridge = bridge
        self.client = client

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


@pytest.fixture
def endpoint(hosts: HostPool) -> Iterator[Endpoint]:
    bridge = Bridge(hosts.get("rolling").url, seed=3)
    with serving(bridge.app) as url, closing(runtime(url)) as client:
        yield Endpoint(bridge, client)


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream that was cut anywhere: as docs/clients.md tells callers to read it."""
    rest = b""
    for part in parts:
        *complete, rest = (rest + part).split(b"\n")
        yield from complete
    assert rest == b"", "the stream does not end with a newline"


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.parametrize("spoken", [pytest.param(one, id=name) for name, one in SPOKEN.items()])
def test_a_call(endpoint: Endpoint, spoken: Spoken) -> None:
    """Whole; as a stream that is cut anywhere, and put together again; refused, which is a model error."""
    answer = endpoint.invoke(spoken, spoken.whole)
    with answer["Body"] as body:
        given = body.read()
    assert given == endpoint.bridge.sent
    assert answer["ContentType"].partition(";")[0] == spoken.kinds[0]
    assert spoken.text(json.loads(given)) == ASKED.answer

    answer = endpoint.invoke(spoken, spoken.stream, stream=True)
    with closing(answer["Body"]) as events:
        parts = [event["PayloadPart"]["Bytes"] for event in events]
    assert b"".join(parts) == endpoint.bridge.sent
    assert any(0x80 <= part[0] < 0xC0 for part in parts), "no part begins inside a character"
    assert answer["ContentType"].partition(";")[0] == spoken.kinds[1]
    told = records(spoken, lines(parts))
    assert len(told) > 10
    assert "".join(map(spoken.piece, told)) == ASKED.answer

    for stream in (False, True):
        if (spoken.status, stream) == (200, True):
            # Of a stream of events that a browser reads, the status is 200 whatever happens.
            continue
        with pytest.raises(endpoint.client.exceptions.ModelError) as caught:
            endpoint.invoke(spoken, {**spoken.bad, "stream": stream}, stream=stream)
        error = caught.value.response
        assert error["OriginalMessage"] == endpoint.bridge.sent.decode()
        assert "temperature" in error["OriginalMessage"]
        assert spoken.status in (200, error["OriginalStatusCode"])

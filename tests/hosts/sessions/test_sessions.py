"""Sessions and CANCEL behind each host: made, used, closed, by HTTP and by boto3; a worker's death. The engine is a
parrot, for none of this is its doing.
"""

from __future__ import annotations

import calendar
import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from ...demo.model import question
from ...kit.clients.bridge import Bridge, runtime, serving
from ...kit.hosts.host import Host, model_directory, running

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

HEADER = "X-Amzn-SageMaker-Session-Id"
NEW_HEADER = "X-Amzn-SageMaker-New-Session-Id"
CLOSED_HEADER = "X-Amzn-SageMaker-Closed-Session-Id"
NEW = {"requestType": "NEW_SESSION"}
CLOSE = {"requestType": "CLOSE"}
ASKED = question("plain")
HELLO = {"inputs": ASKED.prompt}
CHAT = {"messages": [{"role": "user", "content": ASKED.prompt}]}
ENDLESS = {"inputs": question("endless").prompt, "parameters": {"max_new_tokens": 1500}, "stream": True}


@dataclass
class Place:
    host: Host
    sessions: Path

    def post(self, body: object, session: str | None = None, **headers: str) -> httpx.Response:
        given = headers if session is None else {HEADER: session, **headers}
        return httpx.post(f"{self.host.url}/invocations", json=body, headers=given, timeout=60)

    def new(self) -> str:
        answer = self.post(NEW)
        assert answer.status_code == 200, answer.text
        return answer.headers[HEADER].partition(";")[0]

    @property
    def ids(self) -> set[str]:
        return {path.name for path in self.sessions.iterdir() if path.is_dir()}


def said(body: Any) -> str:
    """The text of an answer in LMI's dialect, or in that of dynamic batches, a list."""
    text: str = (body[0] if isinstance(body, list) else body)["generated_text"]
    return text


@pytest.fixture(scope="module", params=["async", "rolling", "server", "dynamic"])
def place(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Each host in turn; dynamic batches have two workers, which share the sessions.

    In async mode DJL replaces a worker that has died.
    """
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    sessions = folder / "sessions"
    more = {"dynamic": {"minWorkers": "2", "maxWorkers": "2"}, "async": {"retry_threshold": "10"}}
    properties = {"option.sessions_path": str(sessions), **more.get(kind, {})}
    directory = model_directory(demo_model, folder / "model", properties)
    with running(kind, directory, folder / "log", parrot=True) as host:
        yield Place(host, sessions)


def test_a_session_is_made_used_and_closed(place: Place) -> None:
    made = place.post(NEW)
    assert made.status_code == 200, made.text
    session = made.headers[HEADER].partition(";")[0]
    assert made.content == f'{{"result": "Session {session} created"}}\n'.encode()
    assert made.headers[HEADER] == made.headers[NEW_HEADER]
    assert session in place.ids
    for header in (HEADER, HEADER.lower(), HEADER.upper()):
        used = place.post(HELLO, **{header: session})
        assert (used.status_code, said(used.json())) == (200, ASKED.answer)
        assert HEADER not in used.headers
    stream = place.post({**CHAT, "stream": True}, session)
    assert stream.text.endswith("data: [DONE]\n\n")
    closed = place.post(CLOSE, session)
    assert (closed.status_code, closed.json()) == (200, {"result": f"Session {session} closed"})
    assert closed.headers[CLOSED_HEADER] == session
    assert session not in place.ids
    again = place.post(CLOSE, session)
    assert (again.status_code, again.json()["error"]) == (
        424,
        f"Failed to close session: session not found: {session}",
    )


def test_a_request_may_make_its_session(place: Place) -> None:
    for body in (HELLO, {**CHAT, "stream": True}):
        answer = place.post(body, "NEW_SESSION")
        assert answer.status_code == 200, answer.text
        assert answer.headers[HEADER] == answer.headers[NEW_HEADER]
        assert answer.headers[HEADER].partition(";")[0] in place.ids
        assert len(answer.text) > len(ASKED.answer)
    refused = place.post({**HELLO, "stream": True}, "abc")
    assert (refused.status_code, refused.json()["code"]) == (424, 424)
    assert refused.json()["error"].startswith("Input parsing failed: session not found: abc")


# In the order of the fixture: pytest puts tests together by the place of a parameter, not by its value.
@pytest.mark.parametrize("place", ["async"], indirect=True)
def test_boto3_reads_what_a_session_is_called(place: Place) -> None:
    bridge = Bridge(place.host.url)
    with serving(bridge.app) as url, closing(runtime(url)) as client:

        def invoke(body: object, session: str) -> tuple[dict[str, Any], Any]:
            """boto3's answer, and the body in it."""
            given = {"EndpointName": "demo", "ContentType": "application/json", "Body": json.dumps(body)}
            answer = client.invoke_endpoint(**given, SessionId=session)
            with answer["Body"] as content:
                return answer, json.load(content)

        made, _ = invoke(NEW, "NEW_SESSION")
        session, _, expires = made["NewSessionId"].partition("; Expires=")
        assert uuid.UUID(session).version == 4
        left = calendar.timegm(time.strptime(expires, "%Y-%m-%dT%H:%M:%SZ")) - time.time()
        assert 1100 < left < 1201
        answer, body = invoke(HELLO, session)
        assert said(body) == ASKED.answer
        assert not {"NewSessionId", "ClosedSessionId"} & answer.keys()
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName="demo", Body=json.dumps({**HELLO, "stream": True}), SessionId=session
        )
        with closing(answer["Body"]) as events:
            assert b"".join(event["PayloadPart"]["Bytes"] for event in events)
        assert invoke(CLOSE, session)[0]["ClosedSessionId"] == session
        assert "; Expires=" in invoke(HELLO, "NEW_SESSION")[0]["NewSessionId"]
        with pytest.raises(client.exceptions.ModelError) as caught:
            invoke(HELLO, session)
        assert caught.value.response["OriginalStatusCode"] == 424


def test_several_at_once(place: Place) -> None:
    made = [place.new() for _ in range(5)]
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda session: place.post(HELLO, session), made * 4))
    assert {answer.status_code for answer in answers} == {200}
    assert {place.post(CLOSE, session).status_code for session in made} == {200}


@pytest.mark.parametrize("place", ["async", "rolling", "server"], indirect=True)
def test_a_request_is_cancelled_by_its_id(place: Place) -> None:
    """In a dynamic batch it waits for its turn: docs/operations.md."""
    mine = f"mine-{uuid.uuid4()}"
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(place.post, ENDLESS, **{"x-request-id": mine})
        cancel = {"requestType": "CANCEL", "request_id": mine}
        deadline = time.monotonic() + 30
        while (done := place.post(cancel)).status_code != 200:
            assert "is running here" in done.json()["error"]
            assert time.monotonic() < deadline
        answer = stream.result(timeout=30)
    assert done.json() == {"result": f"Request {mine} cancelled"}
    assert "the request was cancelled" in answer.text
    assert place.post(cancel).status_code == 424
    assert place.post({**cancel, "request_id": mine[:15]}).status_code == 424
    assert said(place.post(HELLO).json()) == ASKED.answer


@pytest.mark.parametrize("place", ["async"], indirect=True)
def test_a_session_outlives_its_worker(place: Place) -> None:
    """The last one of its host's: DJL starts another worker."""
    session = place.new()
    psutil.Process(place.host.worker_pid).kill()
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = place.post(HELLO, session)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code == 200:
            break
        assert time.monotonic() < deadline, answer and answer.text
        time.sleep(0.2)
    assert said(answer.json()) == ASKED.answer
    assert place.post(CLOSE, session).status_code == 200

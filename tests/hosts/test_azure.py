"""What tells Azure's dialect besides the attribute, and what changes it, on every host: the query and headers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from ..kit.hosts.host import Host

pytestmark = [pytest.mark.engine, pytest.mark.djl]

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
VERSION = {"api-version": "2024-04-01-preview"}
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
AZURE = {ATTRIBUTES: "dialect=azure"}


def post(host: Host, path: str = "/invocations", **sent: Any) -> httpx.Response:
    return httpx.post(f"{host.url}{path}", timeout=120, **sent)


def test_headers_and_attributes(host: Host) -> None:
    """SageMaker hands custom attributes over, but no headers of other names."""
    attributes = {ATTRIBUTES: "dialect=azure;extra-parameters=pass-through"}
    answer = post(host, json={**BODY, "n": 2}, headers=attributes)
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1]
    answer = post(host, json={**BODY, "n": 2}, headers={**AZURE, "Extra-Parameters": "ignore"})
    assert len(answer.json()["choices"]) == 1
    assert post(host, json=BODY, headers={**AZURE, "azureml-model-deployment": "another"}).status_code == 404


@pytest.mark.parametrize("host", ["server", "async"], indirect=True)
def test_the_query(host: Host) -> None:
    for path in ("/invocations", "/predictions/model"):
        assert "stop_reason" not in post(host, path, params=VERSION, json=BODY).json()["choices"][0]
        refused = post(host, path, params={"api-version": "soon"}, json=BODY)
        assert (refused.status_code, refused.headers["x-ms-error-code"]) == (400, "invalid_payload")


@pytest.mark.parametrize("host", ["rolling"], indirect=True)
def test_a_rolling_batch_does_not_see_the_query(host: Host) -> None:
    """Java hands over the body and the properties alone: what tells the dialect is then the body, which is OpenAI's."""
    assert "stop_reason" in post(host, params=VERSION, json=BODY).json()["choices"][0]

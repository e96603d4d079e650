"""How a request names its dialect or its route, on every host alike: by a header of that name too, and never after a
comma.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from ..kit.hosts.host import Host
from ..kit.hosts.pool import EVERY

pytestmark = [
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.contract,
    EVERY,
]

CUSTOM = "X-Amzn-SageMaker-Custom-Attributes"
ASK = [{"role": "user", "content": "Hi"}]


def post(host: Host, body: Mapping[str, object], headers: Mapping[str, str]) -> httpx.Response:
    return httpx.post(f"{host.url}/invocations", json=body, headers=headers, timeout=120)


def test_the_dialect_is_an_attribute_or_a_header(host: Host) -> None:
    """Told by the status of a bad value."""
    for headers, status in (
        ({CUSTOM: "dialect=tgi"}, 422),
        ({CUSTOM.lower(): "trace=abc,def; Dialect = tgi"}, 422),
        ({"Dialect": "tgi"}, 422),
        ({"dialect": "lmi"}, 424),
        ({CUSTOM: "k=v"}, 424),
    ):
        answer = post(host, {"inputs": "Hi", "parameters": {"temperature": -1}}, headers)
        assert answer.status_code == status, headers
        assert "temperature" in answer.text
    answer = post(host, {"messages": ASK}, {CUSTOM: "abc,dialect=minimal"})
    assert answer.status_code == 400
    assert "custom attributes: expected a semicolon before dialect, got a comma" in answer.text


def test_the_route_is_an_attribute_or_a_header(host: Host) -> None:
    asked: list[tuple[dict[str, str], dict[str, object], str]] = [
        ({CUSTOM: "route=/v1/models"}, {}, "data"),
        ({CUSTOM: "trace=a;route=/info?api-version=2024-05-01"}, {}, "model_type"),
        ({"Route": "/info"}, {}, "model_id"),
        ({CUSTOM: "route=/generate"}, {"inputs": "Hi", "stream": True}, "generated_text"),
        ({CUSTOM: "route=/chat/completions;dialect=azure"}, {"messages": ASK, "max_tokens": 2}, "usage"),
    ]
    for headers, body, field in asked:
        answer = post(host, body, headers)
        assert answer.status_code == 200, answer.text
        assert field in answer.json()
    answer = post(host, {"messages": ASK}, {CUSTOM: "route=/v1/nothing"})
    assert (answer.status_code, answer.json()["code"]) == (404, 404)
    assert "expected" in answer.json()["error"]

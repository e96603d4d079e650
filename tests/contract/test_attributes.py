"""How a request names its dialect or its route, on every host alike: by a header of that name too, and never after a
comma.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from ..kit.hosts.host import Host

pytestmark = [
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.contract,
    pytest.mark.parametrize(
        "host",
        [
            "server",
            "rolling",
            pytest.param("async", marks=pytest.mark.once),
            pytest.param("dynamic", marks=pytest.mark.once),
        ],
        indirect=True,
    ),
]

CUSTOM = "X-Amzn-SageMaker-Custom-Attributes"
ASK = [{"role": "user", "content": "Hi"}]


def post(host: Host, body: Mapping[str, object], headers: Mapping[str, str]) -> httpx.Response:
    return httpx.post(f"{host.url}/invocations", json=body, headers=headers, timeout=120)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({CUSTOM: "dialect=tgi"}, 422),
        ({CUSTOM.lower(): "trace=abc,def; Dialect = tgi"}, 422),
        ({"Dialect": "tgi"}, 422),
        ({"dialect": "lmi"}, 424),
        ({CUSTOM: "k=v"}, 424),
    ],
    ids=str,
)
def test_the_dialect_is_an_attribute_or_a_header(host: Host, headers: dict[str, str], status: int) -> None:
    """Told by the status of a bad value."""
    answer = post(host, {"inputs": "Hi", "parameters": {"temperature": -1}}, headers)
    assert answer.status_code == status, answer.text
    assert "temperature" in answer.text


@pytest.mark.parametrize("attributes", ["trace=abc,dialect=minimal", "abc,dialect=minimal"])
def test_a_comma_before_an_attribute_is_refused(host: Host, attributes: str) -> None:
    answer = post(host, {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, {CUSTOM: attributes})
    assert answer.status_code == 400
    assert "custom attributes: expected a semicolon before dialect, got a comma" in answer.text


@pytest.mark.parametrize(
    ("headers", "body", "field"),
    [
        ({CUSTOM: "route=/v1/models"}, {}, "data"),
        ({CUSTOM: "trace=a;route=/info?api-version=2024-05-01"}, {}, "model_type"),
        ({"Route": "/info"}, {}, "model_id"),
        ({CUSTOM: "route=/generate"}, {"inputs": "Hi", "stream": True}, "generated_text"),
        ({CUSTOM: "route=/v1/completions"}, {"prompt": "Hi", "max_tokens": 2}, "choices"),
        ({CUSTOM: "route=/chat/completions;dialect=azure"}, {"messages": ASK, "max_tokens": 2}, "usage"),
    ],
    ids=str,
)
def test_the_route_is_an_attribute_or_a_header(
    host: Host, headers: dict[str, str], body: dict[str, object], field: str
) -> None:
    answer = post(host, body, headers)
    assert answer.status_code == 200, answer.text
    assert field in answer.json()


@pytest.mark.parametrize(
    ("attributes", "status"), [("route=/v1/nothing", 404), ("route=/generate;dialect=openai", 400)], ids=str
)
def test_a_route_that_is_not_there(host: Host, attributes: str, status: int) -> None:
    answer = post(host, {"messages": ASK}, {CUSTOM: attributes})
    assert (answer.status_code, answer.json()["code"]) == (status, status)
    assert "expected" in answer.json()["error"]

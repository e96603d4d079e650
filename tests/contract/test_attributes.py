"""How a request names its dialect, on every host alike: by a header of that name too, and never after a comma."""

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

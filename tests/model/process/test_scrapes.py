"""The engine's own metrics, asked for and told: with an engine that is up, one that has ended, one that is silent."""

from __future__ import annotations

import pytest

from lmi.model.process.scrapes import Scrapes

from ...kit.api.engine import Scrape, Scraped


class Posted:
    """The channel to an engine that is up, or to one that has just ended."""

    def __init__(self, *, gone: bool = False) -> None:
        self.messages: list[object] = []
        self._gone = gone

    def post(self, message: object) -> None:
        if self._gone:
            raise BrokenPipeError
        self.messages.append(message)


def scrapes(channel: Posted | None) -> Scrapes:
    return Scrapes(lambda: channel)  # type: ignore[arg-type,return-value]


def test_it_is_asked_once_for_all_who_wait() -> None:
    channel = Posted()
    one = scrapes(channel)
    first, second, other = one.ask("text/plain"), one.ask("text/plain"), one.ask("application/openmetrics-text")
    assert channel.messages == [Scrape("text/plain"), Scrape("application/openmetrics-text")]
    one.settle(Scraped("text/plain", b"vllm:a 1\n"))
    assert (first.result(0), second.result(0), other.done()) == (b"vllm:a 1\n", b"vllm:a 1\n", False)
    one.ask("text/plain")
    assert len(channel.messages) == 3


@pytest.mark.parametrize("channel", [None, Posted(gone=True)], ids=["down", "just ended"])
def test_an_engine_that_is_not_there_tells_nothing(channel: Posted | None) -> None:
    assert scrapes(channel).ask("text/plain").result(0) == b""


def test_an_engine_that_ends_tells_nothing() -> None:
    one = scrapes(Posted())
    asked = [one.ask("text/plain"), one.ask("application/openmetrics-text")]
    one.fail()
    assert [future.result(0) for future in asked] == [b"", b""]
    # What it sent before is for nobody.
    one.settle(Scraped("text/plain", b"late"))

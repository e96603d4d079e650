"""Reasoning that clients carry without showing it: there and back, and what is none of ours."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.conversation.carried import LIMIT, MARK, carried, uncarried

from ...kit.api.conversation import Builder
from ...kit.rows import each_row

TEXTS = ["", "hm", "Größe 🎈\n\0", "a" * LIMIT]


@each_row("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_there_and_back(text: str) -> None:
    packed = carried(text)
    assert packed.isascii()
    assert packed.startswith(MARK)
    assert uncarried(packed) == text


@given(st.text())
def test_any_text(text: str) -> None:
    assert uncarried(carried(text)) == text


def test_half_a_character_does_not_come_back() -> None:
    """Engines give none, and no message to them could hold it."""
    assert uncarried(carried("a\ud83d")) == "a?"


def packed(data: bytes) -> str:
    return MARK + base64.urlsafe_b64encode(data).decode()


WHOLE = carried("hm" * 100)
OTHERS = {
    "nothing": "",
    "Anthropic's": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds",
    "without the mark": WHOLE.removeprefix(MARK),
    "the mark alone": MARK,
    "of a later form": WHOLE.replace(MARK, "lmi2_"),
    "no base64": MARK + "!?",
    "not ASCII": MARK + "é",
    "cut in the base64": WHOLE[:-3],
    "cut before the checksum": packed(zlib.compress(b"hm" * 100)[:-4]),
    "cut at its half": packed(zlib.compress(b"hm" * 100)[:10]),
    "changed": packed(zlib.compress(b"hm" * 100)[:-1] + b"?"),
    "not packed": packed(b"hm"),
    "no UTF-8": packed(zlib.compress(b"\xff")),
    "half a character": packed(zlib.compress("\ud83d".encode(errors="surrogatepass"))),
    "beyond the limit": packed(zlib.compress(b"a" * (LIMIT + 1))),
}


@each_row("name", OTHERS)
def test_what_is_not_ours_is_nothing(name: str) -> None:
    assert uncarried(OTHERS[name]) == ""


@given(st.text())
def test_nothing_raises(text: str) -> None:
    assert isinstance(uncarried(text), str)
    assert isinstance(uncarried(MARK + text), str)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred kilobytes of it would be a quarter of a gigabyte."""
    import tracemalloc

    bomb = packed(zlib.compress(b"\0" * (1 << 28), 1))
    tracemalloc.start()
    try:
        assert uncarried(bomb) == ""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT


def test_all_that_a_request_carries_is_bounded() -> None:
    """Each is within the limit, and all together are not."""
    block, builder = carried("a" * (LIMIT // 2)), Builder()
    assert [len(builder.uncarried(block)) for _ in range(4)] == [LIMIT // 2, LIMIT // 2, 0, 0]

"""Names and places of adapters: which of them a registration, and which a request may bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.handler.adapters.sources import check_name, folder_of, folder_within

from ...kit.api.errors import AdapterError
from ...kit.rows import each_row


@each_row(
    "name", ["a", "a/b", "org/a.b/c", "a/update", "a b", "a.b", ".a", "...", "Ä-1_2", "a#1", "x" * 256, "\\", "日本"]
)
def test_names_that_may_be_registered(name: str) -> None:
    check_name(name)


@each_row(
    "name",
    ["", ".", "..", "/a", "a/", "a//b", "a/../b", "./a", "/", "../a", "a\n", "a\x00", "a\x1b[1m", "x" * 257, "\udc80"],
)
def test_names_that_may_not(name: str) -> None:
    with pytest.raises(
        AdapterError,
        match=r"name: expected 1 to 256 characters that print, with no part between / that is empty, \. or \.\., got",
    ):
        check_name(name)


def test_a_place_is_a_local_folder_as_a_path_or_as_a_url(tmp_path: Path) -> None:
    folder = tmp_path / "an adapter"
    folder.mkdir()
    path = str(folder)
    for source in (path, f"{path}/", f"file:{path}", f"file://{path}", f"file://{path.replace(' ', '%20')}/"):
        assert folder_of(source) == path


@each_row(
    "source",
    [
        "",
        "adapter",
        "./adapter",
        "/of/which/nobody/knows",
        "s3://bucket/adapter",
        "https://example.com/adapter",
        "owner/adapter-on-the-hub",
        "file:adapter",
        "file:",
        "file://[::1",
        "/x" * 5000,
        "/" + "x" * 300,
        "/a\x00b",
        "~",
    ],
)
def test_no_other_place_is_one(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative one neither: vLLM would take it for a name on the hub."""
    tmp_path.joinpath("adapter").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AdapterError) as refused:
        folder_of(source)
    shown = " ".join(source.replace("\x00", "\\x00").split())
    assert refused.value.message == " ".join(
        f"Only local LoRA models are supported. {shown} is not a valid path".split()
    )


def test_a_file_is_no_place(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("")
    with pytest.raises(AdapterError, match="is not a valid path"):
        folder_of(str(tmp_path / "file"))


def test_a_requests_name_means_a_folder_right_there(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for path in (cache / "a", cache / "a" / "b", cache / ".hidden", cache / "ä", tmp_path / "outside"):
        path.mkdir(parents=True)
    cache.joinpath("file").write_text("")
    assert folder_within(str(cache), "a") == cache / "a"
    assert folder_within(str(cache), "ä") == cache / "ä"
    for name in (
        "", ".", "..", "../outside", "../cache/a", "a/b", "/", "a/", str(tmp_path / "outside"), ".hidden", "a\\b",
        "a\x00", "file", "nothing", "x" * 255, "x" * 300, "ä" * 200, "\udc80",
    ):  # fmt: skip
        assert folder_within(str(cache), name) is None, name


def test_where_nobody_may_look_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(*given: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    tmp_path.joinpath("a").mkdir()
    monkeypatch.setattr(Path, "stat", stat)
    assert folder_within(str(tmp_path), "a") is None
    with pytest.raises(AdapterError, match="is not a valid path"):
        folder_of(str(tmp_path / "a"))

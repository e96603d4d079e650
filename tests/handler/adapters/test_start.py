"""The adapters that are there when a server starts: of the folder, and of the file of the last time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.engine import Adapter
from ...kit.api.errors import AdapterError, ModelNotFoundError, OptionError
from ...kit.registered import llama_dir, registered
from ...kit.user_code.modules import modules_in


def in_folder(tmp_path: Path, name: str, **how: Any) -> str:
    """The path of an adapter in the model directory."""
    return str(write_adapter(llama_dir(tmp_path / "model") / "adapters" / name, LLAMA, **how))


def test_those_of_the_folder_are_there_when_the_engine_starts(tmp_path: Path) -> None:
    paths = {name: in_folder(tmp_path, name) for name in ("a", "b")}
    (tmp_path / "model" / "adapters" / ".cache").mkdir()
    with registered(tmp_path) as server:

        def meanwhile() -> None:
            assert [*server.told.registered.values()] == [Adapter("a", 1, paths["a"]), Adapter("b", 2, paths["b"])]

        server.begin(meanwhile)
        assert server.names == ["a", "b"]
        assert server.registry.key("b") == "b#2"
        with pytest.raises(ModelNotFoundError, match=r"adapters: adapter '.cache' is not registered"):
            server.registry.key(".cache")
        # Nothing of these is for the file: the folder has them.
        assert not (server.model / ".lmi").exists()


def test_a_model_directory_without_the_folder_has_none(tmp_path: Path) -> None:
    with registered(tmp_path) as server:
        assert server.begin().names == []
        assert not server.registry.has_code


def test_everything_that_is_broken_is_said_at_once(tmp_path: Path) -> None:
    in_folder(tmp_path, "good")
    in_folder(tmp_path, "coded")
    folder = tmp_path / "model" / "adapters"
    folder.joinpath("coded", "model.py").write_text("1 / 0")
    in_folder(tmp_path, "unfinished")
    folder.joinpath("unfinished", "adapter_model.safetensors").unlink()
    folder.joinpath("file.txt").write_text("")
    folder.joinpath("two\nlines").mkdir()
    with registered(tmp_path) as server:
        with pytest.raises(OptionError) as refused:
            server.begin()
        message = refused.value.message
        assert message.startswith("4 adapters cannot be served: (1) adapters/")
        assert "adapters/coded: Failed to load custom code for adapter coded: ZeroDivisionError" in message
        assert "adapters/file.txt: " in message
        assert "adapters/unfinished: " in message
        assert "adapters/two lines: its name has characters that do not print" in message
        assert "good" not in message


def test_where_a_rank_is_too_high_the_least_that_holds_all_is_named(tmp_path: Path) -> None:
    in_folder(tmp_path, "a", rank=8)
    in_folder(tmp_path, "b", rank=20)
    with registered(tmp_path, max_lora_rank="16") as server, pytest.raises(OptionError) as refused:
        server.begin()
    assert refused.value.message.endswith("option.max_lora_rank=32 would hold all adapters that were found")


def test_with_a_warning_the_others_are_served_and_requests_for_a_broken_one_are_told_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_folder(tmp_path, "good")
    in_folder(tmp_path, "bad", use_dora=True)
    with registered(tmp_path, adapters_on_error="warn") as server:
        server.begin()
        assert server.names == ["good"]
        assert [one.name for one in server.told.added] == ["good"]
        with pytest.raises(AdapterError, match=r"^adapter bad could not be loaded: .*use_dora"):
            server.registry.key("bad")
        assert server.registry.knows("bad")
        assert "adapter bad (" in caplog.text


def test_that_of_images_is_registered_as_the_others_are(tmp_path: Path) -> None:
    for_images = write_adapter(tmp_path / "for images", LLAMA)
    in_folder(tmp_path, "a")
    with registered(tmp_path, default_mm_loras=json.dumps({"image": str(for_images)})) as server:
        server.begin()
        assert server.names == ["a", "image"]
        assert server.registry.key(server.registry.for_images) == "image#2"
    with registered(tmp_path) as server:
        assert server.begin().registry.for_images == ""
    with registered(tmp_path, default_mm_loras='{"image": "nowhere"}') as server:
        with pytest.raises(OptionError) as refused:
            server.begin()
        assert refused.value.message.startswith(f"{server.model / 'nowhere'}: ")


@pytest.mark.parametrize("on_error", ["fail", "warn"])
def test_what_only_the_engine_finds_broken_is_treated_alike(tmp_path: Path, on_error: str) -> None:
    for name in ("a", "b", "c"):
        in_folder(tmp_path, name)
    with registered(tmp_path, adapters_on_error=on_error) as server:

        def meanwhile() -> None:
            server.told.faults = {"a#1": AdapterError("it does not fit"), "c#3": AdapterError("neither does this")}

        if on_error == "fail":
            with pytest.raises(OptionError) as refused:
                server.begin(meanwhile)
            assert refused.value.message == (
                "2 adapters cannot be served: (1) adapters/a: it does not fit; (2) adapters/c: neither does this"
            )
            return
        server.begin(meanwhile)
        assert server.names == ["b"]
        # A rebuilt engine is not to try them again.
        assert [*server.told.registered] == ["b#2"]
        with pytest.raises(AdapterError, match=r"^adapter a could not be loaded: it does not fit$"):
            server.registry.key("a")


def test_what_an_api_has_registered_is_there_at_the_next_start(tmp_path: Path) -> None:
    with registered(tmp_path) as server:
        server.begin()
        server.register("a")
        server.register("b", alias="beta", pin=True)
        server.register("c", preload=False)
        server.register("gone")
        server.registry.unregister("gone")
        server.registry.update("c", pin=True)
    with registered(tmp_path) as server:
        places = {name: server.adapter(name) for name in "abc"}
        server.begin()
        assert server.names == ["a", "b", "c"]
        assert [*server.told.registered.values()] == [
            Adapter("a", 1, places["a"]),
            Adapter("b", 2, places["b"], preload=True, pin=True),
            Adapter("c", 3, places["c"], preload=True, pin=True),
        ]
        assert server.registry.key("beta") == "b#2"
        # Java registers it again: nothing is to be done for it.
        server.register("a")
        assert len(server.told.added) == 3
        server.registry.unregister("b")
    with registered(tmp_path) as server:
        assert server.begin().names == ["a", "c"]


def test_one_whose_folder_is_gone_keeps_no_server_from_starting_and_tells_its_requests(tmp_path: Path) -> None:
    with registered(tmp_path) as server:
        server.begin()
        place = server.adapter("a")
        server.register("a")
        server.register("b")
    moved = Path(place).rename(tmp_path / "moved")
    with registered(tmp_path) as server:
        server.begin()
        assert server.names == ["b"]
        with pytest.raises(AdapterError, match=r"^adapter a could not be loaded: .*") as refused:
            server.registry.key("a")
        assert place in refused.value.message
    # It has not been forgotten.
    moved.rename(place)
    with registered(tmp_path) as server:
        assert server.begin().names == ["a", "b"]


def test_one_that_the_engine_cannot_load_any_more_keeps_no_server_from_starting(tmp_path: Path) -> None:
    with registered(tmp_path) as server:
        server.begin()
        server.register("a")
    with registered(tmp_path) as server:
        server.begin(lambda: server.told.faults.update({"a#1": AdapterError("no room")}))
        with pytest.raises(AdapterError, match=r"^adapter a could not be loaded: no room$"):
            server.registry.key("a")


def test_the_folder_goes_before_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with registered(tmp_path) as server:
        server.begin()
        elsewhere = server.adapter("a")
        server.register("a")
    path = in_folder(tmp_path, "a", seed=1)
    with registered(tmp_path) as server:
        server.begin()
        assert [one.path for one in server.told.added] == [path]
        assert f"adapter a: the one in the folder adapters is served, not {elsewhere}" in caplog.messages


def test_a_file_that_cannot_be_read_is_no_reason_not_to_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with registered(tmp_path, adapters_registry="mine.json") as server:
        (server.model / "mine.json").write_text("{")
        server.begin()
        assert "mine.json cannot be read and is begun anew" in caplog.text
        server.register("a")
        assert [*json.loads((server.model / "mine.json").read_text())] == ["a"]


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    with registered(tmp_path, adapters_registry="none") as server:
        server.begin()
        server.register("a")
        assert [path.name for path in server.model.iterdir()] == ["config.json"]
    with registered(tmp_path, adapters_registry="none") as server:
        assert server.begin().names == []


def test_the_code_of_what_fails_is_forgotten(tmp_path: Path) -> None:
    path = Path(in_folder(tmp_path, "a"))
    path.joinpath("model.py").write_text("def output(text):\n    return text\noutput.is_output_formatter = True\n")
    with registered(tmp_path, adapters_on_error="warn") as server:
        server.begin(lambda: server.told.faults.update({"a#1": AdapterError("it does not fit")}))
        assert modules_in(tmp_path) == set()
        assert not server.registry.has_code

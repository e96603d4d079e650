"""What DJL Serving says of adapters, and what it is answered: without DJL."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from lmi.handler.djl import adapters
from lmi.handler.djl.adapters import AdapterCall

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.errors import NoSlotError, UnavailableError
from ...kit.api.handler import Service, started_service
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine

REGISTER, UPDATE, UNREGISTER = "register_adapter", "update_adapter", "unregister_adapter"


class Java:
    """Says things of adapters, one after the other."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.engine = ScriptedEngine()
        self.options = {"enable_lora": "true", "adapters_registry": "none", **options}
        self._service: Service | None = None

    @property
    def service(self) -> Service:
        if self._service is None:
            self._service = started_service(self.engine, self.folder, **self.options)
        return self._service

    def says(
        self,
        function: str,
        name: str,
        source: str = "",
        *,
        patient: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        call = AdapterCall(function, name, source=source, options=options or {})
        registry = self.service.adapters
        entered = adapters.enter(registry, call)
        if isinstance(entered, tuple):
            return entered
        assert registry is not None
        return adapters.answer(registry, call, entered, patient=patient)


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return Java(tmp_path)


def adapter(java: Java, name: str = "a", rank: int = 8) -> str:
    return str(write_adapter(java.folder / "elsewhere" / name, LLAMA, rank=rank))


def test_it_is_answered_in_djl_pythons_words(java: Java) -> None:
    source = adapter(java)
    assert java.says(REGISTER, "a", source) == (200, "Adapter a registered")
    assert java.says(UPDATE, "a", source, options={"pin": "true"}) == (200, "Adapter a updated")
    assert [one.pin for one in java.engine.adapters.registered.values()] == [True]
    assert java.says(UNREGISTER, "a") == (200, "Adapter a unregistered")
    assert java.engine.adapters.registered == {}


def test_messages_name_the_alias(java: Java) -> None:
    call = AdapterCall(REGISTER, "a", "poet", adapter(java))
    registry = java.service.adapters
    assert registry is not None
    entered = adapters.enter(registry, call)
    assert not isinstance(entered, tuple)
    assert adapters.answer(registry, call, entered) == (200, "Adapter poet registered")


@pytest.mark.parametrize(
    ("options", "preload", "pin"),
    [({}, True, False), ({"preload": "false"}, False, False), ({"preload": "True", "pin": "TRUE"}, True, True)],
)
def test_the_parameters_are_texts(java: Java, options: dict[str, str], preload: bool, pin: bool) -> None:
    java.says(REGISTER, "a", adapter(java), options=options)
    (registered,) = java.engine.adapters.registered.values()
    assert (registered.preload, registered.pin) == (preload, pin)


@each_row(
    ("options", "message"),
    [
        ({"preload": "perhaps"}, "preload: expected true or false, got 'perhaps'"),
        ({"preload": "false", "pin": "true"}, "Can not set preload to false and pin to true"),
    ],
)
def test_wrong_ones_are_refused(java: Java, options: dict[str, str], message: str) -> None:
    assert java.says(REGISTER, "a", adapter(java), options=options) == (424, message)
    assert java.engine.adapters.registered == {}


@each_row("source", ["/nowhere", "s3://bucket/a", "a", ""])
def test_a_source_has_to_be_a_folder_here(java: Java, source: str) -> None:
    message = f"Only local LoRA models are supported. {source} is not a valid path"
    assert java.says(REGISTER, "a", source) == (424, message.rstrip() if source else message.replace("  ", " "))


def test_unknown_ones_are_refused(java: Java) -> None:
    assert java.says(UPDATE, "a") == (424, "Adapter a not registered.")
    assert java.says(UNREGISTER, "a") == (424, "Adapter a not registered.")


def test_too_many_pins_are_djls_code_for_memory(java: Java) -> None:
    java.engine.adapters.errors["a"] = NoSlotError("3 adapters are pinned")
    assert java.says(REGISTER, "a", adapter(java), options={"pin": "true"}) == (507, "3 adapters are pinned")


def test_without_the_option_it_is_said(tmp_path: Path) -> None:
    java = Java(tmp_path, enable_lora="false")
    assert java.says(REGISTER, "a", adapter(java)) == (424, "LoRA is not enabled (option.enable_lora)")


def test_what_lies_in_the_folder_is_there_when_it_is_registered(java: Java) -> None:
    """Java registers each entry of the folder when a worker has started, hidden files too."""
    source = str(write_adapter(java.folder / "adapters" / "a", LLAMA))
    (java.folder / "adapters" / ".DS_Store").write_text("")
    before = dict(java.service.engine.adapters.registered)  # type: ignore[attr-defined]
    assert java.says(REGISTER, "a", source) == (200, "Adapter a registered")
    assert java.says(REGISTER, ".DS_Store", f"{source}/../.DS_Store")[0] == 200
    assert java.engine.adapters.registered == before


def test_a_broken_one_in_the_folder_does_not_end_the_worker(tmp_path: Path) -> None:
    """Java ends a worker for a code of 300 and more; it was told at the start, by option.adapters_on_error."""
    java = Java(tmp_path, adapters_on_error="warn")
    (tmp_path / "adapters" / "a").mkdir(parents=True)
    (tmp_path / "adapters" / "readme").write_text("no folder")
    for name in ("a", "readme"):
        code, message = java.says(REGISTER, name, str(tmp_path / "adapters" / name))
        assert code == 200
        assert message.startswith(f"Adapter {name} could not be loaded: ")


def test_a_broken_one_elsewhere_is_told_with_its_cause(java: Java) -> None:
    code, message = java.says(REGISTER, "a", adapter(java, rank=17))
    assert (code, message) == (424, "adapter_config.json: rank 17 is above option.max_lora_rank=16")


def test_where_java_cannot_ask_again_an_engine_is_waited_for(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """In async mode it has said already that all is well."""
    asked: list[str] = []

    def add(added: object) -> Future[None]:
        asked.append("")
        future = Future[None]()
        if len(asked) == 1:
            future.set_exception(UnavailableError("the engine is being rebuilt"))
        else:
            future.set_result(None)
        return future

    source = adapter(java)
    assert java.service.healthy
    monkeypatch.setattr(java.engine.adapters, "add", add)
    assert java.says(REGISTER, "a", source, patient=True) == (200, "Adapter a registered")
    assert len(asked) == 2
    asked.clear()
    assert java.says(REGISTER, "b", adapter(java, "b")) == (424, "the engine is being rebuilt")


def test_one_that_ends_the_engine_is_not_tried_for_ever(java: Java) -> None:
    java.engine.adapters.errors["a"] = UnavailableError("the engine's process ended")
    assert java.says(REGISTER, "a", adapter(java), patient=True) == (424, "the engine's process ended")

"""Registered adapters, from the first word of one to its end, with an engine that says what a test tells it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.handler.adapters.registry import Registry

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.engine import Adapter
from ...kit.api.errors import AdapterError, LmiError, ModelNotFoundError, NoSlotError, UnavailableError
from ...kit.registered import Entry, NotReadyError, Registered, llama_dir, registered
from ...kit.rows import each_row
from ...kit.user_code.modules import modules_in
from ...kit.waiting import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Registered]:
    with registered(tmp_path) as server:
        yield server.begin()


class Held:
    """The engine keeps all that is registered waiting, until it is told what to say."""

    def __init__(self, server: Registered) -> None:
        self._told = server.told
        self._future = self._told.held = Future()

    def say(self, error: LmiError | None = None) -> None:
        self._told.held = None
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)


class Beside:
    """A call on another thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self._raised = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def outcome(self) -> str:
        """ "" or what it raised, in the end."""
        self._thread.join(30)
        assert not self.running
        return "" if self._raised is None else str(self._raised)


def ready(registry: Registry, name: str) -> str:
    """Its key, once it is loaded."""
    while True:
        with contextlib.suppress(NotReadyError):
            return registry.key(name)
        time.sleep(0.001)


def test_what_is_registered_can_be_named_by_name_and_by_alias(server: Registered) -> None:
    assert not server.registry.knows("a")
    entry = server.register("a", alias="alias of a")
    assert entry.adapter == Adapter("a", 1, server.adapter("a"))
    assert [*server.told.registered.values()] == [entry.adapter]
    for name in ("a", "alias of a"):
        assert server.registry.knows(name)
        assert server.registry.key(name) == "a#1"
    assert server.names == ["a"]
    assert (entry.shown, entry.requests) == ("alias of a", 2)


def test_an_unknown_one_is_not_found_and_no_other_is_named(server: Registered) -> None:
    server.register("somebody elses", alias="their alias")
    for name in ("a", "", "a" * 1000, "somebody", "../somebody elses"):
        with pytest.raises(ModelNotFoundError) as refused:
            server.registry.key(name)
        assert refused.value.message == f"adapters: adapter {name[:64]!r} is not registered"
        assert not server.registry.knows(name)


def test_a_file_url_is_a_path(server: Registered) -> None:
    path = server.adapter("a")
    assert server.register("a", f"file://{path}").adapter.path == path


def test_a_name_or_a_place_that_cannot_be_is_refused(server: Registered) -> None:
    with pytest.raises(AdapterError, match="name: expected 1 to 256 characters"):
        server.registry.enter("a//b", server.adapter("a"))
    with pytest.raises(AdapterError, match=r"Only local LoRA models are supported. s3://b/a is not a valid path"):
        server.registry.enter("a", "s3://b/a")
    with pytest.raises(AdapterError, match=r"^Can not set preload to false and pin to true$"):
        server.registry.enter("a", server.adapter("a"), preload=False, pin=True)
    assert server.registry.registered() == []
    assert server.told.added == []


def test_requests_wait_while_one_is_loaded(server: Registered) -> None:
    held = Held(server)
    entry = server.registry.enter("a", server.adapter("a"), alias="alias")
    # From the first word on, before anybody has begun to load it.
    with pytest.raises(NotReadyError) as early:
        server.registry.key("a")
    loading = Beside(lambda: server.registry.load(entry))
    until(lambda: server.told.added)
    with pytest.raises(NotReadyError) as late:
        server.registry.code("alias")
    assert server.registry.knows("a")
    assert not early.value.ready.done()
    held.say()
    assert loading.outcome() == ""
    for waited in (early, late):
        assert waited.value.ready.result(0) is None
    assert server.registry.key("a") == "a#1"


def test_one_that_fails_tells_its_requests_why_until_it_is_registered_again(
    server: Registered, caplog: pytest.LogCaptureFixture
) -> None:
    error = NoSlotError("no slot")
    server.told.errors["a"] = error
    with pytest.raises(type(error), match=error.message):
        server.register("a")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert server.names == []
    for _ in range(2):
        with pytest.raises(AdapterError, match=rf"^adapter a could not be loaded: {error.message}$"):
            server.registry.key("a")
    server.told.errors.clear()
    server.register("a")
    # Under another number: nobody knows what the engine has of the first.
    assert server.registry.key("a") == "a#2"


def test_files_are_checked_before_the_engine_hears_of_them(server: Registered) -> None:
    source = Path(server.adapter("a", use_dora=True))
    with pytest.raises(AdapterError, match="use_dora"):
        server.register("a", str(source))
    assert server.told.added == []
    write_adapter(source, LLAMA)
    server.register("a", str(source))
    assert server.names == ["a"]


def test_what_nobody_expected_is_its_cause_too(server: Registered) -> None:
    """Else its requests would wait for ever."""

    def add(adapter: Adapter) -> Future[None]:
        raise MemoryError("of the engine's")

    server.told.add = add  # type: ignore[method-assign]
    with pytest.raises(AdapterError, match=r"^MemoryError: of the engine's$"):
        server.register("a")
    with pytest.raises(AdapterError, match=r"^adapter a could not be loaded: MemoryError: of the engine's$"):
        server.registry.key("a")


def test_the_same_name_and_place_again_is_nothing_new(server: Registered, tmp_path: Path) -> None:
    entry = server.register("a")
    assert server.register("a", server.adapter("a") + "/") is entry
    tmp_path.joinpath("link").symlink_to(server.adapter("a"))
    assert server.register("a", str(tmp_path / "link")) is entry
    assert len(server.told.added) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_two_that_register_the_same_at_once_get_one(server: Registered, fails: bool) -> None:
    """Java and a client, or a client that has lost patience: both are answered when it is loaded, or why it is not."""
    held = Held(server)
    path = server.adapter("a")
    calls = [Beside(lambda: server.register("a", path)) for _ in range(4)]
    until(lambda: server.told.added)
    time.sleep(0.05)
    assert all(call.running for call in calls)
    held.say(AdapterError("it does not fit") if fails else None)
    assert [call.outcome() for call in calls] == ["it does not fit" if fails else ""] * 4
    assert [one.key for one in server.told.added] == ["a#1"]


def test_another_place_under_the_same_name_is_refused(server: Registered) -> None:
    there = server.register("a").adapter.path
    other = server.adapter("b")
    with pytest.raises(AdapterError, match=rf"^Adapter a is registered already, from {there}$") as refused:
        server.registry.enter("a", other)
    assert refused.value.status == 409
    assert server.registry.key("a") == "a#1"


def test_one_that_has_failed_makes_way_for_another_place(server: Registered) -> None:
    server.told.errors["a"] = AdapterError("it does not fit")
    with pytest.raises(AdapterError):
        server.register("a", alias="old")
    server.told.errors.clear()
    other = server.adapter("b")
    server.register("a", other)
    assert [one.path for one in server.told.registered.values()] == [other]
    assert not server.registry.knows("old")


def test_one_that_is_unregistered_is_taken_from_the_engine_and_from_requests(server: Registered) -> None:
    entry = server.register("a", alias="alias")
    server.register("b")
    assert server.registry.unregister("a") is entry
    assert server.told.removed == ["a#1"]
    for name in ("a", "alias"):
        with pytest.raises(ModelNotFoundError):
            server.registry.key(name)
    for call in (server.registry.unregister, server.registry.update):
        with pytest.raises(AdapterError, match=r"^Adapter a not registered\.$") as refused:
            call("a")
        assert refused.value.status == 404
    assert server.names == ["b"]
    server.register("a")
    assert server.registry.key("a") == "a#3"


def test_one_that_has_failed_can_be_unregistered_but_not_updated(server: Registered) -> None:
    server.told.errors["a"] = AdapterError("it does not fit")
    with pytest.raises(AdapterError):
        server.register("a")
    with pytest.raises(AdapterError, match=r"^Adapter a not registered\.$"):
        server.registry.update("a", pin=True)
    server.registry.unregister("a")
    with pytest.raises(ModelNotFoundError):
        server.registry.key("a")
    # The engine never had it.
    assert server.told.removed == []


def test_one_of_the_folder_can_be_unregistered_until_the_next_start(tmp_path: Path) -> None:
    path = str(write_adapter(llama_dir(tmp_path / "model") / "adapters" / "a", LLAMA))
    with registered(tmp_path) as server:
        server.begin()
        # As DJL Serving does at its start.
        server.register("a", path)
        server.registry.unregister("a")
        assert server.names == []
    with registered(tmp_path) as server:
        assert server.begin().names == ["a"]


def test_the_model_directory_may_be_known_by_another_way(tmp_path: Path) -> None:
    write_adapter(llama_dir(tmp_path / "model") / "adapters" / "a", LLAMA)
    tmp_path.joinpath("link").symlink_to(tmp_path / "model")
    with registered(tmp_path) as server:
        entry = server.begin().registry.entry("a")
        assert server.register("a", str(tmp_path / "link" / "adapters" / "a")) is entry
        with pytest.raises(AdapterError, match="is not a valid path"):
            server.registry.enter("a", "/a\x00b")


def test_unregistered_while_it_is_loaded(server: Registered, tmp_path: Path) -> None:
    held = Held(server)
    path = server.adapter("a")
    Path(path, "model.py").write_text("GLOBAL = 1")
    loading = Beside(lambda: server.register("a", path))
    until(lambda: server.told.added)
    with pytest.raises(NotReadyError) as waiting:
        server.registry.key("a")
    server.registry.unregister("a")
    with pytest.raises(ModelNotFoundError):
        server.registry.key("a")
    held.say()
    loading.outcome()
    # Those that wait look again, and do not find it.
    assert waiting.value.ready.done()
    assert server.told.removed[-1] == "a#1"
    assert server.told.registered == {}
    assert modules_in(tmp_path) == set()
    assert not server.registry.has_code
    assert not (server.model / ".lmi" / "adapters.json").exists() or "a" not in kept(server)


def test_unregistered_before_the_engine_has_heard_of_it(server: Registered, tmp_path: Path) -> None:
    path = server.adapter("a")
    flag = tmp_path / "flag"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(flag)!r}).exists(): time.sleep(0.001)"
    Path(path, "model.py").write_text(code)
    loading = Beside(lambda: server.register("a", path))
    until(lambda: server.registry.knows("a"))
    server.registry.unregister("a")
    flag.touch()
    loading.outcome()
    assert server.told.registered == {}
    assert modules_in(tmp_path) == set()
    assert not server.registry.has_code


def test_what_is_unregistered_while_it_is_written_down_is_not_kept(
    server: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, removals = server.registry._store, list[Beside]()
    put = store.put

    def slowly(name: str, kept: Any) -> None:
        if kept is not None:
            removals.append(Beside(lambda: server.registry.unregister("a")))
            until(lambda: not server.registry.knows("a"))
            time.sleep(0.05)
        put(name, kept)

    monkeypatch.setattr(store, "put", slowly)
    server.register("a")
    assert [one.outcome() for one in removals] == [""]
    assert kept(server) == "{}\n"


def test_what_is_registered_anew_while_the_old_is_struck_out_is_kept(
    server: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.register("a")
    drop = server.registry._drop

    def and_anew(entry: Entry) -> None:
        drop(entry)
        monkeypatch.undo()
        server.register("a")

    monkeypatch.setattr(server.registry, "_drop", and_anew)
    server.registry.unregister("a")
    assert '"a"' in kept(server)


def kept(server: Registered) -> str:
    return (server.model / ".lmi" / "adapters.json").read_text()


def test_updates(server: Registered) -> None:
    server.register("a", preload=False)
    assert server.registry.update("a").adapter.preload is False
    assert len(server.told.added) == 1
    assert server.registry.update("a", server.adapter("a"), preload=True).adapter.preload is True
    assert server.registry.update("a", pin=True).adapter == Adapter("a", 1, server.adapter("a"), preload=True, pin=True)
    assert [*server.told.registered.values()] == [server.registry.entry("a").adapter]
    assert '"pin": true' in kept(server)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"source": server.adapter("b")}, "Updating adapter path is not supported."),
        ({"source": "/nowhere"}, "Only local LoRA models are supported. /nowhere is not a valid path"),
        ({"pin": False}, "Unpinning adapter is not supported. Unregister the adapter and register it anew"),
        ({"preload": False}, "Can not set preload to false and pin to true"),
    ]
    for given, message in refusals:
        with pytest.raises(AdapterError) as refused:
            server.registry.update("a", **given)
        assert refused.value.message == message
    assert len(server.told.added) == 3


def test_a_pin_that_is_refused_leaves_the_adapter_as_it_was(server: Registered) -> None:
    server.register("a")
    server.told.errors["a"] = NoSlotError("no slot")
    with pytest.raises(NoSlotError):
        server.registry.update("a", pin=True)
    assert server.registry.entry("a").adapter.pin is False
    assert '"pin": false' in kept(server)
    assert server.registry.key("a") == "a#1"


def test_an_update_waits_for_the_registration(server: Registered) -> None:
    held = Held(server)
    path = server.adapter("a")
    loading = Beside(lambda: server.register("a", path))
    until(lambda: server.told.added)
    updating = Beside(lambda: server.registry.update("a", pin=True))
    time.sleep(0.05)
    assert updating.running
    assert len(server.told.added) == 1
    held.say()
    assert (loading.outcome(), updating.outcome()) == ("", "")
    assert server.registry.entry("a").adapter.pin


def test_the_engine_is_asked_for_one_change_at_a_time(server: Registered) -> None:
    """Of two by one key it would tell one outcome only."""
    server.register("a", preload=False)
    held = Held(server)
    updates = [Beside(lambda: server.registry.update("a", pin=True)) for _ in range(3)]
    until(lambda: len(server.told.added) == 2)
    time.sleep(0.05)
    assert len(server.told.added) == 2
    held.say()
    assert [update.outcome() for update in updates] == [""] * 3
    # It is as the others would have it.
    assert len(server.told.added) == 2


def test_one_that_is_unregistered_while_it_is_updated_stays_so(server: Registered) -> None:
    server.register("a")
    held = Held(server)
    updating = Beside(lambda: server.registry.update("a", pin=True))
    until(lambda: len(server.told.added) == 2)
    server.registry.unregister("a")
    held.say()
    updating.outcome()
    assert server.told.registered == {}
    assert server.told.removed == ["a#1", "a#1"]
    assert '"a"' not in kept(server)


# lora_cache_dir


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registered]:
    """One with the folders one, two, three and broken, of which it keeps two, whenever they were named."""
    monkeypatch.setattr("lmi.handler.adapters.registry.IDLE_S", 0.0)
    monkeypatch.setattr("lmi.handler.adapters.registry.EVICT_EVERY_S", 0.0)
    for number, name in enumerate(("one", "two", "three")):
        write_adapter(tmp_path / "cache" / name, LLAMA, seed=number)
    write_adapter(tmp_path / "cache" / "broken", LLAMA, use_dora=True)
    tmp_path.joinpath("cache", "file").write_text("")
    with registered(tmp_path, lora_cache_dir=str(tmp_path / "cache"), lora_cache_size="2") as server:
        yield server.begin()


def test_one_is_loaded_by_its_folders_name_when_a_request_names_it(cached: Registered) -> None:
    assert cached.names == []
    assert cached.registry.knows("one")
    assert cached.told.added == []
    held = Held(cached)
    with pytest.raises(NotReadyError):
        cached.registry.key("one")
    # Another request does not load it again.
    with pytest.raises(NotReadyError) as loading:
        cached.registry.key("one")
    held.say()
    loading.value.ready.result(30)
    assert cached.registry.key("one") == "one#1"
    assert [one.path for one in cached.told.added] == [str(cached.folder / "cache" / "one")]
    # It comes again by itself.
    assert not (cached.model / ".lmi").exists()


@each_row("name", ["../one", "a/b", ".x", "..", "", "file", "nothing", "/etc", "one/", "o\\ne", "x" * 256, "one\x00"])
def test_no_other_name_leads_into_the_folder_or_out_of_it(cached: Registered, name: str) -> None:
    (cached.folder / "cache" / ".x").mkdir(exist_ok=True)
    assert not cached.registry.knows(name)
    with pytest.raises(ModelNotFoundError, match=r"^adapters: adapter .* is not registered$"):
        cached.registry.key(name)


def test_the_least_recently_used_one_makes_room(cached: Registered) -> None:
    for name in ("one", "two", "one", "three"):
        ready(cached.registry, name)
    assert cached.names == ["one", "three"]
    assert cached.told.removed == ["two#2"]
    # It comes back as another one.
    assert ready(cached.registry, "two") == "two#4"
    assert cached.told.removed == ["two#2", "one#1"]


def test_what_an_api_has_registered_makes_no_room_for_them(cached: Registered) -> None:
    for name in ("a", "b", "c"):
        cached.register(name)
    for name in ("one", "two", "three"):
        ready(cached.registry, name)
    assert cached.names == ["a", "b", "c", "three", "two"]


def test_none_makes_room_that_somebody_has_just_named(cached: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with its key may be on its way to the engine; or it is being loaded for one."""
    monkeypatch.setattr("lmi.handler.adapters.registry.IDLE_S", 3600.0)
    for name in ("one", "two", "three"):
        ready(cached.registry, name)
    assert cached.names == ["one", "three", "two"]
    monkeypatch.setattr("lmi.handler.adapters.registry.IDLE_S", 0.0)
    cached.registry.key("two")
    assert cached.names == ["three", "two"]


def test_whether_there_are_too_many_is_not_asked_with_each_request(
    cached: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi.handler.adapters.registry.EVICT_EVERY_S", 3600.0)
    for name in ("one", "two", "three"):
        ready(cached.registry, name)
    assert len(cached.names) == 3
    monkeypatch.setattr("lmi.handler.adapters.registry.EVICT_EVERY_S", 0.0)
    cached.registry.key("one")
    assert cached.names == ["one", "three"]


def test_many_at_once_are_all_served_and_soon_no_more_than_may_be(cached: Registered) -> None:
    """Each of them waits for its own, and none may take away another's before that is used."""
    keys: list[str] = []

    def ask(number: int) -> None:
        names = itertools.islice(itertools.cycle(("one", "two", "three")), number, number + 20)
        keys.extend(ready(cached.registry, name) for name in names)

    calls = [Beside(partial(ask, number)) for number in range(3)]
    assert [call.outcome() for call in calls] == [""] * 3
    assert len(keys) == 60
    assert len(cached.names) <= 2


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So many seconds have passed for what names adapters."""
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + seconds)
    monkeypatch.setattr("lmi.handler.adapters.registry.time", clock)


def test_a_broken_one_is_tried_again_after_a_while(cached: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with pytest.raises(AdapterError, match=r"^adapter broken could not be loaded: .*use_dora"):
            ready(cached.registry, "broken")
    write_adapter(cached.folder / "cache" / "broken", LLAMA)
    # Not at once: the files are not to be read with each request.
    with pytest.raises(AdapterError):
        cached.registry.key("broken")
    later(monkeypatch, 30)
    with pytest.raises(NotReadyError):
        cached.registry.key("broken")
    assert ready(cached.registry, "broken") == "broken#2"


def test_one_that_was_only_not_tried_is_tried_sooner(cached: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    cached.told.errors["one"] = UnavailableError("the engine is being rebuilt, try again later")
    with pytest.raises(AdapterError, match=r"^adapter one could not be loaded: the engine is being rebuilt"):
        ready(cached.registry, "one")
    cached.told.errors.clear()
    later(monkeypatch, 1)
    assert ready(cached.registry, "one") == "one#2"


def test_one_can_be_registered_by_an_api_too_and_then_stays(cached: Registered) -> None:
    ready(cached.registry, "one")
    cached.register("one", str(cached.folder / "cache" / "one"))
    assert cached.told.removed == ["one#1"]
    for name in ("two", "three", "two"):
        ready(cached.registry, name)
    assert cached.registry.key("one") == "one#2"
    cached.registry.unregister("one")
    # Its folder is still there.
    assert ready(cached.registry, "one") == "one#5"


# What is left behind


def test_failures_are_forgotten_in_the_end(server: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.handler.adapters.entries.MAX_FAILURES", 3)
    path = server.adapter("a", use_dora=True)
    for number in range(8):
        with pytest.raises(AdapterError):
            server.register(f"a{number}", path, alias=f"alias {number}")
    known = [number for number in range(8) if server.registry.knows(f"a{number}")]
    assert known == [4, 5, 6, 7]
    assert [number for number in range(8) if server.registry.knows(f"alias {number}")] == known


def test_many_registrations_leave_nothing_behind(
    server: Registered, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With code, that fail, that are updated, that are named while they are loaded."""
    # pytest keeps what is logged, and with an error all that was there when it was raised.
    caplog.set_level("CRITICAL")
    good, bad = server.adapter("good"), server.adapter("bad", use_dora=True)
    Path(good, "model.py").write_text("def output(text):\n    return text\noutput.is_output_formatter = True\n")

    def rounds(first: int, last: int) -> None:
        for number in range(first, last):
            name = f"a{number % 7}"
            entry = server.registry.enter(name, good, alias=f"alias {number % 5}")
            with pytest.raises(NotReadyError):
                server.registry.key(name)
            server.registry.load(entry)
            assert server.registry.has_code
            if number % 10 == 0:
                server.registry.update(name, pin=True)
            server.registry.unregister(name)
            if number % 3 == 0:
                with pytest.raises(AdapterError):
                    server.register("bad", bad)
                server.registry.unregister("bad")

    def left() -> list[int]:
        server.told.added.clear()
        server.told.removed.clear()
        gc.collect()
        descriptors, entries = [*Path("/proc/self/fd").iterdir()], [o for o in gc.get_objects() if type(o) is Entry]
        assert server.told.registered == {}
        assert not server.registry.has_code
        assert server.registry.registered() == []
        assert kept(server) == "{}\n"
        return [len(counted) for counted in (modules_in(tmp_path), threading.enumerate(), descriptors, entries)]

    rounds(0, 40)
    before = left()
    rounds(40, 120)
    # Threads of other tests may end meanwhile.
    after = left()
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)

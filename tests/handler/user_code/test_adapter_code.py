"""Formatters in adapters' folders, and requests that wait for an adapter, with an engine that a test speaks for."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.user_code.adapter_code import load_adapter_code

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.errors import AdapterError
from ...kit.api.handler import Exchange, Service, Workers, attributes_of, started_service
from ...kit.api.options import make_settings
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.registered import llama_dir
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine
from ...kit.user_code.modules import forget, modules_in
from ...kit.waiting import until

HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
SESSION = "X-Amzn-SageMaker-Session-Id"
END = Finish("eos", generated_tokens=1)
INPUT = """
NAME = {name!r}
def read(decoded_payload, **kwargs):
    return {{**decoded_payload, "inputs": f"{{NAME}}: {{decoded_payload['inputs']}}"}}
read.is_input_formatter = True
"""
OUTPUT = """
import sys
NAME = {name!r}
def write(response):
    return f"{{sys.modules[__name__].NAME}} says {{response}}"
write.is_output_formatter = True
"""
FIXED = """
def write(response):
    return "of {name}"
write.is_output_formatter = True
"""
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def code(*parts: str, name: str) -> str:
    return "".join(part.format(name=name) for part in parts)


class Place:
    """A model directory that is served, with adapters that are registered by hand."""

    def __init__(self, folder: Path, files: dict[str, str], options: dict[str, str]) -> None:
        self.folder = folder
        self.model = llama_dir(folder / "model")
        for name, source in files.items():
            (self.model / name).write_text(source)
        self.engine = ScriptedEngine()
        usual = {"enable_lora": "true", "adapters_registry": "none"}
        self.service: Service = started_service(self.engine, self.model, **{**usual, **options})
        assert self.service.adapters is not None
        self.registry = self.service.adapters

    def adapter(self, name: str, source: str = "") -> str:
        path = write_adapter(self.folder / "adapters" / name, LLAMA)
        if source:
            (path / "model.py").write_text(source)
        return str(path)

    def register(self, name: str, source: str = "", alias: str | None = None) -> None:
        self.registry.load(self.registry.enter(name, self.adapter(name, source), alias=alias))

    def open(
        self, body: Any, headers: dict[str, str] | None = None, query: dict[str, str] | None = None, **request: Any
    ) -> Exchange:
        return self.service.open(
            Request(
                body if isinstance(body, bytes) else json.dumps(body).encode(),
                headers={name.lower(): value for name, value in (headers or {}).items()},
                attributes=attributes_of((headers or {}).items()),
                query=query or {},
                **request,
            )
        )

    def ask(self, body: Any, headers: dict[str, str] | None = None, **request: Any) -> tuple[object, str | None, str]:
        """What the engine is asked, of which adapter, and what is answered when it says Hello in two pieces."""
        known = len(self.engine.generations)
        opened = self.open(body, headers, **request)
        until(lambda: len(self.engine.generations) > known or opened.finished)
        assert not opened.finished, opened.records
        self.engine.say(known, Started(1), Delta(0, "Hel"), Delta(0, "lo", finish=END))
        end_of(opened)
        generation = self.engine.generations[known]
        return generation.prompt, generation.adapter, b"".join(opened.records).decode()

    def refused(
        self, body: Any, headers: dict[str, str] | None = None, known: int = 0, **request: Any
    ) -> tuple[int, str]:
        """Status and body of what is refused, at once or by user code; `known`: how many were not, before."""
        opened = self.open(body, headers, **request)
        end_of(opened)
        assert len(self.engine.generations) == known
        return opened.call.reply.status, b"".join(opened.records).decode()


def first_of(opened: Exchange) -> None:
    until(lambda: opened.records)


def end_of(opened: Exchange) -> None:
    until(lambda: opened.finished)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Makes one; the modules of the user's are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    places: list[Place] = []

    def make(files: dict[str, str] | None = None, **options: str) -> Place:
        places.append(Place(tmp_path, files or {}, options))
        return places[-1]

    yield make
    for one in places:
        one.service.close()
    forget(tmp_path)


def test_two_adapters_share_no_globals(place: Callable[..., Place]) -> None:
    made = place()
    for name in ("a", "b"):
        made.register(name, code(INPUT, OUTPUT, name=name))
    for name in ("a", "b", "a"):
        prompt, adapter, answer = made.ask({"inputs": "Hi", "adapters": name})
        assert (prompt, adapter) == (f"{name}: Hi", f"{name}#{1 + 'ab'.index(name)}")
        assert answer.startswith(f"{name} says ")


def test_what_an_adapter_brings_goes_before_the_models_and_what_it_lacks_is_the_models(
    place: Callable[..., Place],
) -> None:
    made = place({"model.py": code(INPUT, OUTPUT, name="base")})
    made.register("both", code(INPUT, OUTPUT, name="both"))
    made.register("input", code(INPUT, name="input"))
    made.register("output", code(OUTPUT, name="output"))
    made.register("neither", "X = 1")
    made.register("none")
    found: dict[str, tuple[object, str]] = {}
    for name in ("both", "input", "output", "neither", "none", ""):
        prompt, _, answer = made.ask({"inputs": "Hi", "adapters": name})
        found[name] = prompt, answer.partition(" ")[0]
    assert found == {
        "both": ("both: Hi", "both"),
        "input": ("input: Hi", "base"),
        "output": ("base: Hi", "output"),
        "neither": ("base: Hi", "base"),
        "none": ("base: Hi", "base"),
        "": ("base: Hi", "base"),
    }


@each_row(
    "way",
    [
        {"headers": {HEADER: "a"}},
        {"headers": {HEADER.lower(): "a"}},
        {"headers": {"X-Amzn-SageMaker-Custom-Attributes": f"{HEADER}=a"}},
        {"query": {"adapter": "a"}},
        {"headers": {HEADER: "alias"}},
        {"fields": {"adapters": "a"}},
        {"fields": {"adapters": ["a"]}},
        {"fields": {"adapter": "alias"}},
        {"fields": {"parameters": {"adapter_id": "a"}}},
    ],
    ids=str,
)
def test_they_are_chosen_by_what_names_the_adapter(place: Callable[..., Place], way: dict[str, Any]) -> None:
    made = place()
    made.register("a", code(INPUT, OUTPUT, name="a"), alias="alias")
    body = {"inputs": "Hi", **way.pop("fields", {})}
    prompt, adapter, answer = made.ask(body, **way)
    assert (prompt, adapter, answer[:7]) == ("a: Hi", "a#1", "a says ")


def test_they_are_not_chosen_by_the_model(place: Callable[..., Place]) -> None:
    made = place()
    made.register("a", code(OUTPUT, name="a"))
    _, adapter, answer = made.ask({**CHAT, "model": "a"})
    assert adapter == "a#1"
    assert json.loads(answer)["choices"][0]["message"]["content"] == "Hello"
    _, adapter, answer = made.ask({**CHAT, "adapters": "a"})
    assert (adapter, answer[:7]) == ("a#1", "a says ")


def test_several_inputs_of_one_adapter_have_its_formatters_and_of_several_have_none(
    place: Callable[..., Place],
) -> None:
    made = place()
    for name in ("a", "b"):
        made.register(name, code(FIXED, name=name))
    for names, expected in ((["a", "a"], "of a"), (["b", "b"], "of b"), (["a", "b"], "{"), (["a", ""], "{")):
        made.engine.generations.clear()
        opened = made.open({"prompt": ["x", "y"], "adapters": names}, path="/v1/completions")
        until(lambda: len(made.engine.generations) == 2)
        for ticket in (0, 1):
            made.engine.say(ticket, Started(1), Delta(0, "Hello", finish=END))
        end_of(opened)
        assert b"".join(opened.records).decode().startswith(expected)
        assert [one.adapter and one.adapter[0] for one in made.engine.generations] == [name or None for name in names]


def test_a_stream_is_formatted_piece_by_piece(place: Callable[..., Place]) -> None:
    made = place({"model.py": code(OUTPUT, name="base")})
    made.register("a", code(OUTPUT, name="a"))
    for headers, name in (({HEADER: "a"}, "a"), ({}, "base")):
        opened = made.open({"inputs": "Hi", "stream": True}, headers)
        until(lambda: made.engine.sinks)
        (ticket,) = made.engine.sinks
        made.engine.say(ticket, Started(1), Delta(0, "Hel"))
        first_of(opened)
        made.engine.say(ticket, Delta(0, "lo", finish=END))
        end_of(opened)
        first, *_, last = [record.decode() for record in opened.records]
        assert first.startswith(f"{name} says ")
        assert "Hel" in first
        assert last.startswith(f"{name} says ")


BROKEN = {
    "syntax": ("def (", "SyntaxError"),
    "name": ("import of_which_nobody_knows", "ModuleNotFoundError"),
    "raises": ("raise ValueError('no luck')", "ValueError: no luck"),
    "exits": ("import sys; sys.exit(3)", "SystemExit"),
    "signature": ("def read():\n    pass\nread.is_input_formatter = True", "expected (decoded_payload: dict"),
    "not UTF-8": ("# coding: nothing\n", "SyntaxError"),
}


@each_row("broken", BROKEN)
def test_broken_code_refuses_the_registration(tmp_path: Path, place: Callable[..., Place], broken: str) -> None:
    source, cause = BROKEN[broken]
    made = place()
    with pytest.raises(AdapterError) as refused:
        made.register("a", source)
    assert refused.value.message.startswith("Failed to load custom code for adapter a: ")
    assert cause in refused.value.message
    assert modules_in(tmp_path) == set()
    # Its weights were not asked for.
    assert made.engine.adapters.added == []
    status, answer = made.refused({"inputs": "Hi", "adapters": "a"})
    assert status == 424
    assert "adapter a could not be loaded: Failed to load custom code for adapter a: " in answer


def test_an_embedding_models_adapter_has_no_output_formatter(place: Callable[..., Place]) -> None:
    made = place(task="text-embedding")
    with pytest.raises(AdapterError, match=r"Failed to load custom code for adapter a: .*generated text"):
        made.register("a", code(OUTPUT, name="a"))
    made.register("b", code(INPUT, name="b"))


def test_what_is_unregistered_is_forgotten(tmp_path: Path, place: Callable[..., Place]) -> None:
    made = place()
    made.register("a", code(INPUT, OUTPUT, name="first"))
    assert len(modules_in(tmp_path)) == 1
    made.registry.unregister("a")
    assert modules_in(tmp_path) == set()
    made.register("a", code(INPUT, OUTPUT, name="second"))
    assert made.ask({"inputs": "Hi", "adapters": "a"})[0] == "second: Hi"


def test_a_request_that_runs_keeps_its_formatter(tmp_path: Path, place: Callable[..., Place]) -> None:
    """And what that finds in its module."""
    made = place()
    made.register("a", code(OUTPUT, name="a"))
    asked = [made.open({"inputs": "Hi", "adapters": "a"})]
    until(lambda: made.engine.generations)
    made.registry.unregister("a")
    made.engine.say(0, Started(1), Delta(0, "Hello", finish=END))
    opened = asked.pop()
    end_of(opened)
    assert b"".join(opened.records).startswith(b"a says ")
    del opened
    until(lambda: gc.collect() and not modules_in(tmp_path))


def test_a_module_finds_itself(tmp_path: Path) -> None:
    """What dataclasses, for one, do."""
    source = """
        from __future__ import annotations
        import dataclasses, sys
        @dataclasses.dataclass
        class Reply:
            text: str
        assert sys.modules[__name__].Reply is Reply
        def write(response):
            return Reply(str(response)).text
        write.is_output_formatter = True
    """
    (tmp_path / "model.py").write_text("\n".join(line[8:] for line in source.splitlines()))
    workers = Workers(1)
    try:
        loaded = load_adapter_code(make_settings(), workers, "a", tmp_path)
        assert loaded is not None
        assert (loaded.input, loaded.output is None) == (None, False)
        assert len(modules_in(tmp_path)) == 1
        del loaded
        assert modules_in(tmp_path) == set()
        assert load_adapter_code(make_settings(), workers, "b", tmp_path / "nothing") is None
    finally:
        workers.close()


# What is read of a request before user code sees it.


def test_a_body_that_only_an_input_formatter_can_read_is_left_to_it(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there are adapters with code or not."""
    read = "lmi.handler.user_code.formatters.djl_formatters.InputFormatter.read"
    made = place({"model.py": code(INPUT, name="base")})
    monkeypatch.setattr(read, lambda self, request: ({"inputs": f"{len(request.body)} bytes"}, None))
    assert made.ask(b"\xff\xfe no JSON")[0] == "10 bytes"
    made.register("a", code(OUTPUT, name="a"))
    assert made.ask(b"\xff\xfe no JSON") == ("10 bytes", None, '{"generated_text":"Hello"}')
    assert made.ask(b"\xff\xfe no JSON", {HEADER: "a"})[1] == "a#1"


def test_the_adapter_that_a_body_names_is_its_own_whatever_the_input_formatter_makes_of_it(
    place: Callable[..., Place],
) -> None:
    """One that was written before there were adapters keeps nothing that it does not know."""
    forgetful = "def read(decoded_payload, **kwargs):\n    return {'inputs': 'x'}\nread.is_input_formatter = True\n"
    made = place({"model.py": forgetful})
    made.register("plain")
    assert made.ask({"inputs": "Hi", "adapters": "plain"})[1] == "plain#1"
    made.register("coded", forgetful)
    for name, key in (("plain", "plain#1"), ("coded", "coded#2"), ("", None)):
        assert made.ask({"inputs": "Hi", "adapters": name})[1] == key
    assert made.ask({"inputs": "Hi", "parameters": {"adapter_id": "plain"}})[1] == "plain#1"


def test_an_input_formatter_may_choose_the_adapter(place: Callable[..., Place]) -> None:
    chooses = "def read(decoded_payload, **kwargs):\n    return {'inputs': 'x', 'adapters': 'b'}\n"
    made = place({"model.py": f"{chooses}read.is_input_formatter = True\n"})
    made.register("a")
    made.register("b")
    assert made.ask({"inputs": "Hi", "adapters": "a"})[1] == "b#2"
    assert made.ask({"inputs": "Hi"})[1] == "b#2"


@each_row("coded", [False, True])
def test_what_is_no_adapter_is_refused_in_the_dialects_form(place: Callable[..., Place], coded: bool) -> None:
    made = place()
    made.register("a", code(OUTPUT, name="a") if coded else "")
    for fields, headers in (({"adapters": "c"}, {}), ({}, {HEADER: "c"}), ({"adapters": ["c"]}, {})):
        status, answer = made.refused({**CHAT, **fields}, headers)
        assert (status, json.loads(answer)["error"]["code"]) == (404, "model_not_found")
        assert made.refused({"inputs": "Hi", **fields}, headers)[0] == 424
    status, answer = made.refused({"inputs": "Hi", "adapters": 3})
    assert status == 424
    assert "adapters: expected an adapter's name" in answer


def test_a_dialect_of_the_users_may_mean_something_else_by_adapters(place: Callable[..., Place]) -> None:
    dialect = """
from lmi.formatters import lmi
NAME = "mine"
BODY_FIELD = "mine"
ROUTES = ()
def matches(payload, request, settings):
    return "mine" in payload
def parse(payload, request, settings):
    return lmi.parse({"inputs": f"{payload['mine']} of {payload['adapters']}"}, request, settings)
refuse = lmi.refuse
"""
    made = place({"own_dialect.py": dialect}, output_formatter="own_dialect")
    made.register("a", code(OUTPUT, name="a"))
    for given in ("c", ["x", "y"], 3):
        prompt, adapter, _ = made.ask({"mine": "Hi", "adapters": given})
        assert (prompt, adapter) == (f"Hi of {given}", None)


# Requests that wait for an adapter.


class Loading:
    """An adapter that the engine is loading, until it is told what came of it."""

    def __init__(self, made: Place, name: str = "a", source: str = "") -> None:
        self._future: Future[None] = Future()
        self._told = made.engine.adapters
        self._told.held = self._future
        self._entry = made.registry.enter(name, made.adapter(name, source))
        self._thread = threading.Thread(target=self._load, args=(made,))
        self._thread.start()
        until(lambda: self._told.added)

    def _load(self, made: Place) -> None:
        with contextlib.suppress(AdapterError):
            made.registry.load(self._entry)

    def end(self, error: Exception | None = None) -> None:
        self._told.held = None
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)
        self._thread.join(30)


LARGE = {"inputs": "x" * 300_000}


@pytest.mark.parametrize("files", [{}, {"model.py": code(INPUT, OUTPUT, name="base")}], ids=["plain", "coded"])
@pytest.mark.parametrize("body", [{"inputs": "Hi"}, LARGE], ids=["small", "large"])
def test_a_request_waits_for_its_adapter_and_is_served(
    place: Callable[..., Place], files: dict[str, str], body: dict[str, str]
) -> None:
    made = place(files)
    loading = Loading(made)
    waiting = [made.open({**body, "adapters": "a"}), made.open(body, {HEADER: "a"})]
    # Others do not wait.
    other = made.open({"inputs": "other"})
    until(lambda: made.engine.generations)
    assert len(made.engine.generations) == 1
    assert made.engine.generations[0].adapter is None
    loading.end()
    until(lambda: len(made.engine.generations) == 3)
    assert {one.adapter for one in made.engine.generations[1:]} == {"a#1"}
    for ticket in (0, 1, 2):
        made.engine.say(ticket, Started(1), Delta(0, "Hello", finish=END))
    for opened in (*waiting, other):
        end_of(opened)
        assert b"Hello" in b"".join(opened.records)
    assert made.service.admission.open == 0


@pytest.mark.parametrize("body", [{"inputs": "Hi"}, LARGE], ids=["small", "large"])
def test_a_request_waits_for_one_that_it_is_the_first_to_name(
    place: Callable[..., Place], tmp_path: Path, body: dict[str, str]
) -> None:
    for name in ("a", "b"):
        write_adapter(tmp_path / "cache" / name, LLAMA)
    made = place(lora_cache_dir=str(tmp_path / "cache"))
    assert made.ask({**body, "adapters": "b"})[1] == "b#1"
    assert made.ask(body, {HEADER: "a"})[1] == "a#2"
    assert made.refused({**CHAT, "adapters": "c"}, known=2)[0] == 404


@pytest.mark.parametrize("headers", [{}, {SESSION: "NEW_SESSION"}], ids=["alone", "in a session"])
@pytest.mark.parametrize("body", [{"inputs": "Hi"}, LARGE], ids=["small", "large"])
def test_the_first_request_that_names_one_has_its_formatters(
    place: Callable[..., Place], tmp_path: Path, body: dict[str, str], headers: dict[str, str]
) -> None:
    """Before it came nobody knew that the adapter has any."""
    folder = write_adapter(tmp_path / "cache" / "a", LLAMA)
    (folder / "model.py").write_text(code(INPUT, OUTPUT, name="a"))
    made = place(lora_cache_dir=str(tmp_path / "cache"), sessions_path=str(tmp_path / "sessions"))
    prompt, adapter, answer = made.ask({**body, "adapters": "a"}, headers)
    assert (prompt, adapter) == (f"a: {body['inputs']}", "a#1")
    assert answer.startswith("a says")


def test_a_request_is_told_when_its_adapter_fails(place: Callable[..., Place]) -> None:
    made = place()
    loading = Loading(made)
    waiting = [made.open({"inputs": "Hi", "adapters": "a"}), made.open({**CHAT, "model": "a"})]
    loading.end(AdapterError("it does not fit"))
    for opened in waiting:
        end_of(opened)
        assert opened.call.reply.status == 424
        assert b"adapter a could not be loaded: it does not fit" in b"".join(opened.records)


def test_a_request_whose_adapter_is_unregistered_meanwhile_is_refused(place: Callable[..., Place]) -> None:
    made = place()
    loading = Loading(made)
    waiting = made.open({**CHAT, "adapters": "a"})
    made.registry.unregister("a")
    loading.end()
    end_of(waiting)
    assert waiting.call.reply.status == 404


def test_requests_that_wait_hold_no_thread(place: Callable[..., Place]) -> None:
    """Those that have nothing to wait for get theirs, however many wait."""
    made = place({"model.py": code(INPUT, OUTPUT, name="base")}, user_code_threads="1")
    loading = Loading(made)
    for _ in range(20):
        made.open({"inputs": "Hi", "adapters": "a"})
    assert made.ask({"inputs": "other"})[0] == "base: other"
    loading.end()
    until(lambda: len(made.engine.generations) == 21)


def test_where_no_adapter_has_code_requests_run_none(place: Callable[..., Place]) -> None:
    """They are read on the host's thread, as those of a server without adapters are."""
    made = place()
    made.register("a")
    made.open({"inputs": "Hi", "adapters": "a"})
    assert len(made.engine.generations) == 1
    made.register("b", code(OUTPUT, name="b"))
    assert made.registry.has_code
    made.registry.unregister("b")
    made.open({"inputs": "Hi", "adapters": "a"})
    assert len(made.engine.generations) == 2

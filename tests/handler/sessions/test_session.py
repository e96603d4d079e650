"""What user code keeps in a session, and how it comes back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmi.handler.sessions import session as session_module
from lmi.handler.sessions.session import StoredSession

from ...kit.api.errors import SessionError
from ...kit.api.handler import SessionStore as Store
from ...kit.rows import each_row

read: Callable[[Path], Any] = vars(session_module)["read"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions", lifetime=1200, max_number=10, max_bytes=100_000)


@pytest.fixture
def session(store: Store) -> StoredSession:
    return store.create()


def again(store: Store, session: StoredSession) -> StoredSession:
    """The same session, as a later request has it."""
    return store.find(session.id)[0]


VALUES: list[Any] = [
    None,
    True,
    7,
    1.5,
    float("inf"),
    "Grüße\x00\ud800",
    [1, ["a", {}]],
    {"a": [None]},
    b"",
    b"\x00\xff" * 10,
    np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(10)[::3],
    np.zeros((0, 3), dtype=np.float16),
    np.array(5),
    np.array(["a", "bc"]),
]


@each_row("value", VALUES, ids=repr)
def test_a_value_comes_back(store: Store, session: StoredSession, value: Any) -> None:
    session.put("key", value)
    found = again(store, session).get("key", "nothing")
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.tolist()) == (value.dtype, value.tolist())
    else:
        assert (type(found), found) == (type(value), value)


def test_bytes_may_be_any_buffer_and_json_has_lists_only(session: StoredSession) -> None:
    session.put("array", bytearray(b"ab"))
    session.put("view", np.arange(2, dtype=np.uint16).data)
    session.put("tuple", (1, (2,)))
    session.put("keys", {1: "a"})
    assert session.get("array") == b"ab"
    assert session.get("view") == b"\x00\x00\x01\x00"
    assert session.get("tuple") == [1, [2]]
    assert session.get("keys") == {"1": "a"}


@each_row(
    ("value", "said"),
    [
        (object(), "got a object"),
        ({1, 2}, "got a set"),
        ([b"x"], "Object of type bytes is not JSON serializable"),
        (np.array([object()]), "got an array of objects"),
        (np.float32(1), "got a float32"),
    ],
)
def test_what_cannot_be_kept_is_refused(session: StoredSession, value: Any, said: str) -> None:
    with pytest.raises(SessionError, match="session: key: expected bytes, a NumPy array without objects, or") as caught:
        session.put("key", value)
    assert said in caught.value.message
    assert session.get("key") is None


def test_nothing_is_unpickled(store: Store, session: StoredSession) -> None:
    """A file that somebody else has put there."""
    folder = store.folder / session.id
    np.save(folder / "array.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "pickled.json").write_bytes(pickle.dumps({"a": 1}))
    for key in ("array", "pickled"):
        with pytest.raises(SessionError, match=f"session: {key}: its value cannot be read"):
            session.get(key)
    with pytest.raises(SessionError, match="cannot be read"):
        session.get_as_numpy("array")


def test_the_last_value_counts_whatever_it_is(store: Store, session: StoredSession) -> None:
    for value in (b"bytes", [1], np.arange(3), "text"):
        session.put("key", value)
    assert session.get("key") == "text"
    assert sorted(path.name for path in (store.folder / session.id).iterdir()) == [".session", "key.json"]
    assert (session.remove("key"), session.remove("key")) == (True, False)
    assert session.get("key", 5) == 5


KINDS: dict[str, Any] = {".bin": b"bytes", ".npy": np.arange(3), ".json": "text"}
CHANGES = [
    (first, [(look, then), *more])
    for first in KINDS
    for then in KINDS
    for look in range(3)
    for more in ([], [(look + 1, ".bin")], [(look + 2, ".json"), (look + 3, ".npy")])
]
"""The kind of a value, and what it becomes before the reader looks at which file."""


@each_row(("first", "changes"), CHANGES)
def test_a_value_that_changes_its_kind_is_never_missed(
    store: Store, session: StoredSession, first: str, changes: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while one reads it nor between two of its looks."""
    session.put("key", KINDS[first])
    looks = 0

    def changing(path: Path) -> Any:
        nonlocal looks
        for look, kind in changes:
            if look == looks:
                again(store, session).put("key", KINDS[kind])
        looks += 1
        return read(path)

    monkeypatch.setattr(session_module, "read", changing)
    found = session.get("key")
    assert any(np.array_equal(found, KINDS[kind]) for kind in (first, *(kind for _, kind in changes)))


def test_a_key_that_is_not_there_is_looked_for_once(session: StoredSession, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def read_nothing(path: Path) -> Any:
        looked.append(path.suffix)
        return read(path)

    session.put("other", 1)
    monkeypatch.setattr(session_module, "read", read_nothing)
    assert session.get("key", 5) == 5
    assert looked == [*KINDS]


KEYS = ["a", ".request_id", "..", "a.json", "a/b", "../../a", "ü" * 100, " ", ".session", "x" * 200]


def test_a_key_is_a_file_of_the_session_whatever_it_says(store: Store, session: StoredSession) -> None:
    for number, key in enumerate(KEYS):
        session.put(key, number)
    assert [session.get(key) for key in KEYS] == list(range(len(KEYS)))
    assert session.get("a-b") == KEYS.index("a/b")
    assert len(list((store.folder / session.id).iterdir())) == len(KEYS) + 1
    assert {path.name for path in store.folder.iterdir()} == {".ledger", session.id}


@each_row("key", ["", "a\x00b", "a\nb", "x" * 201, "ü" * 101, "\ud800", 5, None])
def test_other_keys_are_refused(session: StoredSession, key: Any) -> None:
    for use in (lambda: session.put(key, 1), lambda: session.get(key), lambda: session.remove(key)):
        with pytest.raises(SessionError, match="session: key: expected 1 to 200 bytes of text that prints"):
            use()


def test_an_array_is_mapped(store: Store, session: StoredSession) -> None:
    made = session.get_as_numpy("state", (10, 5, 5), create=True)
    assert (made.dtype, made.shape, made.max()) == (np.float32, (10, 5, 5), 0)
    made.fill(1)
    found = again(store, session).get_as_numpy("state", shape=(10, 5, 5))
    assert found.min() == 1
    found[0] = 2
    assert session.get("state")[0, 0, 0] == 2
    session.put("whole", np.arange(3))
    assert session.get_as_numpy("whole", dtype=np.int64).tolist() == [0, 1, 2]
    # One that takes its place leaves it to those who have it.
    session.get_as_numpy("state", (2,), dtype="int8", create=True)
    assert made.shape == (10, 5, 5)
    assert session.get_as_numpy("state").nbytes == 2


def test_an_array_that_is_not_as_expected_is_refused(session: StoredSession) -> None:
    session.put("state", np.zeros((2, 3)))
    session.put("text", "x")
    others: list[tuple[Any, Any]] = [((3, 2), None), (None, np.float32), ((2, 3), "int8")]
    for shape, dtype in others:
        with pytest.raises(SessionError, match=r"session: state: expected .*, got \(2, 3\) of float64"):
            session.get_as_numpy("state", shape, dtype)
    for key in ("text", "missing"):
        with pytest.raises(SessionError, match=f"session: {key}: expected an array, but there is none"):
            session.get_as_numpy(key)
    wrong: list[tuple[Any, Any]] = [(None, None), ((2, -1), None), ((2,), object), (("a",), None), ((2,), "nonsense")]
    for shape, dtype in wrong:
        with pytest.raises(SessionError, match="session: new: expected"):
            session.get_as_numpy("new", shape, dtype, create=True)


def test_a_new_array_has_all_of_its_room(store: Store, session: StoredSession) -> None:
    """What is written later must not find the disk full: that would end the process."""
    session.get_as_numpy("state", (10_000,), create=True)
    assert (store.folder / session.id / "state.npy").stat().st_blocks * 512 >= 40_000
    with pytest.raises(SessionError, match=r"option.sessions_max_bytes"):
        session.get_as_numpy("large", (10**12,), create=True)


def test_a_map_outlives_its_session(store: Store, session: StoredSession) -> None:
    state = session.get_as_numpy("state", (4,), create=True)
    store.close(session.id)
    state.fill(3)
    assert state.sum() == 12


def test_it_is_called_and_ended_as_upstreams(store: Store) -> None:
    session = store.create()
    assert (session.session_id, session.expiration_ts) == (session.id, session.expires)
    session.put("key", 1)
    assert session.remove() is True
    assert not session.folder.exists()
    with pytest.raises(SessionError, match=f"session not found: {session.id}"):
        session.remove()

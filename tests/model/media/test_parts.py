"""Images before an engine sees them: data URLs, headers, limits, and the way of generations past those that wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lmi.model.media import parts
from lmi.model.media.parts import Budget, MediaFile, data_url_bytes, media_parts, without_media

from ...kit.api.conversation import Media, Message, Text
from ...kit.api.engine import MediaError, RequestPreparer
from ...kit.api.errors import LmiError, ParameterError, UnsupportedError
from ...kit.api.options import MediaRules
from ...kit.api.types import Conversation, EngineInfo, EngineStats, Event, Generation, Prompt, Sampling, said
from ...kit.models.pictures import Site, data_url, png, serving
from ...kit.rows import each_row

PICTURE = png()
FIELD = "prompt.messages[0].content[1].url"


def part(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def conversation(*parts: dict[str, Any]) -> Conversation:
    return Conversation(messages=({"role": "user", "content": [{"type": "text", "text": "What?"}, *parts]},))


# Where images stand.


def test_images_are_found_in_their_order() -> None:
    made = Conversation(
        messages=(
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [part("a"), {"type": "text", "text": "t"}, part("b")],
            },
            {"role": "assistant", "tool_calls": []},
            {"role": "user", "content": [part("c")]},
        )
    )
    found = [(one.url, one.place, one.field) for one in media_parts(made)]
    assert found == [
        ("a", "prompt.messages[1].content[0]", "prompt.messages[1].content[0].url"),
        ("b", "prompt.messages[1].content[2]", "prompt.messages[1].content[2].url"),
        ("c", "prompt.messages[3].content[0]", "prompt.messages[3].content[0].url"),
    ]


# Data URLs.


def budget(most: int = 1 << 20) -> Budget:
    return Budget(most, "bytes", "max_image_bytes")


@pytest.mark.parametrize("head", ["data:image/png;base64,", "DATA:Image/PNG;BASE64,", "data:image/*;charset=x;base64,"])
def test_a_data_url(head: str) -> None:
    assert data_url_bytes(head + data_url(PICTURE).partition(",")[2], budget()) == PICTURE


@each_row(
    ("url", "reason"),
    [
        ("data:", "expected a data URL as data:image/png;base64,..."),
        ("data:image/png;base64", "expected a data URL as data:image/png;base64,..."),
        ("data:image/png,AAAA", "expected a data URL as data:image/png;base64,..."),
        (
            "data:text/html;base64,AAAA",
            "expected a data URL of an image, as data:image/png;base64,..., got 'text/html'",
        ),
        ("data:;base64,AAAA", "expected a data URL of an image, as data:image/png;base64,..., got ''"),
        ("data:image/png;base64,A", "expected data in base64"),
        ("data:image/png;base64,AA!A", "expected data in base64"),
        ("data:image/png;base64,AAAA\nAAAA", "expected data in base64"),
        ("data:image/png;base64,ÄAAA", "expected data in base64"),
    ],
)
def test_data_urls_that_are_refused(url: str, reason: str) -> None:
    with pytest.raises(MediaError) as caught:
        data_url_bytes(url, budget())
    assert str(caught.value).startswith(reason)


@each_row("length", range(1, 8))
def test_the_bytes_of_data_urls_are_limited(length: int) -> None:
    data = b"\x89" * length
    assert data_url_bytes(data_url(data), budget(length)) == data
    with pytest.raises(MediaError, match=rf"at most {length - 1} bytes together .*, got {length} or more"):
        data_url_bytes(data_url(data), budget(length - 1))


def test_base64_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever one ends; padding in the middle is as wrong as it is in one piece."""
    monkeypatch.setattr(parts, "PIECE", 4)
    for length in range(1, 14):
        data = bytes(range(length))
        assert data_url_bytes(data_url(data), budget()) == data
    for wrong in ("AA==AAAA", "AAA=AAAA", "AAAAA", "AAAA=AAA", "AA==AA==", "AAAA====", "=", "AAAAA==="):
        with pytest.raises(MediaError, match="expected data in base64"):
            data_url_bytes(f"data:image/png;base64,{wrong}", budget())


# The intake: a backend by hand, real sockets.


class Hand:
    """A Backend that prepares when it is allowed to, and notes what it was given."""

    def __init__(self, images: int) -> None:
        self.info = EngineInfo(engine="hand", version="1", context=100, images=images)
        self.busy = False
        self.go = threading.Event()
        self.go.set()
        self.preparing = threading.Event()
        self.given: dict[int, list[bytes]] = {}
        self.fault: Exception | None = None

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> str:
        del generation
        if images:
            self.preparing.set()
            self.go.wait(60)
        if self.fault is not None:
            raise self.fault
        self.given[number] = [image.data for image in images]
        return f"prepared {number}"

    def prompt_text(self, prepared: Any) -> str:
        return f"the text of {prepared}"

    def tokens(self, prepared: Any) -> int:
        raise NotImplementedError

    def add(self, prepared: Any) -> None: ...

    def abort(self, numbers: Sequence[int]) -> None: ...

    def step(self) -> list[tuple[int, Event]]:
        return []

    def stats(self) -> EngineStats:
        return EngineStats()

    def close(self) -> None: ...


class Desk:
    """An intake and what came out of it, in order."""

    def __init__(self, images: int = 3, **rules: Any) -> None:
        given: dict[str, Any] = {"domains": ("*",), "networks": ("127.0.0.1/32",), "image_timeout": 20.0, **rules}
        self.backend = Hand(images)
        self.out: list[tuple[int, Any]] = []
        self._news = threading.Condition()
        self.intake = RequestPreparer(self.backend, MediaRules(**given), 0.0, self._take, self._take, self._take)

    def _take(self, number: int, result: Any, prompt: str | None = None) -> None:
        with self._news:
            self.out.append((number, result if prompt is None else prompt))
            self._news.notify_all()

    def take(self, number: int, prompt: Prompt, *, held: bool = False) -> None:
        self.intake.take(number, Generation(request_id=str(number), prompt=prompt, sampling=Sampling(), held=held))

    def wait(self, count: int) -> list[tuple[int, Any]]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.out) >= count, 60), self.out
        return self.out

    def refusal(self, *parts: dict[str, Any]) -> LmiError:
        self.take(1, conversation(*parts))
        ((number, error),) = self.wait(1)
        assert number == 1
        assert isinstance(error, LmiError), error
        assert self.backend.given == {}
        return error


@pytest.fixture
def served() -> Iterator[tuple[Site, str]]:
    with serving({"a.png": PICTURE, "b.png": png(color=(0, 0, 255))}) as (site, port):
        yield site, f"http://127.0.0.1:{port}"


def test_images_of_all_kinds_arrive_in_order(served: tuple[Site, str]) -> None:
    desk = Desk()
    url = served[1]
    desk.take(1, conversation(part(f"{url}/a.png"), part(data_url(png(2, 2))), part(f"{url}/b.png")))
    assert desk.wait(1) == [(1, "prepared 1")]
    assert desk.backend.given == {1: [PICTURE, png(2, 2), png(color=(0, 0, 255))]}


def test_a_thread_that_cannot_be_started_fails_that_generation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_to_start)
        desk.take(1, conversation(part(data_url(PICTURE))))
    ((number, error),) = desk.wait(1)
    assert (number, type(error)) == (1, RuntimeError)
    desk.take(2, conversation(part(data_url(PICTURE))))
    assert desk.wait(2)[1:] == [(2, "prepared 2")]


def refuse_to_start(_thread: object) -> None:
    raise RuntimeError("can't start new thread")


def test_of_what_is_to_be_held_back_the_prompt_comes_along() -> None:
    desk = Desk()
    desk.take(1, conversation(part(data_url(PICTURE))), held=True)
    assert desk.wait(1) == [(1, "the text of prepared 1")]
    desk.take(2, conversation(), held=True)
    assert desk.wait(2)[1:] == [(2, "the text of prepared 2")]


def test_who_waits_for_an_image_holds_up_nobody(served: tuple[Site, str]) -> None:
    """As many slow images as there are threads to fetch: the others go past them."""
    site, url = served
    desk = Desk(image_timeout=60.0)
    desk.take(1, conversation(part(f"{url}/hold/a.png"), part(f"{url}/hold/b.png")))
    for number in range(2, 20):
        desk.take(number, conversation(part(f"{url}/hold/a.png")))
    assert site.holding.wait(30)
    desk.take(20, "text")
    assert desk.wait(1) == [(20, "prepared 20")]
    desk.take(21, conversation())
    assert desk.wait(2)[1:] == [(21, "prepared 21")]
    desk.take(22, conversation(part(data_url(PICTURE))))
    assert desk.wait(3)[2:] == [(22, "prepared 22")]
    site.release.set()
    assert sorted(desk.wait(22)[3:]) == [(number, f"prepared {number}") for number in range(1, 20)]


def test_who_is_being_prepared_holds_up_nobody() -> None:
    desk = Desk()
    desk.backend.go.clear()
    desk.take(1, conversation(part(data_url(PICTURE))))
    assert desk.backend.preparing.wait(30)
    desk.take(2, "text")
    assert desk.wait(1) == [(2, "prepared 2")]
    desk.backend.go.set()
    assert desk.wait(2) == [(2, "prepared 2"), (1, "prepared 1")]


def test_nothing_more_is_heard_of_what_was_dropped(served: tuple[Site, str]) -> None:
    site, url = served
    desk = Desk()
    desk.take(1, conversation(part(f"{url}/hold/a.png")))
    desk.backend.go.clear()
    desk.take(2, conversation(part(data_url(PICTURE))))
    assert site.holding.wait(30)
    assert desk.backend.preparing.wait(30)
    desk.intake.drop([1, 2, 99])
    desk.backend.go.set()
    site.release.set()
    desk.take(3, conversation(part(f"{url}/a.png")))
    assert desk.wait(1) == [(3, "prepared 3")]
    assert desk.out == [(3, "prepared 3")]


def test_one_image_that_fails_ends_the_request_at_once(served: tuple[Site, str]) -> None:
    """The slow one is not waited for."""
    url = served[1]
    error = Desk(image_timeout=60.0).refusal(part(f"{url}/hold/a.png"), part(f"{url}/status/404"))
    assert isinstance(error, ParameterError)
    assert error.message == (
        "prompt.messages[0].content[2].url: it could not be fetched: its server responded with status 404"
    )
    assert error.param == "prompt.messages[0].content[2].url"


@pytest.mark.parametrize("typed", [False, True])
def test_an_option_puts_a_text_in_their_place(typed: bool) -> None:
    """Nothing is fetched, and the history stays readable for a model that reads text alone."""
    given = conversation(part("http://127.0.0.1:9/never-asked"))
    if typed:
        given = Conversation(
            messages=(Message("user", (Text("What?"), Media("image", "http://127.0.0.1:9/never-asked"))),)
        )
    (message,) = said(without_media(given, {"image"}))
    assert [one["type"] for one in message["content"]] == ["text", "text"]
    assert message["content"][1]["text"] == "[An image was left out: this model cannot read it.]"
    desk = Desk(images=0, unreadable_parts="text")
    desk.take(1, given)
    assert desk.wait(1) == [(1, "prepared 1")]


def test_a_model_without_images() -> None:
    error = Desk(images=0).refusal(part("http://127.0.0.1:9/never-asked"))
    assert isinstance(error, UnsupportedError)
    assert error.status == 400
    assert error.message == (
        "prompt.messages[0].content[1].type: expected 'text' (the model takes no images), got an image"
    )


def test_the_number_of_images_is_limited() -> None:
    desk = Desk(images=2)
    for number, count in enumerate((1, 2), 1):
        desk.take(number, conversation(*[part(data_url(PICTURE))] * count))
    assert sorted(desk.wait(2)) == [(1, "prepared 1"), (2, "prepared 2")]
    error = Desk(images=2).refusal(*[part(data_url(PICTURE))] * 3)
    assert isinstance(error, ParameterError)
    assert error.param == "prompt.messages[0].content[3]"
    assert "expected at most 2 images in a prompt (option.limit_mm_per_prompt" in error.message


def test_images_share_what_a_prompt_may_have(served: tuple[Site, str]) -> None:
    url = served[1]
    size = len(PICTURE)
    both = [part(data_url(PICTURE)), part(f"{url}/a.png")]
    desk = Desk(max_bytes=2 * size, max_pixels=2 * 64)
    desk.take(1, conversation(*both))
    assert desk.wait(1) == [(1, "prepared 1")]
    assert "at most 149 bytes together (option.max_image_bytes)" in Desk(max_bytes=2 * size - 1).refusal(*both).message
    error = Desk(max_pixels=2 * 64 - 1).refusal(*both)
    assert error.message == (
        "prompt.messages[0].content[2].url: expected images of at most 127 pixels together "
        "(option.max_image_pixels), got 128 or more"
    )


@each_row(
    ("url", "reason"),
    [
        (data_url(b"<html>"), "expected an image of one of the formats"),
        (data_url(PICTURE, "text/plain"), "expected a data URL of an image"),
        ("http://169.254.169.254/latest/meta-data", "has an address that is neither public"),
        ("file:///etc/passwd", "file URLs need option.allowed_local_media_path"),
        ("ftp://example.com/a.png", "expected an http or https URL, got the scheme 'ftp'"),
        ("0", "expected an http or https URL, got the scheme ''"),
    ],
)
def test_an_image_is_refused_by_name(url: str, reason: str) -> None:
    error = Desk().refusal(part(url))
    assert isinstance(error, ParameterError)
    assert error.param == FIELD
    assert error.message.startswith(f"{FIELD}: ")
    assert reason in error.message


def test_what_the_backend_raises_is_told() -> None:
    desk = Desk()
    desk.backend.fault = ParameterError("messages: too long", "messages")
    desk.take(1, conversation(part(data_url(PICTURE))))
    desk.take(2, "text")
    assert sorted(number for number, error in desk.wait(2) if isinstance(error, ParameterError)) == [1, 2]

"""Images, audio and videos in the page: attached to messages, seen, sent, kept and taken back."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ....kit.api.types import Delta, EngineEvent, EngineInfo, Finish, Started, Token
from ....kit.clients.axe import axe_faults
from ....kit.clients.browser import Browser, program
from ....kit.clients.playground import Playground
from ....kit.clients.scripts import OURS, run_python
from ....kit.hosts.local_server import Make, Running
from ....kit.models.pictures import png

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

WHOLE = "A red field."
VIDEO = b"\0\0\0\x18ftypmp42 and no more"


def spoken(prompt: int = 9) -> list[EngineEvent]:
    return [Started(prompt), Delta(0, WHOLE, (Token(1, WHOLE),), finish=Finish("eos", generated_tokens=4))]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a file of each kind."""
    from ....kit.media.sounds import tone

    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "red.png").write_bytes(png(64, 48))
    (folder / "wide.png").write_bytes(png(2000, 10, (0, 0, 255)))
    (folder / "tone.wav").write_bytes(tone(0.2))
    (folder / "film.mp4").write_bytes(VIDEO)
    (folder / "notes.txt").write_text("No picture.")
    (folder / "broken.png").write_text("No picture.")
    return folder


def open_page(browser: Browser, server: Running, *, images: int = 0, audio: int = 0, video: int = 0) -> Playground:
    """The page of a model that takes so many of each kind."""
    server.engine.submit_then = spoken()
    info = EngineInfo(engine="scripted", version="0", context=2048, images=images, audio=audio, video=video)
    server.service._info = info
    page = Playground(browser, f"http://127.0.0.1:{server.port}/").ready()
    page.ask("document.addEventListener('securitypolicyviolation', (event) => (window.forbade = event.blockedURI)), 0")
    return page


def arrived(server: Running) -> list[tuple[str, str, list[tuple[str, bytes]]]]:
    """The messages of the last request: whose each is, its text, and its media, as URLs' types and the bytes."""
    prompt: Any = server.engine.generations[-1].prompt
    found = []
    for message in prompt.messages:
        parts: list[Any] = [message.content] if isinstance(message.content, str) else list(message.content)
        media = [read(part.url) for part in parts if hasattr(part, "url")]
        found.append(
            (message.role, "".join(getattr(part, "text", part) for part in parts if not hasattr(part, "url")), media)
        )
    return found


def read(url: str) -> tuple[str, bytes]:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return kind, base64.b64decode(data, validate=True)


def size(picture: bytes) -> tuple[str | None, tuple[int, int]]:
    import io

    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        return image.format, image.size


def test_each_kind_is_shown_and_sent(browser: Browser, running: Make, files: Path) -> None:
    server = running()
    page = open_page(browser, server, images=2, audio=1, video=1)
    assert page.text("attach") == "Attach images, audio and videos"
    page.attach(files / "red.png", files / "wide.png", files / "tone.wav")
    page.attach(files / "film.mp4")
    names = ["red.png", "wide.png", "tone.wav", "film.mp4"]
    assert page.names("#attached") == names
    page.until("[...document.querySelectorAll('#attached img')].every((one) => one.naturalWidth > 0)")
    page.until("document.querySelector('#attached audio').duration > 0.1")
    page.say("What is it?")
    assert page.ended().startswith("Done")
    assert page.names("#attached") == []
    assert page.names("#turns .user") == names
    assert page.turns == [("You", "What is it?"), ("Assistant", WHOLE)]
    ((role, text, media),) = arrived(server)
    assert (role, text) == ("user", "What is it?")
    assert [kind for kind, _ in media] == ["image/jpeg", "image/jpeg", "audio/wav", "video/mp4"]
    assert [size(picture) for _, picture in media[:2]] == [("JPEG", (64, 48)), ("JPEG", (1024, 5))]
    assert [data for _, data in media[2:]] == [(files / "tone.wav").read_bytes(), VIDEO]
    assert page.ask("window.forbade") is None


def test_they_stay_for_later_turns_and_for_other_answers(browser: Browser, running: Make, files: Path) -> None:
    server = running()
    page = open_page(browser, server, images=1, audio=1)
    page.attach(files / "red.png")
    page.say("What is it?")
    page.ended()
    (first,) = arrived(server)
    page.attach(files / "tone.wav")
    page.say("And this?")
    page.ended()
    tone = ("audio/wav", (files / "tone.wav").read_bytes())
    later = [first, ("assistant", WHOLE, []), ("user", "And this?", [tone])]
    assert arrived(server) == later
    page.click("#again")
    page.ended()
    assert len(server.engine.generations) == 3
    assert arrived(server) == later


def test_an_edited_message_keeps_them_or_not(browser: Browser, running: Make, files: Path) -> None:
    server = running()
    page = open_page(browser, server, images=2)
    page.attach(files / "red.png", files / "wide.png")
    page.say("What are they?")
    page.ended()
    page.click("#edit")
    assert page.names("#attached") == ["red.png", "wide.png"]
    page.click("#cancel")
    assert page.names("#attached") == []
    page.click("#edit")
    page.click("#attached button")
    # Two are taken: those of the message that goes do not count.
    page.attach(files / "red.png")
    assert page.names("#attached") == ["wide.png", "red.png"]
    page.click("#attached button", 1)
    page.say("What is it?")
    page.ended()
    assert page.names("#turns .user") == ["wide.png"]
    ((_, text, media),) = arrived(server)
    assert (text, [size(picture)[1] for _, picture in media]) == ("What is it?", [(1024, 5)])
    page.click("#anew")
    page.say("Hello")
    page.ended()
    assert arrived(server) == [("user", "Hello", [])]


def test_without_a_word(browser: Browser, running: Make, files: Path) -> None:
    server = running()
    page = open_page(browser, server, audio=1)
    assert page.text("attach") == "Attach audio"
    page.click("#say")
    assert page.turns == []
    page.attach(files / "tone.wav")
    page.click("#say")
    page.ended()
    assert [(role, text, len(media)) for role, text, media in arrived(server)] == [("user", "", 1)]
    assert page.body["messages"][0]["content"][0]["type"] == "input_audio"


def test_a_model_of_texts_alone_is_offered_none(browser: Browser, running: Make) -> None:
    page = open_page(browser, running())
    assert not page.seen("attach")


def test_what_is_too_much_is_told_before_it_is_sent(browser: Browser, running: Make, files: Path) -> None:
    """The model's limits, the options', and what is nothing for the model at all."""
    server = running(max_body_bytes="60000", max_audio_bytes="10000")
    page = open_page(browser, server, images=1, audio=2)

    def fault(name: str) -> str:
        page.attach(files / name)
        return page.text("attach-fault")

    (files / "long.wav").write_bytes(bytes(50000))
    (files / "short.wav").write_bytes(bytes(9000))
    assert fault("notes.txt") == "notes.txt is none of what the model takes: images and audio."
    assert fault("film.mp4") == "film.mp4 is none of what the model takes: images and audio."
    assert fault("broken.png").startswith("broken.png cannot be read: ")
    assert fault("long.wav") == (
        "long.wav is not attached. The request would have 65 KiB, and the server takes 59 KiB (option.max_body_bytes)."
    )
    assert fault("short.wav") == ""
    assert fault("short.wav") == (
        "short.wav is not attached. What is attached of audio would have 18 KiB, and the server takes 10 KiB "
        "(option.max_audio_bytes)."
    )
    assert fault("red.png") == ""
    page.say("What is it?")
    page.ended()
    assert page.names("#turns .user") == ["short.wav", "red.png"]
    assert fault("wide.png") == (
        "wide.png is not attached. The model takes one image in a request, and there would be 2."
    )
    assert page.names("#attached") == []


BROKEN = """
(() => {
  const carried = new DataTransfer();
  carried.items.add(new File(["No picture."], "broken.png", {type: "image/png"}));
  const message = document.getElementById("message");
  message.dispatchEvent(new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true}));
  message.value = "What is it?";
  document.getElementById("say").click();
})()
"""
"""Who sends a message before its file has been read."""


def test_no_message_is_sent_without_its_file(browser: Browser, running: Make) -> None:
    page = open_page(browser, running(), images=1)
    page.ask(BROKEN)
    page.until("document.getElementById('attach-fault').textContent !== ''")
    assert page.text("attach-fault").startswith("broken.png cannot be read: ")
    assert page.turns == []
    # Who has seen it may go on.
    page.click("#say")
    page.ended()
    assert page.turns != []


def test_a_picture_of_a_pixels_width(browser: Browser, running: Make, files: Path) -> None:
    server = running()
    page = open_page(browser, server, images=1)
    (files / "narrow.png").write_bytes(png(1, 5000))
    page.attach(files / "narrow.png")
    assert page.text("attach-fault") == ""
    page.say("What is it?")
    page.ended()
    ((_, _, ((_, picture),)),) = arrived(server)
    assert size(picture) == ("JPEG", (1, 1024))


DROP = """
(() => {
  const carried = new DataTransfer();
  carried.items.add(new File(["sound"], "dropped.wav", {type: "audio/wav"}));
  TEXT && carried.setData("text/plain", "words");
  const event = new EVENT;
  return document.getElementById("message").dispatchEvent(event);
})()
"""
EVENTS = {
    "drop": 'DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true})',
    "paste": 'ClipboardEvent("paste", {clipboardData: carried, bubbles: true, cancelable: true})',
}


@pytest.mark.parametrize("event", EVENTS)
def test_files_are_dropped_and_pasted(browser: Browser, running: Make, event: str) -> None:
    """With a text beside, as word processors copy, the text is what is meant."""
    page = open_page(browser, running(), audio=2)
    assert page.ask(DROP.replace("EVENT", EVENTS[event]).replace("TEXT", "true"))
    assert not page.ask(DROP.replace("EVENT", EVENTS[event]).replace("TEXT", "false"))
    page.until("document.querySelectorAll('#attached li').length > 0")
    assert page.names("#attached") == ["dropped.wav"]


def test_a_file_is_no_burden_to_the_request_as_text(browser: Browser, running: Make, files: Path) -> None:
    """A word stands for its data, which is sent in the place of the word, whatever is edited around it."""
    server = running()
    page = open_page(browser, server, audio=2)
    data = bytes(range(256)) * (5 << 12)
    (files / "five.wav").write_bytes(data)
    page.attach(files / "five.wav", files / "five.wav")
    page.say("What is it?")
    page.ended()
    assert [media for _, _, media in arrived(server)] == [[("audio/wav", data)] * 2]
    page.click("#tab-request")
    assert page.body["messages"][0]["content"][1]["input_audio"] == {"data": "<1: five.wav, 5 MiB>", "format": "wav"}
    assert page.text("json-files").startswith("<1: five.wav, 5 MiB>, <2: five.wav, 5 MiB>: in its place")
    page.edit({**page.body, "seed": 3})
    page.send()
    page.ended()
    assert server.engine.generations[-1].sampling.seed == 3
    assert [media for _, _, media in arrived(server)] == [[("audio/wav", data)] * 2]


def test_the_request_has_them_in_each_dialects_form(browser: Browser, running: Make, files: Path) -> None:
    """From the conversation to other routes and back; what a dialect has no form for, it refuses by name."""
    server = running()
    page = open_page(browser, server, images=1, audio=1)
    page.attach(files / "red.png", files / "tone.wav")
    page.say("What is it?")
    page.ended()
    before = page.body["messages"]
    sent = arrived(server)
    page.click("#tab-request")
    assert page.names("#form .media") == ["red.png", "tone.wav"]
    page.choose("Messages")
    assert [one["type"] for one in page.body["messages"][0]["content"]] == ["text", "image", "input_audio"]
    page.send()
    assert page.ended().startswith("Failed: HTTP 400")
    assert "messages[0].content[2].type" in page.text("failure-message")
    page.click("#form .media button", 1)
    page.send()
    page.ended()
    ((_, _, media),) = arrived(server)
    assert media == sent[0][2][:1]
    page.choose("Azure")
    page.browser.put_files("#media", files / "tone.wav")
    page.until("document.querySelectorAll('#form .media li').length === 2")
    page.send()
    page.ended()
    assert arrived(server) == sent
    page.click("#tab-conversation")
    assert page.names("#turns .user") == ["red.png", "tone.wav"]
    assert page.turns == [("You", "What is it?"), ("Assistant", WHOLE)]
    parts = page.body["messages"][0]["content"]
    assert [one["type"] for one in parts] == [one["type"] for one in before[0]["content"]]


def test_the_form_adds_and_removes_them(browser: Browser, running: Make, files: Path) -> None:
    """Of the last message of the user, whose text is edited beside them."""
    page = open_page(browser, running(), images=1, audio=1).requests()
    page.browser.put_files("#media", files / "red.png", files / "tone.wav")
    page.until("document.querySelectorAll('#form .media li').length === 2")
    text, image, audio = page.body["messages"][0]["content"]
    assert (image["type"], audio["type"]) == ("image_url", "input_audio")
    page.click("#form .media button")
    page.write("#message-0", "What is it?")
    assert page.body["messages"][0]["content"] == [{**text, "text": "What is it?"}, audio]
    page.browser.put_files("#media", files / "broken.png")
    page.until("document.getElementById('media-told').textContent.startsWith('broken.png cannot be read')")
    page.browser.put_files("#media", files / "red.png", files / "wide.png")
    page.until("document.querySelectorAll('#form .media li').length === 3")
    assert page.text("media-told") == "The model takes one image in a request, and there would be 2."
    page.edit({**page.body, "messages": []})
    page.browser.put_files("#media", files / "red.png")
    page.until("document.getElementById('media-told').textContent === 'There is no message of the user.'")


def test_a_message_of_the_requests_view_is_gone_on_with(browser: Browser, running: Make, files: Path) -> None:
    """One that is not sent yet is the draft, with what is attached; what the page has no file of is named."""
    server = running()
    page = open_page(browser, server, images=2).requests()
    page.browser.put_files("#media", files / "red.png")
    page.until("document.querySelector('#form .media img') !== null")
    far = {"type": "image_url", "image_url": {"url": "https://example.com/far.png"}}
    body = page.body
    body["messages"][0]["content"].append(far)
    page.edit(body)
    page.click("#tab-conversation")
    assert page.ask("document.getElementById('message').value") == "Tell me a story."
    assert page.names("#attached") == ["red.png", "[image_url]"]
    page.click("#attached button", 1)
    page.click("#say")
    page.ended()
    ((_, text, media),) = arrived(server)
    assert (text, [kind for kind, _ in media]) == ("Tell me a story.", ["image/jpeg"])


def test_a_long_conversation_counts_what_files_took(browser: Browser, running: Make, files: Path) -> None:
    """By the tokens of the last request: a file's data are no characters that the model reads."""
    server = running()
    page = open_page(browser, server, audio=9)
    for number, kept in enumerate(("0", "01", "12")):
        server.engine.submit_then = spoken(prompt=700 * len(kept))
        page.attach(files / "tone.wav")
        page.say(f"{number}")
        page.ended()
        assert [text for role, text, _ in arrived(server) if role == "user"] == [*kept]


def test_the_code_reads_the_files(browser: Browser, running: Make, files: Path) -> None:
    """curl and OpenAI's client, run where the files are, send what the page does."""
    server = running()
    page = open_page(browser, server, images=1, audio=1)
    name = "it's $HOME `x`.wav"
    (files / name).write_bytes((files / "tone.wav").read_bytes())
    page.attach(files / name)
    page.say('What\'s \\ `it` $HOME?\nSay "it".')
    page.ended()
    sent = arrived(server)
    page.click("#tab-request")
    curl, script = page.code("curl"), page.code("python")
    compile(page.code("boto3"), "boto3", "exec")
    subprocess.run(["bash", "-c", curl], cwd=files, capture_output=True, timeout=60, check=True)
    assert len(server.engine.generations) == 2
    assert arrived(server) == sent
    assert "from openai import OpenAI" in script
    run_python(OURS, ["-c", f"import os; os.chdir({str(files)!r})\n{script}"])
    assert len(server.engine.generations) == 3
    assert arrived(server) == sent


SIZES = ((1400, 900), (400, 860))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_overflows_and_axe_finds_nothing(
    browser: Browser, running: Make, files: Path, width: int, height: int
) -> None:
    server = running()
    page = open_page(browser, server, images=2, audio=1, video=1)
    browser.resize(width, height)
    (files / ("long" * 30 + ".wav")).write_bytes((files / "tone.wav").read_bytes())

    def look() -> None:
        assert page.overflow <= 0
        assert axe_faults(browser) == []

    page.attach(files / "red.png", files / "wide.png", files / ("long" * 30 + ".wav"), files / "film.mp4")
    look()
    page.attach(files / "red.png")
    assert page.text("attach-fault") != ""
    look()
    page.say("What is it?")
    page.ended()
    look()
    page.click("#tab-request")
    look()
    page.click("#tab-json")
    look()


def test_it_can_be_used_by_keyboard_alone(browser: Browser, running: Make, files: Path) -> None:
    page = open_page(browser, running(), images=1, audio=1)
    page.attach(files / "red.png", files / "tone.wav")
    page.ask("document.getElementById('message').focus()")
    stops = []
    while "attach" not in stops:
        browser.press("Tab")
        stops.append(page.ask("document.activeElement.ariaLabel ?? document.activeElement.id"))
    # A player has several of its own.
    assert list(dict.fromkeys(stops)) == ["Remove file 1", "tone.wav", "Remove file 2", "say", "attach"]

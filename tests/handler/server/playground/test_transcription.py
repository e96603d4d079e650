"""Files that are written down: chosen in the page, sent as a form, the text seen as it streams."""

from __future__ import annotations

import json
import subprocess
import wave
from pathlib import Path

import pytest

from ....kit.api.types import Delta, EngineEvent, EngineInfo, Finish, Recording, Started, Token, Transcription
from ....kit.clients.axe import axe_faults
from ....kit.clients.browser import Browser, program
from ....kit.clients.playground import Playground
from ....kit.clients.scripts import OURS, run_python
from ....kit.hosts.local_server import Make, Running
from ....kit.rows import each_row
from ....kit.waiting import until

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

SAID = ["Hello", " to", " all", "."]
WHOLE = "".join(SAID)
HEARS = EngineInfo(engine="scripted", version="0", context=448, audio=1, transcribes=True, answers=False)


def spoken() -> list[EngineEvent]:
    *but_last, last = (Delta(0, text, (Token(at, text),)) for at, text in enumerate(SAID))
    finish = Finish("eos", generated_tokens=len(SAID))
    return [
        Started(4, recording=Recording(2.0, (0.0,), "en")), *but_last, Delta(0, last.text, last.tokens, finish=finish),
    ]  # fmt: skip


def open_page(browser: Browser, server: Running, info: EngineInfo = HEARS) -> Playground:
    """The page of a model that writes down what is said, to which SAID is said."""
    server.engine.submit_then = spoken()
    server.service._info = info
    page = Playground(browser, f"http://127.0.0.1:{server.port}/").ready()
    page.ask("document.addEventListener('securitypolicyviolation', (event) => (window.forbade = event.blockedURI)), 0")
    return page


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A file of a second, of which each byte that can be sent is one."""
    folder = tmp_path / "files"
    folder.mkdir()
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        file.setparams((1, 1, 8000, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 32)
    return folder / "speech.wav"


def choose(page: Playground, file: Path) -> None:
    page.browser.put_files("#file", file)
    page.until(f"document.querySelector('#form figcaption')?.textContent === {json.dumps(file.name)}")


def asked(server: Running) -> Transcription:
    """What was asked for last."""
    asked = server.engine.generations[-1].transcription
    assert asked is not None
    return asked


def test_the_text_is_seen_as_it_comes(browser: Browser, running: Make, sound: Path) -> None:
    """The page begins with the file, which arrives as it is: in a form, for in JSON it would be a URL."""
    server = running()
    page = open_page(browser, server)
    assert page.seen("work")
    assert not page.seen("sides")
    assert page.dialects[0] == "Transcribe audio · /v1/audio/transcriptions"
    assert page.ask("document.querySelector('#form input').id") == "file"
    assert page.text("file-told").startswith("Until one is chosen")
    choose(page, sound)
    page.until("document.querySelector('#form audio').duration >= 1")
    assert page.text("file-told") == ""
    server.engine.submit_then = []
    page.send()
    until(lambda: server.engine.generations)
    assert (asked(server).audio, asked(server).url, asked(server).translate) == (sound.read_bytes(), "", False)
    assert server.engine.generations[0].stream
    *events, last = spoken()
    server.engine.say(0, events[0])
    seen = ""
    for event, text in zip(events[1:], SAID[:-1], strict=True):
        server.engine.say(0, event)
        seen += text
        page.until(f"document.getElementById('text').textContent === {json.dumps(seen)}")
        assert page.text("status") == "Streaming …"
    server.engine.say(0, last)
    assert page.ended().startswith("Done")
    assert page.text("text") == WHOLE
    assert page.records[-1] == "data: [DONE]"
    assert (page.text("figure-tokens"), page.text("figure-prompt")) == ("4", "4")
    assert page.ask("window.forbade") is None


@each_row(
    ("fields", "text"),
    [
        ({}, WHOLE),
        ({"response_format": "text"}, f"{WHOLE}\n"),
        ({"response_format": "verbose_json", "timestamp_granularities": ["segment"]}, '"duration": 2'),
        ({"response_format": "vtt"}, "WEBVTT"),
    ],
)
def test_answers_that_are_no_stream(
    browser: Browser, running: Make, sound: Path, fields: dict[str, object], text: str
) -> None:
    server = running()
    page = open_page(browser, server)
    choose(page, sound)
    page.stream(False)
    page.edit({**page.body, **fields})
    page.send()
    assert page.ended().startswith("Done"), page.text("failure")
    assert text in page.text("text")
    assert asked(server).audio == sound.read_bytes()


def test_the_request_is_the_form_that_is_sent(browser: Browser, running: Make, sound: Path) -> None:
    """Its fields can be edited; a word stands for the file, which another route has, too, until it is removed."""
    server = running()
    page = open_page(browser, server)
    example = page.body["file"]
    choose(page, sound)
    assert page.body == {"model": page.body["model"], "file": "<1: speech.wav, 8 KiB>", "stream": True}
    assert page.text("json-files").startswith("<1: speech.wav, 8 KiB>: the file of the form")
    page.write("#field-prompt", 'To "all"; <and> @home, тайна')
    page.write("#field-temperature", "0.5")
    page.edit({**page.body, "language": None, "vllm_xargs": {"a": 1}, "max_completion_tokens": 7})
    page.send()
    assert page.ended().startswith("Done"), page.text("failure")
    (generation,) = server.engine.generations
    assert generation.prompt == 'To "all"; <and> @home, тайна'
    sampling = generation.sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.extra_args) == (0.5, 7, {"a": 1})
    page.choose("Translate audio")
    page.send()
    page.ended()
    assert (asked(server).audio, asked(server).translate) == (sound.read_bytes(), True)
    page.click("#form .media button")
    assert page.body["file"] == example
    page.send()
    page.ended()
    assert (asked(server).audio, asked(server).url) == (b"", f"data:audio/any;base64,{example}")


def test_a_file_that_is_too_large_is_told_before_it_is_sent(browser: Browser, running: Make, sound: Path) -> None:
    """And is refused as anything is."""
    server = running(max_body_bytes="1048576", max_audio_bytes="1048576")
    page = open_page(browser, server)
    hint = page.ask("document.querySelector('label[for=file]').textContent")
    assert hint == "File audio or a video, up to 1 MiB (option.max_audio_bytes)"
    sound.write_bytes(bytes(1 << 21))
    choose(page, sound)
    assert page.text("file-told") == "The file would have 2 MiB, and the server takes 1 MiB (option.max_audio_bytes)."
    page.send()
    assert page.ended().startswith("Failed: HTTP 413")
    assert page.text("failure-message").startswith("the body: expected at most")
    assert page.text("failure-message") in page.text("failure-body")


def test_a_file_of_many_megabytes_holds_nothing_up(browser: Browser, running: Make, sound: Path) -> None:
    server = running()
    page = open_page(browser, server)
    sound.write_bytes(sound.read_bytes() + bytes(15 << 20))
    page.click("#tab-json")
    choose(page, sound)
    assert len(page.ask("document.getElementById('json').value")) < 200
    page.send()
    assert page.ended().startswith("Done")
    assert asked(server).audio == sound.read_bytes()


MARK = "next script"
RUN_ALL = f"""
import json, os, sys
os.chdir(sys.argv[2])
for script in json.loads(sys.argv[1]):
    print({MARK!r})
    exec(script, {{}})
"""
NAME = 'a "b";\\ c,d.wav'


def test_the_code_sends_the_file(browser: Browser, running: Make, sound: Path) -> None:
    """curl, OpenAI's client and httpx, run as they are written where the file is; boto3's is JSON, and compiled."""
    server = running()
    page = open_page(browser, server)
    file = sound.rename(sound.with_name(NAME))
    choose(page, file)
    page.write("#field-prompt", "@all; it's")
    scripts = []
    for title in ("Transcribe", "Translate"):
        page.choose(title)
        page.edit({**page.body, "prompt": "@all; it's", "seed": 3})
        for streamed in (True, False):
            page.stream(streamed)
            boto3 = page.code("boto3")
            compile(boto3, "boto3", "exec")
            assert "b64encode(Path(" in boto3
            scripts.append(page.code("python"))
            subprocess.run(
                ["bash", "-c", page.code("curl")], cwd=file.parent, capture_output=True, timeout=60, check=True
            )
            check(server, sound=file, streamed=streamed, translated=title == "Translate")
    assert ["openai" in script for script in scripts] == [True, True, False, True]
    before = len(server.engine.generations)
    outputs = run_python(OURS, ["-c", RUN_ALL, json.dumps(scripts), str(file.parent)]).split(MARK)[1:]
    assert len(outputs) == len(server.engine.generations) - before == 4
    assert all("all" in output for output in outputs)
    check(server, sound=file, streamed=False, translated=True)


def check(server: Running, *, sound: Path, streamed: bool, translated: bool) -> None:
    generation = server.engine.generations[-1]
    assert (asked(server).audio, asked(server).translate) == (sound.read_bytes(), translated)
    assert (generation.prompt, generation.sampling.seed, generation.stream) == ("@all; it's", 3, streamed)


def test_a_model_that_answers_too_begins_with_its_conversation(browser: Browser, running: Make, sound: Path) -> None:
    info = EngineInfo(engine="scripted", version="0", context=448, audio=1, transcribes=True)
    server = running()
    page = open_page(browser, server, info)
    assert page.seen("talk")
    page.requests().choose("Transcribe")
    choose(page, sound)
    page.choose("Chat completions")
    page.click("#tab-conversation")
    page.say("Hello")
    assert page.ended().startswith("Done")
    page.click("#tab-request")
    page.choose("Transcribe")
    page.send()
    page.ended()
    assert server.engine.generations[-1].transcription is not None


SIZES = ((1400, 900), (400, 860))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_overflows_and_axe_finds_nothing(
    browser: Browser, running: Make, sound: Path, width: int, height: int
) -> None:
    server = running()
    page = open_page(browser, server)
    browser.resize(width, height)

    def look() -> None:
        assert page.overflow <= 0
        assert axe_faults(browser) == []

    look()
    choose(page, sound.rename(sound.with_name("long" * 30 + ".wav")))
    look()
    page.send()
    page.ended()
    look()
    for tab in ("#tab-json", "#tab-code"):
        page.click(tab)
        look()


def test_it_can_be_used_by_keyboard_alone(browser: Browser, running: Make, sound: Path) -> None:
    server = running()
    page = open_page(browser, server)
    choose(page, sound)
    page.ask("document.getElementById('tab-form').focus()")
    stops = []
    while "field-prompt" not in stops:
        browser.press("Tab")
        stops.append(page.ask("document.activeElement.ariaLabel ?? document.activeElement.id"))
    assert list(dict.fromkeys(stops)) == ["file", "speech.wav", "Remove speech.wav", "field-prompt"]
    browser.press("Enter", modifiers=2)
    assert page.ended().startswith("Done")
    assert asked(server).audio == sound.read_bytes()

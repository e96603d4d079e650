"""The page with models that hear: the same text as OpenAI's client is told."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ....kit.clients.browser import Browser, program
from ....kit.clients.playground import Playground
from ....kit.hosts.host import Server, model_directory
from ....kit.media import audio_chat, speech

pytestmark = [
    pytest.mark.engine,
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

Serve = Callable[[ModuleType], str]


@pytest.fixture
def serve(demo_model: Path, tmp_path: Path) -> Iterator[Serve]:
    """Serves a tiny model; the server's address."""
    servers: list[Server] = []

    def serve(made: ModuleType) -> str:
        properties = {"option.max_model_len": str(made.LONGEST), "option.served_model_name": "tiny"}
        folder = model_directory(made.build(tmp_path / "built", demo_model), tmp_path / "model", properties)
        servers.append(Server(folder, tmp_path / "log"))
        return servers[0].url

    yield serve
    for server in servers:
        server.stop()


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    from ....kit.media.sounds import noise, wav

    path = tmp_path / "noise.wav"
    path.write_bytes(wav(noise(5, seed=3)))
    return path


def test_a_file_is_written_down(browser: Browser, serve: Serve, sound: Path) -> None:
    from openai import OpenAI

    url = serve(speech)
    page = Playground(browser, url).ready()
    page.browser.put_files("#file", sound)
    page.until("document.querySelector('#form audio') !== null")
    page.write("#field-max_completion_tokens", "8")
    page.send()
    assert page.ended().startswith("Done"), page.text("failure")
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        told = client.audio.transcriptions.create(file=sound, model="tiny", extra_body={"max_completion_tokens": 8})
    assert told.text
    assert page.text("text") == told.text
    broken = sound.with_name("broken.wav")
    broken.write_text("No sound.")
    page.browser.put_files("#file", broken)
    page.until("document.getElementById('json').value.includes('broken.wav')")
    page.send()
    assert page.ended().startswith("Failed: HTTP 400")
    assert page.text("failure-message").startswith("file: ")


def test_a_conversation_about_a_sound(browser: Browser, serve: Serve, sound: Path) -> None:
    from openai import OpenAI

    url = serve(audio_chat)
    page = Playground(browser, url).requests()
    page.write("#field-max_tokens", "8")
    page.write("#field-temperature", "0")
    page.click("#tab-conversation")
    page.attach(sound)
    page.say("What is said?")
    assert page.ended().startswith("Done"), page.turns
    data = base64.b64encode(sound.read_bytes()).decode()
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        told = client.chat.completions.create(
            model="tiny",
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is said?"},
                        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
                    ],
                }
            ],
            max_tokens=8,
            temperature=0,
        )
    assert told.choices[0].message.content
    assert page.turns == [("You", "What is said?"), ("Assistant", told.choices[0].message.content)]

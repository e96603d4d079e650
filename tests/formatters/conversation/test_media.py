"""Images, audio and videos in the parts of messages, in the forms of dialects that have OpenAI's."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from ...kit.api.conversation import AZURE_PARTS, OPENAI_PARTS, RESPONSES_PARTS, Content, Contents, Media
from ...kit.api.errors import ParameterError, PayloadError, RequestError
from ...kit.api.options import typed_settings
from ...kit.models.pictures import data_url, png
from ...kit.rows import each_row

PICTURE = png()


def part(given: dict[str, Any], *, azure: bool) -> Content:
    """What a part of a user's content adds to it."""
    contents = Contents(AZURE_PARTS if azure else OPENAI_PARTS)
    content = contents.read("messages[0].content", [{"type": "image_url", **given}], typed_settings())
    assert isinstance(content, Content)
    return content


URL = "https://example.com/a.png"
AT = "messages[0].content[0]"
USUAL = (URL, f"{AT}.image_url.url")
PACKED = {
    kind: b64encode(start).decode()
    for kind, start in {
        "jpeg": b"\xff\xd8\xff\xe0" + bytes(8), "gif": b"GIF89a" + bytes(8), "webp": b"RIFF\n\0\0\0WEBPVP8 ",
    }.items()
}  # fmt: skip
READ: list[tuple[dict[str, Any], bool, tuple[str, str]]] = [
    ({"image_url": {"url": URL}}, False, USUAL),
    ({"image_url": {"url": f" {URL}\n"}}, False, USUAL),
    ({"image_url": {"url": URL, "detail": "high"}}, False, USUAL),
    ({"image_url": {"url": URL, "detail": None}}, False, USUAL),
    ({"image_url": URL}, False, (URL, f"{AT}.image_url")),
    ({"image_url": URL, "detail": "low"}, True, (URL, f"{AT}.image_url")),
    ({"image_url": {"url": URL}}, True, USUAL),
    ({"content": URL}, True, (URL, f"{AT}.content")),
    ({"content": "iVBORw0KGgo="}, True, ("data:image/png;base64,iVBORw0KGgo=", f"{AT}.content")),
    ({"content": data_url(PICTURE)}, True, (data_url(PICTURE), f"{AT}.content")),
    *(
        ({"content": f"{packed[:8]}\n{packed[8:]}"}, True, (f"data:image/{kind};base64,{packed}", f"{AT}.content"))
        for kind, packed in PACKED.items()
    ),
]


@each_row(("given", "azure", "read"), READ)
def test_a_part_is_read(given: dict[str, Any], azure: bool, read: tuple[str, str]) -> None:
    content = part(given, azure=azure)
    (image,) = content.parts
    assert isinstance(image, Media)
    assert (image.url, content.fields[0]) == read


WAV = "data:audio/wav;base64,AAAA"
HEARD = "https://example.com/a.mp3"
SEEN = "https://example.com/a.mp4"
OTHERS: list[tuple[str, dict[str, Any], tuple[str, str, str]]] = [
    ("openai", {"type": "audio_url", "audio_url": {"url": HEARD}}, ("audio", HEARD, "audio_url.url")),
    ("openai", {"type": "audio_url", "audio_url": HEARD, "uuid": "x"}, ("audio", HEARD, "audio_url")),
    ("openai", {"type": "video_url", "video_url": {"url": SEEN}}, ("video", SEEN, "video_url.url")),
    ("openai", {"type": "input_audio", "input_audio": {"data": "AAAA"}}, ("audio", WAV, "input_audio.data")),
    (
        "openai",
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        ("audio", "data:audio/mp3;base64,AAAA", "input_audio.data"),
    ),
    ("azure", {"type": "audio_url", "audio_url": {"url": HEARD}}, ("audio", HEARD, "audio_url.url")),
    (
        "azure",
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ("audio", WAV, "input_audio.data"),
    ),
    (
        "responses",
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ("audio", WAV, "input_audio.data"),
    ),
]


@each_row(("dialect", "given", "read"), OTHERS)
def test_audio_and_videos_are_read(dialect: str, given: dict[str, Any], read: tuple[str, str, str]) -> None:
    """As OpenAI's clients send them (input_audio) and vLLM's (audio_url, video_url)."""
    forms = {"openai": OPENAI_PARTS, "azure": AZURE_PARTS, "responses": RESPONSES_PARTS["user"]}[dialect]
    content = Contents(forms).read("messages[0].content", [given], typed_settings())
    assert isinstance(content, Content)
    (media,) = content.parts
    assert isinstance(media, Media)
    assert (media.kind, media.url, content.fields[0]) == (read[0], read[1], f"{AT}.{read[2]}")


PLAIN = "expected a URL of an image: data:image/...;base64,..., https://... or http://..."
NO_URL = "image_url: expected a URL, or an object with it; no image is known by its uuid"
BASE64 = "or a PNG, JPEG, GIF or WebP image in base64"
MISREAD: list[tuple[dict[str, Any], bool, type[RequestError], str]] = [
    ({}, False, PayloadError, NO_URL),
    ({"image_url": 5}, False, PayloadError, "image_url: expected an object, got 5"),
    ({"image_url": {}}, False, PayloadError, f"image_url.url: {PLAIN}, got None"),
    ({"image_url": {"url": ""}}, False, ParameterError, f"image_url.url: {PLAIN}, got ''"),
    ({"image_url": "iVBORw0KGgo="}, False, ParameterError, f"image_url: {PLAIN}, got 'iVBORw0KGgo='"),
    ({"image_url": {"url": "ftp://example.com"}}, False, ParameterError, f"image_url.url: {PLAIN}, got 'ftp://exam"),
    ({"image_url": {"url": URL, "detail": "best"}}, False, ParameterError, "image_url.detail: expected one of auto, "),
    ({"content": URL}, False, PayloadError, NO_URL),
    ({"content": ""}, True, ParameterError, f"content: {PLAIN}, {BASE64}, got ''"),
    ({"content": "ftp://example.com"}, True, ParameterError, f"content: {PLAIN}, {BASE64}, got 'ftp"),
    ({"content": "aGVsbG8="}, True, ParameterError, f"content: {PLAIN}, {BASE64}, got 'aGVsbG8='"),
    ({"content": URL, "detail": 5}, True, PayloadError, "detail: expected one of auto, low, high, original, got 5"),
]


@each_row(("given", "azure", "kind", "message"), MISREAD)
def test_a_part_is_refused(given: dict[str, Any], azure: bool, kind: type[RequestError], message: str) -> None:
    with pytest.raises(kind) as caught:
        part(given, azure=azure)
    assert caught.value.message.startswith(f"messages[0].content[0].{message}")
    assert caught.value.param == "messages[0].content[0]." + message.partition(":")[0]


def test_a_long_value_is_not_repeated() -> None:
    with pytest.raises(ParameterError) as caught:
        part({"image_url": {"url": "A" * (1 << 20)}}, azure=False)
    assert len(caught.value.message) < 400

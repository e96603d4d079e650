"""Which images, audio and videos requests may bring or name, and how large they may be: what the options say of it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import msgspec

from .option import Option, items

__all__ = ["MediaRules"]


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.lower().rstrip(".") for host in items(text))
    for host in hosts:
        if not host or set(host) & set("/:@,;") or "*" in host.removeprefix("*"):
            raise ValueError("hosts without scheme and port, as example.com, *.example.com, or * for any")
    return hosts


def _networks(text: str) -> tuple[str, ...]:
    networks = items(text)
    try:
        for network in networks:
            ipaddress.ip_network(network)
    except ValueError as error:
        raise ValueError(f"networks, as 10.0.0.0/8 ({error})") from None
    return networks


# fmt: off
class MediaRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the options allow. By default nothing is fetched: media come as data URLs."""

    domains: Annotated[tuple[str, ...], Option(
        "Hosts that images, audio and videos may be fetched from: names, `*.example.com` for what is under one, `*` "
        "for any. Without it they come as data URLs only.", name="allowed_media_domains", convert=_hosts,
    )] = ()
    """In lower case."""
    networks: Annotated[tuple[str, ...], Option(
        "Networks to fetch from although their addresses are not public, as `10.0.0.0/8`.",
        name="allowed_media_networks", convert=_networks,
    )] = ()
    folder: Annotated[str | None, Option(
        "Folder that `file://` URLs of images, audio and videos may point into.", name="allowed_local_media_path",
    )] = None
    image_timeout: Annotated[float | None, Option(
        "Seconds that fetching an image may take, redirects included.", name="image_fetch_timeout", default="5",
        ge=0.001,
    )] = None
    """None is VLLM_IMAGE_FETCH_TIMEOUT, or 5."""
    audio_timeout: Annotated[float | None, Option(
        "Seconds that fetching audio may take.", name="audio_fetch_timeout", default="10", ge=0.001,
    )] = None
    """None is VLLM_AUDIO_FETCH_TIMEOUT, or 10."""
    video_timeout: Annotated[float | None, Option(
        "Seconds that fetching a video may take.", name="video_fetch_timeout", default="30", ge=0.001,
    )] = None
    """None is VLLM_VIDEO_FETCH_TIMEOUT, or 30."""
    max_bytes: Annotated[int, Option(
        "Bytes that the images of a prompt may have together, as sent or fetched.", name="max_image_bytes", ge=1,
    )] = 50 << 20
    """OpenAI's limit for the images of one request."""
    max_pixels: Annotated[int, Option(
        "Pixels that the images of a prompt may have together.", name="max_image_pixels", ge=1,
    )] = 1 << 27
    """Some 400 MB as RGB: eleven pictures of an ordinary telephone."""
    max_audio_bytes: Annotated[int, Option(
        "Bytes that the audio of a prompt may have together, as sent or fetched.", ge=1,
    )] = 25 << 20
    """OpenAI's limit for a file, and vLLM's."""
    max_audio_seconds: Annotated[int | None, Option(
        "Seconds that an audio may last.", default="600", ge=1,
    )] = None
    """None is VLLM_MAX_AUDIO_DECODE_DURATION_S, or 600."""
    max_video_bytes: Annotated[int, Option(
        "Bytes that the videos of a prompt may have together, as sent or fetched.", ge=1,
    )] = 256 << 20
    """What vLLM 0.32 fetches at most (VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB)."""
    max_video_pixels: Annotated[int, Option(
        "Pixels that the frames which a model sees of a prompt's videos may have together.", ge=1,
    )] = 1 << 29
    """Some 1.6 GB as RGB: 32 frames of 4K."""
    media_decode_timeout: Annotated[float, Option(
        "Seconds that decoding an audio or a video may take.", ge=0.001,
    )] = 30.0
    media_decode_memory: Annotated[int, Option(
        "Bytes of memory that decoding an audio or a video may take.", ge=1 << 26,
    )] = 2 << 30
    request_arguments: Annotated[bool, Option(
        "Whether requests may bring `mm_processor_kwargs` and `media_io_kwargs`, which say how much memory and time "
        "their media take: only where clients are trusted.", name="trust_request_mm_kwargs",
    )] = False
    unreadable_parts: Annotated[Literal["error", "text"], Option(
        "What to do with parts of messages that the model cannot read (a PDF, an image where it reads text alone): "
        "refuse the request, or put a text in their place that says so.",
    )] = "error"
# fmt: on

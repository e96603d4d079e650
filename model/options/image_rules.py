"""Which images requests may bring or name, and how large they may be: what the options say of it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import msgspec

from .option import Option, items

__all__ = ["ImageRules"]


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
class ImageRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the options allow. By default nothing is fetched: images come as data URLs."""

    domains: Annotated[tuple[str, ...], Option(
        "Hosts that images may be fetched from: names, `*.example.com` for what is under one, `*` for any. Without it "
        "images come as data URLs only.", name="allowed_media_domains", convert=_hosts,
    )] = ()
    """In lower case."""
    networks: Annotated[tuple[str, ...], Option(
        "Networks to fetch from although their addresses are not public, as `10.0.0.0/8`.",
        name="allowed_media_networks", convert=_networks,
    )] = ()
    folder: Annotated[str | None, Option(
        "Folder that `file://` URLs of images may point into.", name="allowed_local_media_path",
    )] = None
    timeout: Annotated[float | None, Option(
        "Seconds that fetching an image may take, redirects included.", name="image_fetch_timeout", default="5",
        ge=0.001,
    )] = None
    """None is VLLM_IMAGE_FETCH_TIMEOUT, or 5."""
    max_bytes: Annotated[int, Option(
        "Bytes that the images of a prompt may have together, as sent or fetched.", name="max_image_bytes", ge=1,
    )] = 50 << 20
    """OpenAI's limit for the images of one request."""
    max_pixels: Annotated[int, Option(
        "Pixels that the images of a prompt may have together.", name="max_image_pixels", ge=1,
    )] = 1 << 27
    """Some 400 MB as RGB: eleven pictures of an ordinary telephone."""
    unreadable_parts: Annotated[Literal["error", "text"], Option(
        "What to do with parts of messages that the model cannot read (a PDF, an image where it reads text alone): "
        "refuse the request, or put a text in their place that says so.",
    )] = "error"
# fmt: on

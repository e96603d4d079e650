"""Which images requests may bring or name, and how large they may be: what the options say of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import MAX_SHOWN_CHARACTERS

__all__ = ["LARGEST_IMAGES", "MOST_PIXELS", "ImageRules", "image_rules"]

LARGEST_IMAGES = 50 << 20
"""OpenAI's limit for the images of one request."""
MOST_PIXELS = 1 << 27
"""Some 400 MB as RGB: eleven pictures of an ordinary telephone."""


class ImageRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the options allow. By default nothing is fetched: images come as data URLs."""

    domains: tuple[str, ...] = ()
    """Hosts to fetch from, in lower case: a name, `*.name` for what is under it, `*` for any."""
    networks: tuple[str, ...] = ()
    """Networks to fetch from although their addresses are not public, as 10.0.0.0/8."""
    folder: str | None = None
    """Where file:// URLs may point to."""
    timeout: float | None = None
    """Seconds that fetching one image may take, redirects included; None is VLLM_IMAGE_FETCH_TIMEOUT, or 5."""
    max_bytes: int = LARGEST_IMAGES
    """Of all images of a prompt together, as they are sent or fetched."""
    max_pixels: int = MOST_PIXELS
    """Of all images of a prompt together."""


def image_rules(values: Mapping[str, Any], fault: Callable[[str, str], None]) -> ImageRules:
    """The rules, from the values of options that were given; `fault` is told the option and what is wrong with it."""
    domains = tuple(domain.lower().rstrip(".") for domain in values.get("allowed_media_domains", ()))
    for domain in domains:
        if not domain or set(domain) & set("/:@,;") or "*" in domain.removeprefix("*"):
            expected = "hosts without scheme and port, as example.com, *.example.com, or * for any"
            fault("allowed_media_domains", f"expected {expected}, got {domain[:MAX_SHOWN_CHARACTERS]!r}")
    networks: tuple[str, ...] = values.get("allowed_media_networks", ())
    for network in networks:
        if wrong := _wrong(network):
            fault(
                "allowed_media_networks",
                f"expected networks, as 10.0.0.0/8, got {network[:MAX_SHOWN_CHARACTERS]!r} ({wrong})",
            )
    return ImageRules(
        domains=domains,
        networks=networks,
        folder=values.get("allowed_local_media_path"),
        timeout=values.get("image_fetch_timeout"),
        max_bytes=values.get("max_image_bytes", LARGEST_IMAGES),
        max_pixels=values.get("max_image_pixels", MOST_PIXELS),
    )


def _wrong(network: str) -> str:
    """What is wrong with a network; empty where nothing is."""
    try:
        ipaddress.ip_network(network)
    except ValueError as error:
        return str(error)
    return ""

"""Which images requests may bring or name, and how large they may be: what the options say of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["LARGEST_IMAGES", "MOST_PIXELS", "ImageRules", "image_option", "image_rules"]

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


def image_option(name: str, value: Any) -> Any:
    """`value` of the option `name` as ImageRules have it; raises ValueError with what was expected."""
    if name == "allowed_media_domains":
        domains = tuple(domain.lower().rstrip(".") for domain in value)
        if any(not domain or set(domain) & set("/:@,;") or "*" in domain.removeprefix("*") for domain in domains):
            raise ValueError("hosts without scheme and port, as example.com, *.example.com, or * for any")
        return domains
    if name == "allowed_media_networks":
        try:
            return tuple(str(ipaddress.ip_network(network)) for network in value)
        except ValueError as error:
            raise ValueError(f"networks, as 10.0.0.0/8 ({error})") from None
    return value


def image_rules(values: Mapping[str, Any]) -> ImageRules:
    """The rules, from the values of options that were given."""
    return ImageRules(
        domains=values.get("allowed_media_domains", ()),
        networks=values.get("allowed_media_networks", ()),
        folder=values.get("allowed_local_media_path"),
        timeout=values.get("image_fetch_timeout"),
        max_bytes=values.get("max_image_bytes", LARGEST_IMAGES),
        max_pixels=values.get("max_image_pixels", MOST_PIXELS),
    )

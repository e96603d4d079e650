"""Where a URL leads, and whether an address is one that strangers may be sent to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

__all__ = ["Address", "MediaError", "Target", "allowed", "joined", "public"]

LONGEST_URL = 8192

_INVALID = "expected a URL with a valid host and port"
_PATH = "/%:@!$&'()*+,;=~-._"
_QUERY = _PATH + "?"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class MediaError(Exception):
    """Why something was not fetched, in one line, for the client."""


def public(address: Address) -> bool:
    """Whether an address is of the public Internet, and no other hides in it (RFC 4291, 3056, 4380, 6052)."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    if address.ipv4_mapped is not None:
        return public(address.ipv4_mapped)
    if address in _NAT64:
        return public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    hidden = [address.sixtofour, *(address.teredo or ())]
    return address in _UNICAST and address.is_global and all(inner is None or public(inner) for inner in hidden)


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")


def allowed(host: str, domains: Iterable[str]) -> bool:
    """Whether one of `domains` (MediaRules.domains) is the host or stands for it."""
    named = host.rstrip(".")
    return any(domain in {"*", named} or (domain.startswith("*.") and named.endswith(domain[1:])) for domain in domains)


def joined(url: str, location: str) -> str:
    """Where a redirect from the URL leads; raises MediaError for what is no URL."""
    try:
        return urljoin(url, location)
    except ValueError:
        raise MediaError(_INVALID) from None


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads."""

    scheme: str
    host: str
    """As it is looked up: ASCII, lower case, without brackets."""
    port: int | None
    """None: the scheme's own."""
    path: str
    """With the query."""
    header: str
    """The Host header."""

    @classmethod
    def of(cls, url: str) -> Target:
        """Raises MediaError for what is no plain http(s) URL."""
        # What is left out here, readers of URLs disagree about.
        if len(url) > LONGEST_URL or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in url):
            raise MediaError(f"expected a URL of at most {LONGEST_URL} characters, without spaces, quotes and the like")
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode().lower()
            if port == 0:
                raise ValueError
        except ValueError:
            raise MediaError(_INVALID) from None
        if parts.scheme not in {"http", "https"}:
            raise MediaError(f"expected an http or https URL, got the scheme {parts.scheme[:20]!r}")
        if not host or parts.username is not None or parts.password is not None:
            raise MediaError("expected a URL with a host, and without a user or password in it")
        header = f"[{host}]" if ":" in host else host
        if port is not None:
            header += f":{port}"
        path = quote(parts.path or "/", safe=_PATH) + (f"?{quote(parts.query, safe=_QUERY)}" if parts.query else "")
        return cls(parts.scheme, host, port, path, header)

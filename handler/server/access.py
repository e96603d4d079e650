"""Whom the local server serves: who has the key, and no web page but its own and those that are named.

    a page whose own name leads to this machine   Host: rebound.example           it could read the response
    a page of another site                        Origin: https://other.example   it could not, but the model would work
    an image, a link, a frame of one              Sec-Fetch-Site: cross-site      the same

Browsers fill in these headers themselves. Every page that is open on a laptop can reach what listens on its loopback
interface (by its own name: DNS rebinding); without this any web site could use the model. Programs that are no browser
send what they like; it is the key that keeps those out.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ...model.errors import ForbiddenError, OptionError, RequestError, UnauthorizedError

__all__ = ["Access", "allowed_names", "allowed_origins"]

AUTHORITY = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^][:/@\s]+?)\.?)(?::\d*)?")
"""A name or an address, with or without a port (RFC 3986, 3.2)."""
WEB = ("http", "https", "null")
"""How origins of web pages begin, those that are not told among them; others' are programs with a browser inside."""
PORTS = {"http": ":80", "https": ":443"}
"""Which browsers leave out of an origin."""
ANY = "*"
EXPECTED = "localhost, another name of the loopback interface, or what --allowed-host names"


class Access:
    """Judges requests by their headers."""

    def __init__(
        self, key: str | None = None, names: frozenset[str] | None = None, origins: frozenset[str] = frozenset()
    ) -> None:
        """`key` is the one that requests need. `names`: allowed beside loopback ones; None: any name is.

        `origins`: of other sites' pages that may ask and read the answer, or `*` for any.
        """
        self._keys = None if key is None else _bytes_of(key)
        self._names = names
        self.origins = origins

    @property
    def needs_key(self) -> bool:
        """Whether a key is needed."""
        return self._keys is not None

    def refusal(self, headers: Mapping[str, str]) -> RequestError | None:
        """Why a request with these headers is refused, if it is; `headers` have names in lower case."""
        return self._foreign(headers) or (None if self._has_key(headers) else UNAUTHORIZED)

    def page_refusal(self, headers: Mapping[str, str]) -> RequestError | None:
        """Why a file of the playground is not sent, if it is not: any page may link to it, and it needs no key."""
        return self._foreign({name: value for name, value in headers.items() if name != "sec-fetch-site"})

    def _foreign(self, headers: Mapping[str, str]) -> RequestError | None:
        if self._names is None:
            return None
        host, origin = headers.get("host"), headers.get("origin", "")
        # Without Host it is HTTP/1.0 (RFC 9112, 3.2), and no browser.
        if host is not None and not self._knows(host):
            return ForbiddenError.of("Host", host, EXPECTED)
        scheme, _, authority = origin.partition("://")
        if scheme in WEB and not self._knows(authority) and self.origins.isdisjoint((origin, ANY)):
            return ForbiddenError.of("Origin", origin, f"{EXPECTED}, or --allowed-origin")
        if not origin and headers.get("sec-fetch-site") == "cross-site":
            return ForbiddenError.of("Sec-Fetch-Site", "cross-site", "none, same-origin or same-site")
        return None

    def _knows(self, authority: str) -> bool:
        name, loopback = _named(authority)
        return loopback or (self._names is not None and name in self._names)

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        if self._keys is None:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # Azure's clients have a header of their own for it, and Anthropic's another one.
        given = headers.get("api-key") or headers.get("x-api-key", "")
        if scheme.lower() == "bearer":
            given = token.strip(" \t")
        # Starlette reads headers as Latin-1, whatever their bytes mean.
        sent = given.encode("latin-1")
        # Each is compared, so that the time tells nothing of the key.
        return bool(sent) and sum(hmac.compare_digest(sent, key) for key in self._keys) > 0


def _bytes_of(key: str) -> tuple[bytes, ...]:
    """What clients send for it: its bytes as the environment has them, which are UTF-8.

    Python's `requests` and `urllib`, and browsers, send Latin-1 where it has all characters.
    """
    given = os.fsencode(key)
    try:
        return given, key.encode("latin-1")
    except UnicodeEncodeError:
        return (given,)


UNAUTHORIZED = UnauthorizedError("the API key is missing or wrong: expected the header Authorization: Bearer KEY")


def allowed_names(addresses: Sequence[str], given: Sequence[str]) -> frozenset[str] | None:
    """The names for `Access` of a server bound to `addresses`; `given` are the values of `--allowed-host`.

    Elsewhere than on loopback any name is allowed unless some are given. Raises OptionError for one that is no name.
    """
    names: set[str] = set()
    for one in given:
        name = one if one == "*" else _name_of(one) or _name_of(f"[{one}]")
        if not name:
            raise OptionError(f"--allowed-host {one}: expected a name or an address, or * for any")
        names.add(name)
    if "*" in names or not (names or all(map(_is_loopback, addresses))):
        return None
    return frozenset(names)


def allowed_origins(given: Sequence[str]) -> frozenset[str]:
    """The origins for `Access`, as browsers write them (RFC 6454, 6.2); `given` are the values of `--allowed-origin`.

    Raises OptionError for one that is none.
    """
    return frozenset(map(_origin_of, given))


def _origin_of(given: str) -> str:
    scheme, separator, authority = given.lower().partition("://")
    if given == ANY:
        return ANY
    if not separator or not SCHEME.fullmatch(scheme) or not _name_of(authority):
        expected = "a page's scheme, name and port, as https://app.example:8443, or * for any"
        raise OptionError(f"--allowed-origin {given}: expected {expected}")
    return f"{scheme}://{authority.removesuffix(PORTS.get(scheme, '/'))}"


SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


@lru_cache(64)
def _named(authority: str) -> tuple[str, bool]:
    """Its name, and whether that is loopback's: clients have few, and that is a tenth of reading a request."""
    name = _name_of(authority)
    return name, _is_loopback(name)


def _name_of(authority: str) -> str:
    """The name or the address in `name:port`, in lower case; empty where there is none."""
    found = AUTHORITY.fullmatch(authority)
    return (found["address"] or found["name"]).lower() if found else ""


def _is_loopback(name: str) -> bool:
    """Whether a name or an address is loopback's, whoever looks it up (RFC 6761, 6.3)."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback

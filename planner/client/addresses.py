"""The server's address and the API key, looked at before anything is sent."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import httpx

from costmodel.errors import InvalidInput

_FORMS = "https://planner.example or http://127.0.0.1:8000 is expected"


def server_address(url: str) -> str:
    """The address without a slash at its end.

    Raises:
        InvalidInput: it is no address of a server.
    """
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
        httpx.URL(url.strip())
    except (ValueError, httpx.InvalidURL):
        raise InvalidInput("server", url, _FORMS) from None
    if "@" in parts.netloc:
        shown = f"{parts.scheme}://...@{parts.netloc.rpartition('@')[2]}"
        raise InvalidInput("server", shown, "it must hold no user name or password; an API key has its own place")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InvalidInput("server", url, _FORMS)
    return url.strip().rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is of this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_key(key: str) -> str:
    """The API key, without the line end that files leave behind it.

    Raises:
        InvalidInput: it can't be sent; the error does not show it.
    """
    plain = key.strip()
    if not plain or not plain.isascii() or not plain.isprintable() or " " in plain:
        raise InvalidInput("api-key", "(not shown)", "a key is ASCII letters, digits and punctuation without blanks")
    return plain

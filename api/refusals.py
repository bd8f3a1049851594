"""Requests that are refused before anything is looked at.

Those that only a browser that was led astray would send (another site's form or script and, where no API keys are asked
for, a host name that is not loopback's: DNS rebinding), and bodies that no route would read.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from planner.loopback import is_loopback

Refusal = tuple[int, str]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def refusal(scope: Scope, headers: Headers, *, loopback_only: bool, most_body_bytes: int) -> Refusal | None:
    """Status and reason; None to go on.

    Args:
        loopback_only: whether the request has to name the server by a name of the loopback interface.
        most_body_bytes: largest body; one that does not say how long it is has to be counted as it is read.
    """
    host = headers.get("host", "")
    if loopback_only and not is_loopback(_name_of(host)):
        return 421, "this server asks for no API keys and answers on loopback names only, such as 127.0.0.1"
    if scope["method"] not in _SAFE_METHODS and _crosses_sites(headers, host):
        return 403, "another site's page may not send this"
    return _unreadable(scope["path"], headers, most_body_bytes)


def too_large(most_body_bytes: int) -> Refusal:
    """For a body that turns out to be longer than it may be."""
    return 413, f"at most {most_body_bytes} bytes are read"


def _crosses_sites(headers: Headers, host: str) -> bool:
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    return origin is not None and _netloc_of(origin) != host


def _unreadable(path: str, headers: Headers, most_body_bytes: int) -> Refusal | None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > most_body_bytes:
        return too_large(most_body_bytes)
    if length == "0" and "transfer-encoding" not in headers:
        return None
    if headers.get("content-encoding", "identity").lower() != "identity":
        return 415, "compressed bodies are not read: send it without Content-Encoding"
    if path.startswith("/v1/") and not _is_json(headers.get("content-type", "")):
        return 415, "JSON is expected, with Content-Type: application/json"
    return None


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _netloc_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # an IPv6 address that never ends, say
        return None

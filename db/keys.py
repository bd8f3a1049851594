"""Secrets of API keys. A secret is 256 random bits: nobody guesses it, so a slow hash would protect nothing more."""

from __future__ import annotations

import secrets
from hashlib import sha256

_PREFIX = "pk_"
_BYTES = 32


def new_secret() -> str:
    """A secret that nobody has had before."""
    return _PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of_secret(secret: str) -> str:
    """What the store keeps of it, in hex digits."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

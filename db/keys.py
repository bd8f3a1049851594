"""Scopes and secrets of API keys. A secret is 256 random bits, which nobody guesses: a slow hash would add nothing."""

from __future__ import annotations

import secrets
from hashlib import sha256

SCOPES = ("read", "write", "admin")
"""What a key may do, each including what stands before it."""
_PREFIX = "pk_"
_BYTES = 32


def new_secret() -> str:
    """A secret that nobody has had before."""
    return _PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of_secret(secret: str) -> str:
    """What the store keeps of it, in hex digits."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

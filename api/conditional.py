"""Bodies with an ETag: a client that has the same one already gets 304 and no body."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

FOR_EVER = "private, max-age=31536000, immutable"
ASK_AGAIN = "private, no-cache"


def body_of(answer: BaseModel) -> bytes:
    """An answer as JSON; fields that were never set are left out."""
    return answer.model_dump_json(exclude_unset=True).encode()


def conditional(
    request: Request, body: bytes, *, cache: str = ASK_AGAIN, headers: Mapping[str, str] | None = None
) -> Response:
    """200 with the body, or 304 when ``If-None-Match`` names it."""
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    every = {"ETag": tag, "Cache-Control": cache, **(headers or {})}
    if _matches(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=every)
    return Response(body, headers=every, media_type="application/json")


def _matches(header: str | None, tag: str) -> bool:
    if header is None:
        return False
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in header.split(","))

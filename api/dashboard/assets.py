"""Style sheet, scripts and icon. Their content's digest is in their address, so a browser may keep them for ever."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response

from api.problems import not_found

router = APIRouter(prefix="/static", include_in_schema=False)

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"
_WORTH_PACKING = 2_000  # bytes

PLOTLY = "plotly.min.js"
"""Comes with the installed package, and is loaded only when somebody zooms into a chart."""


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file of a package; ``address`` is where it is served."""

    content: bytes
    media_type: str
    address: str

    @cached_property
    def packed(self) -> bytes:
        """With gzip; worked out once."""
        return gzip.compress(self.content, 6, mtime=0)


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    """All of them by file name; read once."""
    found: dict[str, Asset] = {}
    for file in _files():
        media_type = _TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            content = file.read_bytes()
            address = f"/static/{sha256(content).hexdigest()[:16]}/{file.name}"
            found[file.name] = Asset(content=content, media_type=media_type, address=address)
    return found


def _files() -> Iterator[Traversable]:
    own = resources.files("api.dashboard") / "static"
    yield from (file for folder in (own, own / "vendor") for file in folder.iterdir() if file.is_file())
    yield resources.files("plotly") / "package_data" / PLOTLY


# No API key is asked for: the page that asks for one is styled too, and there is nothing secret in these files.
@router.get("/{digest}/{name}")
def get_asset(digest: str, name: str, accept_encoding: Annotated[str, Header()] = "") -> Response:
    """A file under the address that pages name it by; any other digest is of another version."""
    asset = assets().get(name)
    if asset is None or asset.address != f"/static/{digest}/{name}":
        raise not_found("file", name)
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
    if "gzip" in accept_encoding.lower() and len(asset.content) > _WORTH_PACKING:
        return Response(asset.packed, media_type=asset.media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(asset.content, media_type=asset.media_type, headers=headers)

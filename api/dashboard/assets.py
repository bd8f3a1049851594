"""Style sheet, script and icon. Their content's digest is in their address, so a browser may keep them for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib import resources

from fastapi import APIRouter
from fastapi.responses import Response

from api.problems import not_found

router = APIRouter(prefix="/static", include_in_schema=False)

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file of the package; ``address`` is where it is served."""

    content: bytes
    media_type: str
    address: str


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    """All of them by file name; read once."""
    found: dict[str, Asset] = {}
    for file in (resources.files("api.dashboard") / "static").iterdir():
        media_type = _TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            content = file.read_bytes()
            address = f"/static/{sha256(content).hexdigest()[:16]}/{file.name}"
            found[file.name] = Asset(content=content, media_type=media_type, address=address)
    return found


# No API key is asked for: the page that asks for one is styled too, and there is nothing secret in these files.
@router.get("/{digest}/{name}")
def get_asset(digest: str, name: str) -> Response:
    """A file under the address that pages name it by; any other digest is of another version."""
    asset = assets().get(name)
    if asset is None or asset.address != f"/static/{digest}/{name}":
        raise not_found("file", name)
    return Response(asset.content, media_type=asset.media_type, headers={"Cache-Control": _FOR_EVER})

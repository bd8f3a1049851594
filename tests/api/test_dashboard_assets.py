"""Files that pages load: those of others are as they were published, and big ones travel packed."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256
from importlib import resources

from api.dashboard.assets import PLOTLY, assets, get_asset

_STATIC = resources.files("api.dashboard") / "static"
_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\| `(?P<digest>[0-9a-f]{64})` \|$", re.MULTILINE)


def test_files_of_others_are_those_that_are_named() -> None:
    vendor = _STATIC / "vendor"
    named = dict(_ROW.findall((vendor / "README.md").read_text(encoding="utf-8")))
    there = {file.name: sha256(file.read_bytes()).hexdigest() for file in vendor.iterdir() if file.name != "README.md"}
    assert there == named
    assert named


def test_big_files_travel_packed_to_whoever_can_unpack_them() -> None:
    asset = assets()[PLOTLY]
    digest, name = asset.address.removeprefix("/static/").split("/")
    packed = get_asset(digest, name, "gzip, deflate, br")
    plain = get_asset(digest, name, "identity")
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed.body) == plain.body == asset.content
    assert len(packed.body) < len(plain.body) / 2
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "immutable" in packed.headers["cache-control"]


def test_no_sheet_and_no_script_of_ours_names_another_host() -> None:
    own = [file for file in _STATIC.iterdir() if file.name.endswith((".css", ".js"))]
    assert own
    for file in own:
        assert not re.search(r"(?:https?:)?//[\w.-]+\.\w", file.read_text(encoding="utf-8")), file.name

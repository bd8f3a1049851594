"""nanotron as a target."""

from __future__ import annotations

from planner.export.nanotron.read import read
from planner.export.nanotron.write import WORDS, program, write
from planner.export.target import Target

TARGET = Target(
    name="nanotron",
    title="nanotron YAML",
    kind="framework",
    frameworks=("nanotron",),
    versions=WORDS.versions,
    write=write,
    program=program,
    read=read,
    verified="get_config_from_dict of nanotron 0.4 (PyPI); 2026-04 is no release, its keys were read",
)

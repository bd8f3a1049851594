"""MaxText as a target."""

from __future__ import annotations

from planner.export.maxtext.read import read
from planner.export.maxtext.write import WORDS, program, write
from planner.export.target import Target

TARGET = Target(
    name="maxtext",
    title="MaxText YAML",
    kind="framework",
    frameworks=("maxtext",),
    versions=WORDS.versions,
    write=write,
    program=program,
    read=read,
    verified="MaxTextConfig (configs/types.py) of maxtext 0.2.5 (PyPI) over its base.yml",
)

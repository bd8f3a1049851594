"""torchtitan as a target."""

from __future__ import annotations

from planner.export.target import Target
from planner.export.torchtitan.read import read
from planner.export.torchtitan.settings import NAME, WORDS
from planner.export.torchtitan.write import program, write

TARGET = Target(
    name=NAME,
    aliases=("titan",),
    title="torchtitan",
    kind="framework",
    frameworks=("torchtitan",),
    versions=WORDS.versions,
    write=write,
    program=program,
    read=read,
    verified=(
        "0.3.0's ConfigManager and Trainer take the recipes up to the parallelised model; 0.2.2's ConfigManager takes "
        "the files"
    ),
)

"""DeepSpeed as a target."""

from __future__ import annotations

from planner.export.deepspeed.read import read
from planner.export.deepspeed.write import WORDS, program, write
from planner.export.target import Target

TARGET = Target(
    name="deepspeed",
    title="DeepSpeed JSON",
    kind="framework",
    frameworks=("deepspeed",),
    versions=WORDS.versions,
    write=write,
    program=program,
    read=read,
    verified="DeepSpeedConfig and validate_autoep_config of deepspeed 0.18.2 and 0.19.8",
)

"""Hugging Face Accelerate as a target."""

from __future__ import annotations

from planner.export.accelerate.read import read
from planner.export.accelerate.settings import NAME, WORDS
from planner.export.accelerate.write import program, write
from planner.export.target import Target

TARGET = Target(
    name=NAME,
    aliases=("hf-accelerate", "huggingface-accelerate"),
    title="Accelerate",
    kind="framework",
    frameworks=("accelerate",),
    versions=WORDS.versions,
    write=write,
    program=program,
    read=read,
    verified=(
        "argument handling, environment, FSDP plugin and ParallelismConfig of 1.10.0, 1.12.0 and 1.15.0 take the files"
    ),
)

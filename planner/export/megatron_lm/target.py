"""Megatron-LM as a target."""

from __future__ import annotations

from planner.export.megatron_lm.read import read
from planner.export.megatron_lm.write import NAME, program, words, write
from planner.export.target import Target

TARGET = Target(
    name=NAME,
    aliases=("megatron", "megatron-core", "mcore"),
    title="Megatron-LM",
    kind="framework",
    frameworks=("megatron-core",),
    versions=words().versions,
    write=write,
    program=program,
    read=read,
    verified=(
        "0.17.1: its own command line (megatron/training/arguments.py) takes it, its configuration lays out the same "
        "layers; 0.9.0, 0.12.0, 0.14.0: the configuration classes do, of wheels that lack the command line"
    ),
)

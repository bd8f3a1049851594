"""Megatron-Bridge as a target."""

from __future__ import annotations

from planner.export.megatron_bridge.read import read
from planner.export.megatron_bridge.write import NAME, program, words, write
from planner.export.target import Target

TARGET = Target(
    name=NAME,
    aliases=("bridge", "mbridge"),
    title="Megatron-Bridge",
    kind="framework",
    frameworks=("megatron-bridge",),
    versions=words().versions,
    write=write,
    program=program,
    read=read,
    verified=(
        "0.3.1: its own override parser puts them into its configuration, which it validates and makes whole, over "
        "megatron-core 0.16.1"
    ),
)

"""NeMo 2 as a target."""

from __future__ import annotations

from planner.export.nemo.read import read
from planner.export.nemo.write import NAME, program, words, write
from planner.export.target import Target

TARGET = Target(
    name=NAME,
    aliases=("nemo2", "nemo-run"),
    title="NeMo",
    kind="framework",
    frameworks=("nemo",),
    versions=words().versions,
    write=write,
    program=program,
    read=read,
    verified=(
        "not in the tests (NeMo is too heavy): by hand NeMo-Run 0.11.1's parser put 80 exports into NeMo 2.5.0's "
        "signatures and megatron-core 0.14.0's configuration, which took them; documented commands are read"
    ),
)

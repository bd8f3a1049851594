"""Logs as nccl-tests and rccl-tests print them, from known points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Points = Sequence[tuple[int, float]]

_COLUMNS = "time   algbw   busbw #wrong"
_FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
_REDUCING = ("all_reduce", "reduce_scatter", "sendrecv")


def header(ranks: int = 8, hosts: int = 1, device: str = "NVIDIA H100 80GB HBM3") -> list[str]:
    """The lines before a table."""
    on_host = ranks // hosts
    return [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} on node{rank // on_host} device {rank % on_host:2d} "
            f"[0000:{rank:02x}:00] {device}"
            for rank in range(ranks)
        ),
        "#",
    ]


def table(op: str, points: Points, ranks: int = 8) -> list[str]:
    """The table of a sweep with its ends."""
    factor = _FACTORS[op] * (ranks - 1) / ranks if op in _FACTORS else 1.0
    reduction = "sum" if op in _REDUCING else "none"
    lines = [
        "#                                                              out-of-place                       in-place",
        f"#       size         count      type   redop    root     {_COLUMNS}     {_COLUMNS}",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
    ]
    for size, microseconds in points:
        rate = size / microseconds / 1e3
        measured = f"{microseconds:8.2f} {rate:7.2f} {rate * factor:7.2f}"
        checked = "N/A" if op in ("alltoall", "sendrecv") else "0"
        lines.append(
            f"{size:12d} {size // 4:13d}     float {reduction:>7}      -1 {measured}      0 {measured} {checked:>6}"
        )
    return [*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 41.7", "#"]


def log(
    op: str, points: Points, ranks: int = 8, hosts: int = 1, device: str = "NVIDIA H100 80GB HBM3", named: bool = True
) -> str:
    """One test. ``named``: as newer versions do, which say what they test."""
    starting = [f"# Collective test starting: {op}_perf"] if named else []
    return "\n".join([*starting, *header(ranks, hosts, device), *table(op, points, ranks)]) + "\n"


def written(folder: Path, text: str, name: str = "test.log") -> str:
    """The path of a file with that text."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)

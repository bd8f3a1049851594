"""Which machine this is, and where its files are looked for."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CLUSTER = "this-machine.yaml"
RUN = "run.csv"
CPU_FAMILY = "cpu"
"""Of devices that are processes of a CPU."""
CPU_BACKEND = "gloo"
"""What a run says of its links that was on CPUs."""


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """A machine whose ranks are measured together.

    Attributes:
        device: as the driver names it; for a process of a CPU the processor and the threads.
        memory_bytes: of one rank.
        threads: of one rank, 0 on accelerators.
    """

    device: str
    host: str
    backend: str
    ranks: int
    memory_bytes: int
    threads: int = 0


def cpu_name(threads: int) -> str:
    """One process of this machine's CPU, as its files call it: ``cpu-amd-epyc-1-thread``."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2]
                break
    words = re.findall(r"[a-z0-9]+", model.lower()) or ["unknown"]
    return "-".join(["cpu", *words, str(threads), "thread" if threads == 1 else "threads"])


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

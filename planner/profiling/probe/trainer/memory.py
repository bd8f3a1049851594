"""How much memory a rank has taken: the allocator's counts on an accelerator, the process's resident pages on a CPU."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_KIB = 1024


class Peaks:
    """From now on.

    Attributes:
        at_start: resident bytes before the model, of interpreter and libraries; what the model takes comes on top.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.at_start = _status("VmRSS")

    def begin(self) -> None:
        """Forget peaks so far: what building needed is no part of a step."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            # Where the kernel doesn't let us, the peak is that of the whole process.
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def now(self) -> dict[str, int]:
        """Name of a figure -> bytes of this rank."""
        if self.device.type == "cuda":
            return {
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(self.device),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(self.device),
            }
        return {"peak_rss_bytes": _status("VmHWM"), "rss_before_model_bytes": self.at_start}


def limit_memory(bytes_: int) -> None:
    """Let this process take so many bytes beyond what it has, so that a CPU process has a memory like a device's.

    Not RLIMIT_AS: that also counts the files that libraries map.
    """
    most = _status("VmData") + bytes_
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _status(name: str) -> int:
    """A field of this process's status, bytes."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * _KIB
    unit = 1 if sys.platform == "darwin" else _KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

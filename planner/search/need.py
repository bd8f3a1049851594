"""What a plan needs of the memory of the devices and of the hosts, and which of them is short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Memory = Literal["device", "host"]

_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Need:
    """Bytes that one plan needs, and what there is.

    Attributes:
        device_bytes: allocated on the fullest stage; ``usable_bytes`` is what a device has for it.
        host_bytes: of what is offloaded, in the memory of one node, all its devices together.
        host_memory_bytes: of a node; None where nobody knows.
    """

    device_bytes: float
    usable_bytes: int
    host_bytes: float
    host_memory_bytes: int | None

    @classmethod
    def of_prediction(cls, prediction: dict[str, Any]) -> Need:
        """Of a prediction in the words of the answer."""
        memory = prediction["memory"]
        return cls(
            device_bytes=memory["peak_bytes"],
            usable_bytes=memory["usable_bytes"],
            # Answers of earlier versions don't say what lies with the hosts.
            host_bytes=memory.get("host_bytes_per_node", 0),
            host_memory_bytes=memory.get("host_memory_bytes_per_node"),
        )

    @property
    def short_of(self) -> tuple[Memory, ...]:
        """Which memory the plan does not fit into; empty when it fits."""
        device: tuple[Memory, ...] = ("device",) if self.device_bytes > self.usable_bytes else ()
        return (*device, "host") if self.host_over_bytes > 0 else device

    @property
    def fits(self) -> bool:
        """Whether both have the room."""
        return not self.short_of

    @property
    def lack(self) -> float:
        """What is needed beyond each memory over what there is, added up; 0 when the plan fits."""
        device = max(self.device_bytes / max(self.usable_bytes, 1) - 1.0, 0.0)
        return device + (self.host_over_bytes / self.host_memory_bytes if self.host_memory_bytes else 0.0)

    @property
    def host_over_bytes(self) -> float:
        """What is needed beyond the memory of a node; 0 where it has the room, or nobody knows how much it has."""
        if self.host_memory_bytes is None:
            return 0.0
        return max(self.host_bytes - self.host_memory_bytes, 0.0)

    @property
    def hosts(self) -> str:
        """``3401.8 of 2048.0 GiB of host memory per node``; empty when nothing is offloaded."""
        if not self.host_bytes:
            return ""
        there = f" of {self.host_memory_bytes / _GIB:.1f}" if self.host_memory_bytes is not None else ""
        return f"{self.host_bytes / _GIB:.1f}{there} GiB of host memory per node"

    @property
    def verdict(self) -> str:
        """``it does not fit into the memory of the hosts``, and the like."""
        return {
            (): "it fits",
            ("device",): "it does not fit",
            ("host",): "it does not fit into the memory of the hosts",
            ("device", "host"): "it fits neither the devices nor the memory of the hosts",
        }[self.short_of]

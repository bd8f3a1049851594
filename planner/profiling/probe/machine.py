"""What was measured of a machine, as the files that ``planner calibrate`` and ``--cluster`` read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from costmodel.catalog.spellings import recognise_accelerator
from costmodel.catalog.typical_clusters import typical_cluster
from costmodel.spec.collective import CollectiveOp, MeasuredCollective
from planner.profiling.probe.facts import CLUSTER, CPU_FAMILY, MachineFacts

GEMMS, ATTENTION, MEMORY = "gemms.csv", "attention.csv", "memory.csv"
_GEMM_COLUMNS = ("gpu", "precision", "m", "n", "k", "tflops")
_ATTENTION_COLUMNS = ("gpu", "precision", "pass", "batch", "seqlen", "heads", "head_dim_qk", "causal", "time_ms")
_MEMORY_COLUMNS = ("gpu", "bytes", "seconds", "bytes_per_s")
_PROGRAMS: Mapping[CollectiveOp, str] = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
_REDUCING = ("all_reduce", "reduce_scatter")
_NETWORK = "tcp"
_TERA, _GIGA, _MICRO = 1e12, 1e9, 1e6


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One collective over sizes: (bytes as nccl-tests counts them, seconds)."""

    op: CollectiveOp
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Of one machine, each figure that of the slowest of its ranks while all work.

    Attributes:
        gemms: (precision, m, n, k, seconds).
        attention: (precision, pass, batch, tokens, heads, head_dim, seconds) of the causal core.
        memory: (bytes read and written, seconds) of an elementwise operation.
    """

    facts: MachineFacts
    gemms: tuple[tuple[str, int, int, int, float], ...]
    attention: tuple[tuple[str, str, int, int, int, int, float], ...] = ()
    memory: tuple[tuple[int, float], ...]
    sweeps: tuple[Sweep, ...] = field(default=())

    def files(self) -> dict[str, str]:
        """Name -> text."""
        device = self.facts.device
        gemms = [(device, *row[:4], _flops(row) / row[4] / _TERA) for row in self.gemms]
        attention = [(device, *row[:6], "true", row[6] * 1e3) for row in self.attention]
        memory = [(device, moved, seconds, moved / seconds) for moved, seconds in self.memory]
        logs = {f"{sweep.op}.log": log_text(sweep, self.facts) for sweep in self.sweeps}
        return {
            GEMMS: _csv(_GEMM_COLUMNS, gemms),
            ATTENTION: _csv(_ATTENTION_COLUMNS, attention),
            MEMORY: _csv(_MEMORY_COLUMNS, memory),
            **logs,
            CLUSTER: yaml.safe_dump(self.cluster(), sort_keys=False, allow_unicode=True),
        }

    def cluster(self) -> dict[str, Any]:
        """The machine as a cluster file has it: that of the catalog with these links where its devices are known."""
        facts, today = self.facts, datetime.now(UTC).date().isoformat()
        found: dict[str, Any] = {"name": "this-machine"}
        known = recognise_accelerator(facts.device)
        if facts.threads or known.how == "default":
            found |= {"accelerator": self._accelerator(today), "tiers": self._tiers()}
            found |= {"devices_per_node": facts.ranks, "max_devices": facts.ranks}
        else:
            found |= {"extends": typical_cluster(known.accelerator).name, "accelerator": known.accelerator.name}
        found["collectives"] = [
            MeasuredCollective(op=of.op, ranks=facts.ranks, points=_points(of)).model_dump(
                mode="json", include={"op", "ranks", "points"}
            )
            for of in self.sweeps
        ]
        return found | {"source": f"measured by the probe on {facts.host}", "retrieved": today}

    def _accelerator(self, today: str) -> dict[str, Any]:
        facts = self.facts
        peaks: dict[str, float] = {}
        for row in self.gemms:
            peaks[row[0]] = max(peaks.get(row[0], 0.0), _flops(row) / row[4])
        return {
            "name": facts.device,
            "vendor": "CPU",
            "family": CPU_FAMILY,
            "memory_bytes": facts.memory_bytes,
            "memory_note": f"the machine's memory over {facts.ranks} processes",
            "memory_bandwidth_bytes_per_s": self._beyond_caches(),
            "peak_flops_per_s": peaks,
            "source": f"the fastest products and passes of the probe with {facts.threads} threads a process",
            "retrieved": today,
        }

    def _beyond_caches(self) -> float:
        """Bytes/s of the largest pass: smaller ones may stay in caches."""
        moved, seconds = max(self.memory)
        return moved / seconds

    def _tiers(self) -> list[dict[str, Any]]:
        """One, at the best rate that a message between neighbours had."""
        sent = [size / seconds for of in self.sweeps if of.op == "send_recv" for size, seconds in of.points]
        if not sent:
            return []
        tier = {"name": "loopback", "kind": _NETWORK, "group_devices": self.facts.ranks}
        return [tier | {"bandwidth_bytes_per_s": max(sent)}]


def _flops(row: tuple[str, int, int, int, float]) -> float:
    return 2.0 * row[1] * row[2] * row[3]


def _points(sweep: Sweep) -> tuple[tuple[int, float], ...]:
    return tuple((size, seconds * _MICRO) for size, seconds in sweep.points)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return stream.getvalue()


def log_text(sweep: Sweep, facts: MachineFacts) -> str:
    """A sweep as nccl-tests prints it, which ``costmodel.calibration.microbenchmarks.collective_log`` reads."""
    ranks, share = facts.ranks, (facts.ranks - 1) / facts.ranks
    bus = {"all_reduce": 2.0 * share, "send_recv": 1.0}.get(sweep.op, share)
    reduces = "sum" if sweep.op in _REDUCING else "none"
    lines = [f"# nThread 1, measured by the probe over {facts.backend}", "# Using devices"]
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {rank + 1} on {facts.host} device {rank:2d} [0x00] {facts.device}"
        for rank in range(ranks)
    ]
    lines.append(f"# Collective test starting: {_PROGRAMS.get(sweep.op, sweep.op)}_perf")
    lines.append("#       size         count      type   redop    root     time   algbw   busbw #wrong")
    lines.append("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)")
    rates = []
    for size, seconds in sweep.points:
        rate = size / seconds / _GIGA
        rates.append(rate * bus)
        lines.append(
            f"{size:12d} {size // 4:13d}     float {reduces:>7} {-1:7d} {seconds * _MICRO:8.2f} {rate:7.4f} "
            f"{rate * bus:7.4f}      0"
        )
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(rates) / len(rates):.4f}"]
    return "\n".join(lines) + "\n"

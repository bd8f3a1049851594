"""Prices of meshes that the procedure tries: for each the fastest plan that fits, or the one that lacks the least.

Everything is priced and judged by the functions that the search uses: pins, forbids and the framework's rules hold, and
a mesh without a plan says which of them forbids it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.facts import Facts
from costmodel.predict import predict, predict_stages
from costmodel.rules import broken, legal_mask
from costmodel.table import PlanTable, stage_table
from planner.search.choices import policies
from planner.search.need import Need
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import LARGEST_MICRO_BATCH, MESH_AXES, divisors


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A mesh without its data parallelism, which takes what devices are left.

    Attributes:
        zero_stages: what may be sharded; None for all that the framework offers.
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    zero_stages: tuple[int, ...] | None = None

    @property
    def devices(self) -> int:
        """Of one replica."""
        return self.tp * self.cp * self.pp


@dataclass(frozen=True, kw_only=True)
class Found:
    """A priced plan of a shape; ``time`` has seconds by part, ``memory`` bytes by term on the fullest stage."""

    shape: Shape
    row: dict[str, int]
    step_time_s: float
    need: Need
    time: dict[str, float]
    memory: dict[str, float]

    @property
    def fits(self) -> bool:
        """Into the devices, and what is offloaded into the hosts."""
        return self.need.fits

    @property
    def peak_bytes(self) -> float:
        """Allocated on the fullest stage."""
        return self.need.device_bytes

    def share(self, part: str) -> float:
        """Of the step time."""
        return self.time.get(part, 0.0) / self.step_time_s


@dataclass(frozen=True, kw_only=True)
class Pricer:
    """Prices shapes for one request."""

    request: SearchRequest
    facts: Facts

    def best(self, shape: Shape, *, tuned: bool = False) -> Found | None:
        """The best plan of one shape; None when no plan of it is legal.

        Args:
            tuned: try all micro-batches, virtual stages and layouts, not only the plainest.
        """
        return self.best_of([shape], tuned=tuned)[0]

    def best_of(self, shapes: Sequence[Shape], *, tuned: bool = False, largest: int = 1) -> list[Found | None]:
        """The same for many shapes at once.

        Args:
            largest: micro-batch that is tried beside the smallest one where not all are.
        """
        table, owner = self._plans(shapes, tuned, largest)
        legal = legal_mask(self.request.scenario, table) if len(table) else np.zeros(0, dtype=np.bool_)
        table, owner = table.take(legal), owner[legal]
        if not len(table):
            return [None] * len(shapes)
        priced = predict(self.facts, table, stage_table(self.request.scenario, table))
        lack = priced.lack(self.facts, float(self.request.scenario.usable_bytes))
        found: list[Found | None] = []
        for place, shape in enumerate(shapes):
            at = np.flatnonzero(owner == place)
            if not len(at):
                found.append(None)
                continue
            good = at[lack[at] <= 0.0]
            one = (
                good[priced.step_time_s[good].argmin()]
                if len(good)
                else at[np.lexsort((priced.peak_bytes[at], lack[at]))[0]]
            )
            found.append(self.priced(shape, table.row(int(one))))
        return found

    def priced(self, shape: Shape, row: dict[str, int]) -> Found:
        """One plan in full."""
        scenario, table = self.request.scenario, PlanTable.of_rows([row])
        full = predict_stages(self.facts, table, stage_table(scenario, table, every_stage=True))
        worst = int(sum(term[0] for term in full.memory.values()).argmax())
        return Found(
            shape=shape,
            row=row,
            step_time_s=float(full.step_time_s[0]),
            need=Need(
                device_bytes=float(full.peak_bytes[0]),
                usable_bytes=scenario.usable_bytes,
                host_bytes=float(full.host_bytes[0]),
                host_memory_bytes=scenario.cluster.host_memory_bytes_per_node,
            ),
            time={name: float(part[0]) for name, part in full.time.items()},
            memory={name: float(term[0, worst]) for name, term in full.memory.items()},
        )

    def why_none(self, shape: Shape) -> str:
        """Why a shape has no plan: no degree of data parallelism, pins, or the rules that one of its plans breaks."""
        scenario = self.request.scenario
        if not self._replicas(shape):
            least, most = -(-self.request.least_devices // shape.devices), scenario.devices // shape.devices
            batch = scenario.workload.global_batch_size
            if not most:
                return f"one replica takes {shape.devices} of {scenario.devices} devices"
            if least > most:
                enough = f"so many that {self.request.least_devices} of {scenario.devices} devices are used"
                return f"no number of replicas of {shape.devices} devices is {enough}"
            return (
                f"no dp of {least}..{most} divides a batch of {batch} sequences"
                if least < most
                else f"dp {most} does not divide a batch of {batch} sequences"
            )
        table, _ = self._plans([shape], tuned=False, largest=1)
        if not len(table):
            return "pins leave no such plan"
        return "; ".join(f"{rule.name}: {reason}" for rule, reason in broken(scenario, table.row(0))[:2])

    def _replicas(self, shape: Shape) -> list[int]:
        request = self.request
        low = max(1, -(-request.least_devices // shape.devices))
        high = request.scenario.devices // shape.devices
        values = request.constraints.domain("dp", divisors(request.scenario.workload.global_batch_size))
        return [
            dp for dp in values if low <= dp <= high and request.constraints.allows("devices_used", shape.devices * dp)
        ][-1:]

    def _plans(
        self, shapes: Sequence[Shape], tuned: bool, largest: int
    ) -> tuple[PlanTable, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """All plans to be tried, and the place of each one's shape."""
        request = self.request
        batch, constraints = request.scenario.workload.global_batch_size, request.constraints
        meshes: list[tuple[int, ...]] = []
        owners: list[int] = []
        for place, shape in enumerate(shapes):
            for dp in self._replicas(shape):
                if shape.ep * shape.etp > shape.tp * shape.cp * dp:
                    continue
                sizes = [
                    size
                    for size in constraints.domain("micro_batch_size", divisors(batch // dp))
                    if size <= LARGEST_MICRO_BATCH
                    and batch % (dp * size) == 0
                    and constraints.allows("num_microbatches", batch // (dp * size))
                ]
                for size in sizes if tuned else [size for size in sizes if size in (sizes[0], largest)]:
                    axes = (shape.tp, shape.cp, shape.pp, dp, shape.ep, shape.etp, size, batch // (dp * size))
                    meshes.append(axes)
                    owners.append(place)
        columns = np.array(meshes, dtype=np.int64).reshape(-1, len(MESH_AXES)).T
        mesh, policy = (grid.ravel() for grid in np.indices((len(meshes), len(policies(request)))))
        rows, pair = rows_of(request, dict(zip(MESH_AXES, columns, strict=True)), policy, mesh)
        table, row = expand(request, rows, every_layout=tuned)
        owner = np.array(owners, dtype=np.int64)[mesh[pair[row]]]
        stages = [set(shape.zero_stages) if shape.zero_stages is not None else None for shape in shapes]
        wanted = [
            allowed is None or zero in allowed
            for zero, allowed in zip(
                table["zero_stage"].tolist(), (stages[place] for place in owner.tolist()), strict=True
            )
        ]
        kept = np.array(wanted, dtype=np.bool_)
        return table.take(kept), owner[kept]

"""Sweeps of collectives against the formulas that plans are priced by (``costmodel.collectives``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.arrays import Num, num
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.microbenchmarks.collective_log import LoggedSweep, read_collective_log
from costmodel.calibration.microbenchmarks.devices import Devices
from costmodel.calibration.microbenchmarks.evidence import Evidence, Place, facts_of
from costmodel.calibration.microbenchmarks.settings import microbenchmark_settings
from costmodel.calibration.parameters import Parameters
from costmodel.catalog.framework_catalog import load_precision
from costmodel.collectives import TierCost, all_gather, all_reduce, all_to_all, neighbours, reduce_scatter
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec
from costmodel.spec.collective import CollectiveOp, MeasuredCollective

_TOLD_BY = (
    "scale_up_efficiency",
    "pcie_efficiency",
    "scale_out_efficiency",
    "all_to_all_factor",
    "in_network_gain",
    "in_network_gain_across",
    "scale_up_latency_s",
    "scale_out_latency_s",
    "scale_up_hop_s",
    "scale_out_hop_s",
)
_ONE_COPY = num(1.0)
_COSTS: Mapping[CollectiveOp, Callable[[Facts, Num, Num], TierCost]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": lambda facts, group, stride: all_to_all(facts, group, stride, _ONE_COPY),
    "send_recv": neighbours,
}


@dataclass(frozen=True, kw_only=True)
class PlacedSweep:
    """A sweep, and where on which cluster its ranks lie: every ``stride``-th device."""

    sweep: LoggedSweep
    cluster: ClusterSpec
    stride: int

    @property
    def for_cluster_file(self) -> MeasuredCollective | None:
        """As a cluster file takes it under ``collectives``; None for what no file takes."""
        domains = -(-self.sweep.ranks * self.stride // max(self.cluster.scale_up_devices, self.stride))
        if self.sweep.ranks % domains or len(self.sweep.points) < 2:
            return None
        return MeasuredCollective(
            op=self.sweep.op, ranks=self.sweep.ranks, domains=domains, points=self.sweep.points, source=self.sweep.file
        )


def collective_evidence(
    paths: Sequence[str], devices: Devices, calibration: Calibration, field: str = "collectives"
) -> tuple[Evidence, list[PlacedSweep], list[str]]:
    """(what logs say, their sweeps, what was passed over and why).

    Raises:
        InvalidInput: a log is unusable, of a device that isn't known or not of the cluster, or doesn't lie on it.
    """
    notes: list[str] = []
    placed: list[PlacedSweep] = []
    for path in paths:
        sweeps, passed_over = read_collective_log(path, field)
        notes += passed_over
        for sweep in sweeps:
            where = f"{sweep.file}:{sweep.line}"
            accelerator = devices.named(sweep.device, where, field)
            placed.append(_placed(sweep, _cluster(accelerator, devices, where), where, field))
    return _evidence(placed, calibration), placed, notes


def _cluster(accelerator: AcceleratorSpec, devices: Devices, where: str) -> ClusterSpec:
    known = devices.cluster
    if known is None:
        return devices.place_of(accelerator)
    if known.accelerator.name != accelerator.name:
        raise InvalidInput(
            "cluster", known.name, f"its devices are {known.accelerator.name}, in {where} {accelerator.name}"
        )
    return known


def _placed(sweep: LoggedSweep, cluster: ClusterSpec, where: str, field: str) -> PlacedSweep:
    node, on_host = cluster.devices_per_node, sweep.ranks // sweep.hosts
    if on_host > node:
        expected = (
            f"{on_host} ranks are on one host, where {cluster.name} has {node} devices: name the cluster with --cluster"
        )
        raise InvalidInput(field, where, expected)
    if sweep.hosts > 1 and node % on_host:
        raise InvalidInput(field, where, f"{on_host} ranks on each host have to lie evenly on its {node} devices")
    stride = node // on_host if sweep.hosts > 1 else 1
    if cluster.max_devices is not None and sweep.ranks * stride > cluster.max_devices:
        expected = f"{sweep.ranks} ranks don't lie on {cluster.name}, which has {cluster.max_devices}: use --cluster"
        raise InvalidInput(field, where, expected)
    return PlacedSweep(sweep=sweep, cluster=cluster, stride=stride)


def _evidence(placed: Sequence[PlacedSweep], calibration: Calibration) -> Evidence:
    rows = [(of, size, microseconds) for of in placed for size, microseconds in of.sweep.points]
    # The precision is that of plans, which collectives know nothing of.
    scales, usual = microbenchmark_settings().scales, load_precision("bf16")
    most = max(of.sweep.ranks * of.stride for of in placed)
    places = tuple(Place(cluster=of.cluster, precision=usual, devices=most) for of, _, _ in rows)
    facts = facts_of(places, calibration)
    size, microseconds = num([(size, time) for _, size, time in rows]).T
    group, stride = num([(of.sweep.ranks, of.stride) for of, _, _ in rows]).T
    ops = np.array([of.sweep.op for of, _, _ in rows])
    index = {op: np.flatnonzero(ops == op) for op in _COSTS if (ops == op).any()}

    def predicted(values: Mapping[str, Num]) -> Num:
        now, seconds = replace(facts, cal=Parameters(**values)), np.empty_like(size)
        for op, of_op in index.items():
            seconds[of_op] = _COSTS[op](now.take(of_op), group[of_op], stride[of_op]).seconds(size[of_op])
        logs: Num = np.log(seconds)
        return logs

    return Evidence(
        kind="collectives",
        places=places,
        sweeps=tuple(f"{of.sweep.file}:{of.sweep.line}" for of, _, _ in rows),
        alike=tuple(f"{of.sweep.file}:{of.sweep.line} {bytes_ < scales.small_message_bytes}" for of, bytes_, _ in rows),
        logs=np.log(microseconds * 1e-6),
        scales=np.where(size < scales.small_message_bytes, scales.small_collective, scales.collective),
        base=facts.cal,
        predicted=predicted,
        told_by=_TOLD_BY,
    )

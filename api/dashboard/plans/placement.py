"""Where each axis lies on the cluster's tiers: a picture of the devices of one group, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.plans.stored import Priced
from api.dashboard.words import KINDS, number
from costmodel.facts import Facts
from costmodel.placement import Crossed, PlacedGroup, placement_of
from costmodel.spec.cluster import SCALE_UP_KINDS, ClusterSpec, TierSpec
from costmodel.spec.plan import Plan

_WORDS = {
    "tp": ("tp", "a layer"),
    "cp": ("cp", "a sequence"),
    "etp": ("etp", "an expert"),
    "ep": ("ep", "the experts of a layer"),
    "dp": ("dp", "gradients and state"),
    "dp_replicate": ("dp replicas", "copies of the shards"),
    "expert_dp": ("dp of experts", "gradients and state of experts"),
    "expert_dp_replicate": ("dp replicas of experts", "copies of their shards"),
    "pp": ("pp", "the layers, as stages"),
}
_TIMES = {"tp": "tp_comm", "cp": "cp_comm", "ep": "ep_comm", "dp": "dp_comm", "pp": "pp_comm"}
_CELL, _GAP, _ACROSS = 8, 2, 8  # pixels of a device, between two, and devices side by side in a node
_WIDEST = 420
_MOST_CELLS = 144  # of a domain that is drawn whole; of larger ones (pods) the nodes that hold members are


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A device."""

    x: float
    y: float
    member: bool
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A node, or a scale-up domain around several."""

    x: float
    y: float
    width: float
    height: float
    outer: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The devices of a group among their neighbours.

    Attributes:
        texts: with the place of their middle.
        told: all of it in words.
    """

    width: float
    height: float
    frames: tuple[Frame, ...]
    cells: tuple[Cell, ...]
    texts: tuple[tuple[float, float, str], ...]
    told: str


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An axis.

    Attributes:
        tone: ``near`` inside a scale-up domain, ``far`` beyond, ``farther`` over the outermost of several networks.
        links: the slowest tier that it crosses, with what a device has of it and reaches, in GB/s.
        exposed_s: seconds of the step that this axis's communication keeps; None where it has no part of its own.
    """

    axis: str
    what: str
    size: str
    apart: str
    tone: str
    stays: str
    links: str
    wire: str
    reached: str
    exposed_s: float | None
    picture: Picture


def placed(priced: Priced, time: Mapping[str, float]) -> list[Placed]:
    """Every axis of more than one rank."""
    cluster, plan = priced.scenario.cluster, priced.plan
    facts = Facts.of(priced.scenario)
    return [_placed(group, cluster, plan, time) for group in placement_of(priced.scenario, facts, plan)]


def _placed(group: PlacedGroup, cluster: ClusterSpec, plan: Plan, time: Mapping[str, float]) -> Placed:
    axis, what = _WORDS[group.name]
    last: Crossed | None = group.crossed[-1] if group.crossed else None
    tier = cluster.tiers[last.tier] if last is not None else None
    stays = _stays(group, cluster)
    return Placed(
        axis=axis,
        what=what,
        size=_size(group, plan),
        apart="neighbours" if group.stride == 1 else f"every {_ordinal(group.stride)} rank",
        tone=_tone(last, cluster),
        stays=stays,
        links="" if tier is None else _links(tier),
        wire="" if tier is None else f"{tier.effective_bandwidth_bytes_per_s / 1e9:.4g}",
        reached="" if last is None else f"{last.reached_bytes_per_s / 1e9:.3g}",
        exposed_s=time.get(_TIMES.get(group.name, "")),
        picture=_picture(group, cluster, plan, f"{axis} of {group.size} ranks: {stays}"),
    )


def _tone(last: Crossed | None, cluster: ClusterSpec) -> str:
    if last is None or (last.tier == 0 and cluster.scale_up_devices > 1):
        return "near"
    networks = [place for place, tier in enumerate(cluster.tiers) if tier.kind not in SCALE_UP_KINDS]
    return "farther" if len(networks) > 1 and last.tier == networks[-1] else "far"


def _size(group: PlacedGroup, plan: Plan) -> str:
    if group.name == "dp" and plan.cp > 1:
        return f"{number(group.size)} (dp × cp)" if plan.zero_stage == 0 else f"{number(group.size)} (shards × cp)"
    return number(group.size)


def _links(tier: TierSpec) -> str:
    kind = KINDS.get(tier.kind, tier.kind)
    shared = f", {tier.oversubscription:g}:1 oversubscribed" if tier.oversubscription > 1 else ""
    return f"{kind}{shared}" if tier.name == tier.kind else f"{kind} ({tier.name}){shared}"


def _stays(group: PlacedGroup, cluster: ClusterSpec) -> str:
    """How far the group reaches, and over how many nodes or domains."""
    if not group.crossed:
        return "on one device"
    last = group.crossed[-1]
    tier = cluster.tiers[last.tier]
    domain, node = cluster.scale_up_devices, cluster.devices_per_node
    nodes = len(_units(group, node))
    over = "" if nodes == 1 else f" on {number(nodes)} nodes"
    if last.tier == 0 and domain > 1:
        return f"inside one {KINDS.get(tier.kind, tier.kind)} domain of {number(domain)}{over}"
    if nodes == 1:
        return "inside a node"
    if last.tier < len(cluster.tiers) - 1 and tier.group_devices:
        return f"inside one unit of {number(tier.group_devices)} devices ({tier.name}), on {number(nodes)} nodes"
    domains = len(_units(group, domain)) if domain > node else 0
    over = f"{number(nodes)} nodes" + (f" of {number(domains)} domains" if domains else "")
    # The outermost tier has a name where there is more than one network.
    return f"across the {tier.name}, {over}" if _tone(last, cluster) == "farther" else f"across {over}"


def _units(group: PlacedGroup, size: int) -> list[int]:
    """Numbers of the units of so many devices in which members of the first group lie."""
    return sorted({rank // size for rank in range(0, group.size * group.stride, group.stride)})


def _picture(group: PlacedGroup, cluster: ClusterSpec, plan: Plan, told: str) -> Picture:
    """The first group: its nodes side by side, as many as there is room for, or larger domains with all their nodes."""
    node = min(cluster.devices_per_node, plan.devices_used)
    domain = cluster.scale_up_devices
    size = min(domain, -(-plan.devices_used // node) * node)
    several = domain > cluster.devices_per_node and cluster.tiers[0].kind in SCALE_UP_KINDS and size <= _MOST_CELLS
    drawn = _Drawn(group, plan, node, cluster.scale_up_devices)
    if several:
        drawn.domains(size)
    else:
        drawn.nodes()
    return Picture(
        width=drawn.width,
        height=drawn.height,
        frames=tuple(drawn.frames),
        cells=tuple(drawn.cells),
        texts=tuple(drawn.texts),
        told=told,
    )


class _Drawn:
    """A picture that grows from left to right."""

    def __init__(self, group: PlacedGroup, plan: Plan, node: int, domain: int) -> None:
        self.group, self.plan, self.node, self.domain = group, plan, node, domain
        self.frames: list[Frame] = []
        self.cells: list[Cell] = []
        self.texts: list[tuple[float, float, str]] = []
        self.width = self.height = 0.0
        across, rows = min(_ACROSS, node), -(-node // _ACROSS)
        # Domains of a part of a node (pairs of cards under NVLink) stand a little apart.
        self._split = domain if 1 < domain < node and domain <= _ACROSS else 0
        gaps = (across - 1) // self._split if self._split else 0
        self._node_width = across * (_CELL + _GAP) + _GAP + gaps * 2 * _GAP
        self._node_height = rows * (_CELL + _GAP) + _GAP

    def nodes(self) -> None:
        """Nodes that hold members."""
        self._row(_units(self.group, self.node), self._node_width, "node", self._one_node, self._node_height)

    def domains(self, size: int) -> None:
        """Domains that hold members, with all their nodes."""
        count = -(-size // self.node)
        across = max(1, min(6, count))
        width = across * (self._node_width + 4) + 4
        height = -(-count // across) * (self._node_height + 4) + 4

        def one(number: int, left: float) -> None:
            self.frames.append(Frame(x=left, y=1, width=width, height=height, outer=True))
            for place in range(count):
                x, y = left + 4 + place % across * (self._node_width + 4), 5 + place // across * (self._node_height + 4)
                self._one_node(number * count + place, x, y)

        self._row(_units(self.group, size), width, "domain", one, height)

    def _row(self, units: Sequence[int], width: float, word: str, one: Any, height: float) -> None:
        room = max(1, int((_WIDEST - 70) // (width + 14)))
        shown = units[: room if len(units) > room else len(units)]
        left, before = 1.0, None
        for unit in shown:
            if before is not None and unit > before + 1:
                self.texts.append((left + 3, height / 2 + 4, "⋯"))
                left += 14
            one(unit, left)
            self.texts.append((left + width / 2, height + 13, f"{word} {number(unit)}"))
            left, before = left + width + 8, unit
        rest = len(units) - len(shown)
        if rest:
            self.texts.append((left + 30, height / 2 + 4, f"+ {number(rest)} more"))
            left += 66
        self.width, self.height = left, height + 18

    def _one_node(self, unit: int, left: float, top: float = 1.0) -> None:
        self.frames.append(Frame(x=left, y=top, width=self._node_width, height=self._node_height))
        for place in range(self.node):
            rank = unit * self.node + place
            member = rank % self.group.stride == 0 and rank // self.group.stride < self.group.size
            column = place % _ACROSS
            apart = column // self._split * 2 * _GAP if self._split else 0
            self.cells.append(
                Cell(
                    x=left + _GAP + column * (_CELL + _GAP) + apart,
                    y=top + _GAP + place // _ACROSS * (_CELL + _GAP),
                    member=member,
                    said=f"rank {number(rank)}: {_coordinates(rank, self.plan)}" if member else "",
                )
            )


def _coordinates(rank: int, plan: Plan) -> str:
    """``tp 1, cp 0, dp 3, pp 0``: tp is innermost, pp outermost."""
    found: list[str] = []
    for axis, size in (("tp", plan.tp), ("cp", plan.cp), ("dp", plan.dp), ("pp", plan.pp)):
        if size > 1:
            found.append(f"{axis} {rank % size}")
        rank //= size
    return ", ".join(found) or "the only one"


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{number(count)}{ending}"

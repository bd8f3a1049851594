"""A cluster as boxes within boxes: devices, nodes, and what each tier of its network joins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from api.dashboard.words import KINDS
from costmodel.spec.cluster import ClusterSpec, TierSpec

_CELL, _GAP, _ACROSS, _MOST_DRAWN = 16, 5, 8, 16
_PAD, _LINE, _LETTER, _GHOST = 12, 17, 6.4, 64


@dataclass(frozen=True, kw_only=True)
class Box:
    """A frame with lines of text above what is in it.

    Attributes:
        hue: of the palette.
        ghost: it stands for others like the one beside it, which are not drawn.
    """

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    hue: int
    ghost: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Everything at its place.

    Attributes:
        cells: corners of the devices, squares of ``cell``.
        more: how many devices of the innermost box are not drawn, and where that is said.
        told: the same in words.
    """

    width: float
    height: float
    cell: int
    boxes: tuple[Box, ...]
    cells: tuple[tuple[float, float], ...]
    more: tuple[float, float, str] | None
    told: str


@dataclass(frozen=True, kw_only=True)
class _Level:
    """Devices that something joins: a node, a tier, or both at once. ``devices`` is None for all of the cluster."""

    devices: int | None
    lines: tuple[str, ...]
    hue: int


def picture_of(cluster: ClusterSpec) -> Picture | None:
    """None for a single device, which nothing joins to another."""
    levels = _levels(cluster)
    if not levels:
        return None
    inner = levels[0].devices or cluster.max_devices or _ACROSS
    drawn = min(inner, _MOST_DRAWN)
    # The corner of the innermost content: all frames begin above it and to its left.
    x, y = float(_PAD * len(levels)), float(sum(_above(level) for level in levels))
    step = _CELL + _GAP
    cells = tuple((x + n % _ACROSS * step, y + n // _ACROSS * step) for n in range(drawn))
    foot = y - _GAP + -(-drawn // _ACROSS) * step
    more = (x, foot + _LINE - 3, f"and {inner - drawn:,} more") if inner > drawn else None
    height = foot - y + (_LINE if more else 0)
    frames = _frames(levels, cluster.max_devices, x, y, min(drawn, _ACROSS) * step - _GAP, height)
    return Picture(
        width=frames[0].width,
        height=frames[0].height,
        cell=_CELL,
        boxes=frames,
        cells=cells,
        more=more,
        told="; ".join(" ".join(level.lines) for level in levels) + ".",
    )


def _frames(levels: list[_Level], most: int | None, x: float, y: float, width: float, height: float) -> tuple[Box, ...]:
    """A frame for each level around a content at that place, the outermost first; ghosts beside those that repeat."""
    boxes: list[Box] = []
    for place, level in enumerate(levels):
        if place and (times := _times(level, levels[place - 1].devices, most)):
            one = boxes[-1]
            ghost = replace(one, x=one.x + one.width + _PAD, width=float(_GHOST), lines=(times,), ghost=True)
            boxes.insert(-1, ghost)
            width += _GHOST + _PAD
        width = max(width, max(len(line) for line in level.lines) * _LETTER) + 2 * _PAD
        height += _above(level) + _PAD
        x, y = x - _PAD, y - _above(level)
        boxes.append(Box(x=x, y=y, width=width, height=height, lines=level.lines, hue=level.hue))
    return tuple(reversed(boxes))


def _above(level: _Level) -> int:
    """Pixels between the top of a frame and what is in it."""
    return _PAD + _LINE * len(level.lines)


def _levels(cluster: ClusterSpec) -> list[_Level]:
    """From the inside out; what joins as many devices is one level."""
    by_size: dict[int | None, list[str]] = {}
    if cluster.devices_per_node > 1:
        by_size[cluster.devices_per_node] = [f"node: {cluster.devices_per_node} devices"]
    for tier in cluster.tiers:
        size = tier.group_devices
        by_size.setdefault(size, []).append(_tier_in_words(tier, cluster.max_devices))
    sizes = sorted(size for size in by_size if size is not None)
    ordered: list[int | None] = [*sizes, *([None] if None in by_size else [])]
    return [_Level(devices=size, lines=tuple(by_size[size]), hue=place % 3) for place, size in enumerate(ordered)]


def _tier_in_words(tier: TierSpec, most: int | None) -> str:
    size = tier.group_devices or most
    joins = "all devices" if size is None else f"{size:,} devices"
    told = f"{KINDS[tier.kind]}: {joins}, {tier.bandwidth_bytes_per_s / 1e9:,.5g} GB/s each way per device"
    if tier.oversubscription > 1:
        told += f", oversubscribed {tier.oversubscription:g} to 1"
    return told + (", switches reduce" if tier.in_network_reduction else "")


def _times(level: _Level, inside: int | None, most: int | None) -> str:
    """How many of the inner box there are; empty for one."""
    size = level.devices or most
    if size is None or inside is None:
        return "× n"
    count = size // inside
    return f"× {count:,}" if count > 1 else ""

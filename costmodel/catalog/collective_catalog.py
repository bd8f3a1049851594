"""The published sweeps of collectives, from the data files of the catalog."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from importlib import resources

from costmodel.spec.collective import MeasuredCollective
from costmodel.spec.published_sweep import PublishedSweep

GIGA = 1e9


@cache
def published_sweeps() -> tuple[PublishedSweep, ...]:
    """All sweeps of the catalog, those that no price rests on too."""
    return tuple(_rows())


def _rows() -> Iterator[PublishedSweep]:
    folder = resources.files("costmodel.catalog") / "collectives"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".csv"):
            for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
                yield PublishedSweep(
                    accelerators=frozenset(row["accelerators"].split()),
                    networks=frozenset(row["networks"].split()),
                    scale_up=float(row["scale_up_gb_per_s"]) * GIGA,
                    scale_out=float(row["scale_out_gb_per_s"]) * GIGA if row["scale_out_gb_per_s"] else None,
                    taken=row["taken"] == "yes",
                    note=row["note"],
                    measured=MeasuredCollective.model_validate(
                        {
                            "op": row["op"],
                            "ranks": int(row["ranks"]),
                            "domains": int(row["domains"]),
                            "points": points_of(row["points"]),
                            "source": row["source"],
                            "retrieved": row["retrieved"],
                        }
                    ),
                )


def points_of(text: str) -> tuple[tuple[int, float], ...]:
    """``1024:16.94 4096:17.2`` as pairs of bytes and microseconds."""
    pairs = (part.split(":") for part in text.split())
    return tuple((int(size), float(microseconds)) for size, microseconds in pairs)

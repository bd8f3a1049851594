"""How the time of a search grows with the devices: powers of two up to a million. Run it with `make bench`:

    python -m tests.bench.bench_devices

With ``--draw``, and with the extra ``plots``, it writes the table and the picture of docs/search.md anew.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from planner.search.answer import status_of
from planner.search.request import SearchRequest
from planner.search.solve import Search
from tests.scenarios import scenario_of

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "search"
POWERS = range(3, 21)
LARGEST_BATCH = 2**14
MAX_SECONDS = 120.0
FEW = (10, 11, 17, 20)


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model on more and more devices, with a batch that grows with them."""

    model: str
    cluster: str
    seq_len: int
    batch_per_device: float
    least_batch: int

    def batch(self, devices: int) -> int:
        """Sequences of a step."""
        return max(self.least_batch, min(LARGEST_BATCH, int(devices * self.batch_per_device)))


FAMILIES = (
    Family(model="llama-3.1-405b", cluster="dgx-h100", seq_len=8192, batch_per_device=1 / 8, least_batch=64),
    Family(model="deepseek-v3", cluster="h800-8x400g", seq_len=4096, batch_per_device=8, least_batch=64),
)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One search in a process that has searched before; ``gap`` is how far the best can be from optimal."""

    model: str
    devices: int
    batch: int
    meshes: int
    cpu_s: float
    status: str
    proven_top_k: bool
    gap: float


def timed(family: Family, devices: int) -> Timed:
    """Search for the best ten plans."""
    batch = family.batch(devices)
    scenario = scenario_of(family.model, family.cluster, devices, batch, family.seq_len)
    request = SearchRequest(scenario=scenario, max_seconds=MAX_SECONDS)
    started = time.process_time()
    outcome = Search(request).run()
    seconds = time.process_time() - started
    best = outcome.best[0].objective if outcome.best else 0.0
    return Timed(
        model=family.model,
        devices=devices,
        batch=batch,
        meshes=outcome.meshes,
        cpu_s=round(seconds, 2),
        status=status_of(outcome),
        proven_top_k=outcome.proven,
        gap=round((best - (outcome.bound or 0.0)) / best, 4) if best else 0.0,
    )


def measured(powers: Iterable[int]) -> Iterator[Timed]:
    """Every family on every number of devices, one after the other."""
    timed(FAMILIES[0], 256)  # loads the solver
    for family in FAMILIES:
        for power in powers:
            yield timed(family, 2**power)


def table(rows: Sequence[Timed]) -> str:
    """The measurements as CSV."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([field.name for field in fields(Timed)])
    writer.writerows(astuple(row) for row in rows)
    return written.getvalue()


def picture(rows: Sequence[Timed]) -> str:
    """SVG: processor seconds against devices, both logarithmic; open where the list isn't proven."""
    from tests.published.scatter import MEDIAN, POINT, Panels

    with Panels(1, 1, height_in=3.2) as figure:
        axes = figure.axes[0]
        for family, colour in zip(FAMILIES, (POINT, MEDIAN), strict=True):
            own = [row for row in rows if row.model == family.model]
            axes.plot([row.devices for row in own], [row.cpu_s for row in own], color=colour, label=family.model)
            for row in own:
                filled = colour if row.proven_top_k else "white"
                axes.plot(row.devices, row.cpu_s, "o", markersize=4, color=colour, markerfacecolor=filled)
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_ticks([], minor=True)
        axes.set_xticks([2**power for power in POWERS], [f"2^{power}" for power in POWERS])
        axes.legend(frameon=False)
        figure.label("devices", "processor seconds of a search")
        return figure.svg()


def main() -> None:
    """Print the measurements, and draw them where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="all powers of two, written to docs/search")
    draw = parser.parse_args().draw
    print(f"{'model':<16}{'devices':>9}{'batch':>7}{'meshes':>11}{'CPU s':>8}  {'status':<11}{'gap':>7}")
    rows = []
    for row in measured(POWERS if draw else FEW):
        rows.append(row)
        print(f"{row.model:<16}{row.devices:>9,}{row.batch:>7,}{row.meshes:>11,}{row.cpu_s:>8.2f}  ", end="")
        print(f"{row.status:<11}{row.gap:>7.2%}", flush=True)
    if draw:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "time-by-devices.csv").write_text(table(rows), encoding="utf-8")
        (FOLDER / "time-by-devices.svg").write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

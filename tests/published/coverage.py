"""What the shipped calibration knows of every accelerator: the table of docs/fidelity.md.

``python -m tests.published.coverage`` prints it.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

from costmodel.calibration.calibration import load_calibration
from costmodel.catalog.accelerator_catalog import accelerator_names, load_accelerator
from costmodel.fidelity.observed import Observed
from costmodel.runs.carried import default_runs
from costmodel.runs.cases import Case, cases_of

_HEAD = ("accelerator", "family", "times", "peaks", "in", "rows of its own", "else by")


def table() -> str:
    """Markdown: one row per accelerator that ran, and one for the others of each family."""
    lines = [_line(_HEAD), "|---|---|--:|--:|---|--:|---|", *map(_line, _rows())]
    return "\n".join(lines) + "\n"


def _rows() -> Iterator[tuple[str, ...]]:
    calibration = load_calibration()
    runs = default_runs()
    observed = Observed.of(runs)
    times: Counter[str] = Counter()
    peaks: Counter[str] = Counter()
    precisions: dict[str, set[str]] = defaultdict(set)
    for index, case in enumerate(cases_of(tuple(runs), calibration)):
        if isinstance(case, Case) and (observed.scorable[index] or observed.memory_scorable[index]):
            name = case.scenario.cluster.accelerator.name
            times[name] += int(observed.scorable[index])
            peaks[name] += int(observed.memory_scorable[index])
            precisions[name].add(case.scenario.workload.precision.name)
    own = Counter(row.accelerator for row in calibration.parameters if row.standard_error and row.accelerator)
    fitted = {row.family for row in calibration.parameters if row.standard_error and row.family}
    told = {row.family for row in calibration.parameters if row.family and row.provenance == "calibrated"}
    families = {name: load_accelerator(name).family for name in accelerator_names()}
    without: dict[str, list[str]] = defaultdict(list)
    for name, family in sorted(families.items(), key=lambda entry: (entry[1], entry[0])):
        if not precisions[name]:
            without[family].append(name)
            continue
        yield (
            f"`{name}`",
            family,
            str(times[name]),
            str(peaks[name]),
            ", ".join(sorted(precisions[name])),
            str(own[name]),
            f"runs of {family}",
        )
    for family, names in sorted(without.items()):
        by = f"runs of {family}" if family in fitted else f"kernels of {family}" if family in told else "general values"
        yield ", ".join(f"`{name}`" for name in names), family, "0", "0", "", "0", by


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(table())

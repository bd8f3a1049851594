"""What the runs of a fit were like, as data that goes into its calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from costmodel.calibration.fit.measured import Measured
from costmodel.calibration.ranges import AXES, RunRange, Span
from costmodel.certainty import range_values


def ranges_of(measured: Sequence[Measured]) -> tuple[RunRange, ...]:
    """One range for each framework and family of accelerators, over runs with any figure."""
    kinds: dict[tuple[str, str], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    ran_on: dict[tuple[str, str], set[str]] = defaultdict(set)
    precisions: dict[tuple[str, str], set[str]] = defaultdict(set)
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for figure in measured:
        for index, (scenario, run) in enumerate(zip(figure.scenarios, figure.ids, strict=True)):
            key = scenario.cluster.accelerator.family, scenario.framework.engine or scenario.framework.name
            ids[key].add(run)
            ran_on[key].add(scenario.cluster.accelerator.name)
            precisions[key].add(scenario.workload.precision.name)
            for axis, value in range_values(scenario, figure.table.row(index)).items():
                kinds[key][axis].add(value)
    return tuple(
        RunRange(
            family=family,
            framework=framework,
            ran_on=tuple(sorted(ran_on[family, framework])),
            precisions=tuple(sorted(precisions[family, framework])),
            runs=len(ids[family, framework]),
            **{axis: _span(values[axis]) for axis in AXES},
        )
        for (family, framework), values in sorted(kinds.items())
    )


def _span(values: set[int]) -> Span:
    return min(values), max(values)

"""The floor under a layer's time that the host's launches set."""

from __future__ import annotations

import numpy as np

from costmodel.facts import Facts
from tests.scenarios import broken_down, plan_row, priced, recalibrated, scenario_of

FLOORS = {"host_layer_s": 4.5e-3, "host_pipeline_layer_s": 4.0e-3, "host_pipeline_layer_tp_s": 3.4e-3}
SMALL = scenario_of("llama-3.2-1b", "dgx-h100", 64, 512, 512)
FACTS = Facts.of(SMALL)


def test_a_small_layer_takes_what_the_host_takes() -> None:
    """nanotron's sweep: 4.5 ms a layer whatever tp; 16 layers, 8 micro-batches."""
    rows = [plan_row(512, tp=tp, dp=64 // tp) for tp in (1, 2, 4)]
    floored = broken_down(SMALL, *rows, facts=recalibrated(FACTS, **FLOORS))
    for index, row in enumerate(rows):
        layers = sum(float(floored.time[name][index]) for name in ("attention", "norms", "mlp", "tp_comm"))
        free = broken_down(SMALL, row, facts=recalibrated(FACTS, host_layer_s=0.0))
        waits = float(floored.time["host"][index] - free.time["host"][0])
        assert np.isclose(layers + waits, 16 * row["num_microbatches"] * 4.5e-3)


def test_pipelines_over_nodes_pay_for_every_tensor_parallel_rank() -> None:
    rows = [plan_row(512, tp=tp, pp=4, dp=16 // tp) for tp in (1, 2, 8)]
    floored = priced(SMALL, *rows, facts=recalibrated(FACTS, **FLOORS)).step_time_s
    m = np.array([row["num_microbatches"] for row in rows])
    per_layer = (4.0 + 3.4 * np.array([1, 2, 8])) * 1e-3
    assert (floored > (m + 3) * 4 * per_layer).all()
    assert (floored < (m + 3) * 4 * per_layer * 1.6).all()


def test_large_layers_hide_the_host() -> None:
    scenario = scenario_of("llama-3.1-70b", "dgx-h100", 64, 64, 8192)
    row = plan_row(64, tp=8, dp=8)
    facts = Facts.of(scenario)
    assert priced(scenario, row, facts=recalibrated(facts, **FLOORS)).step_time_s == priced(scenario, row).step_time_s


def test_the_parts_still_sum_to_the_step() -> None:
    row = plan_row(512, tp=2, pp=4, dp=8)
    found = broken_down(SMALL, row, facts=recalibrated(FACTS, **FLOORS))
    assert np.isclose(sum(float(part[0]) for part in found.time.values()), found.step_time_s[0])

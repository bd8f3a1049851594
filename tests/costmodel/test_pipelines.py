"""What devices of a pipeline hold and do under schedules that don't lay stages out in a loop, and how it is refused."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES
from costmodel.table import PlanTable, stage_table
from costmodel.term_outputs import evaluate_terms
from planner.search.eliminate import eliminate
from planner.search.space import mesh_candidates
from tests.plans import finished, slugs
from tests.scenarios import broken_down, load_framework, plan_row, scenario_of
from tests.searches import request_of

PP, M = 8, 32


def under(framework: str, model: str = "llama-3-8b", **how: int) -> Scenario:
    scenario = scenario_of(model, devices=PP, global_batch_size=M, **how)  # type: ignore[arg-type]
    return scenario.model_copy(update={"framework": load_framework(framework)})


def row(schedule: str, **axes: int) -> dict[str, int]:
    vpp = 2 if schedule in ("interleaved_1f1b", "zb_v", "dualpipe_v") else 1
    return plan_row(M, **{"pp": PP, "vpp": vpp, "zero_stage": 0, "schedule": SCHEDULES.index(schedule)} | axes)


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v2-lite"])
def test_dualpipe_holds_everything_twice_and_works_no_more(model: str) -> None:
    """DeepSeek-V3 (arXiv 2412.19437), table 2: parameters twice, and PP + 1 activations."""
    scenario = under("hai-llm", model)
    found = broken_down(scenario, row("1f1b"), row("dualpipe"))
    for term in ("parameters", "gradients", "optimizer"):
        once, twice = found.memory[term]
        np.testing.assert_allclose(twice, once + once[::-1])
    kept_first, kept = found.memory["activations"]
    if scenario.model.moe is None:
        # 1F1B keeps p micro-batches of the first stage; both ways p + 1 stages of the mean of a device's two.
        per_stage = kept_first / (PP - np.arange(PP))
        np.testing.assert_allclose(kept, (PP + 1) * (per_stage + per_stage[::-1]) / 2)
    assert found.memory["logits"][1, 0] == found.memory["logits"][1, -1] == found.memory["logits"][0, -1]
    work = {name: part[1] for name, part in found.time.items() if name != "bubble"}
    assert work["attention"] <= found.time["attention"][0] * 1.0000001
    assert found.time["bubble"][1] < found.time["bubble"][0]


def test_a_device_of_dualpipe_does_the_mean_of_its_two_stages() -> None:
    """Half of the micro-batches go each way, so every device meets as many as under 1F1B."""
    scenario, one, both = under("hai-llm"), row("1f1b"), row("dualpipe")
    tables = [stage_table(scenario, PlanTable.of_rows([plan]), every_stage=True) for plan in (one, both)]
    layers, held = (table.dense_layers[0] * table.work_share[0] for table in tables)
    np.testing.assert_allclose(held, (layers + layers[::-1]) / 2)
    assert (tables[1].has_head * tables[1].work_share).sum() == tables[0].has_head.sum() == 1


def test_a_v_has_both_ends_of_the_model_on_its_first_device() -> None:
    """Qi 2024 (arXiv 2405.15362), figure 1; torchtitan reads the loss on rank 0 under ZBVZeroBubble."""
    scenario = under("torchtitan")
    facts = Facts.of(scenario)
    plans = [row("interleaved_1f1b"), row("zb_v"), row("dualpipe_v")]
    found = broken_down(scenario, *plans)
    table = evaluate_terms(facts, PlanTable.of_rows(plans))["table_params"][0] * float(facts.work.kept_param_bytes)
    loop, v, dual_v = found.memory["parameters"]
    layer = loop[1] / 4
    assert [round(float((loop[device] - table) / layer)) for device in (0, -1)] == [4, 4]
    for in_a_v in (v, dual_v):
        assert (in_a_v[0] - 2 * table) / layer == pytest.approx(4, rel=1e-4)
        assert in_a_v[-1] / layer == pytest.approx(4, rel=1e-4)
    assert (found.memory["logits"] > 0).argmax(axis=1).tolist() == [PP - 1, 0, 0]
    assert (found.memory["logits"] > 0).sum(axis=1).tolist() == [1, 1, 1]
    # p micro-batches, and half a one more, on every device.
    kept = found.memory["activations"]
    np.testing.assert_allclose(kept[1], kept[1, 0])
    np.testing.assert_allclose(kept[2], kept[1] * (2 * PP + 1) / (2 * PP))


@pytest.mark.parametrize(
    ("framework", "changes", "rule"),
    [
        ("hai-llm", {"pp": 7, "dp": 1}, "dualpipe_needs_even_pp"),
        ("hai-llm", {"micro_batch_size": 4, "num_microbatches": 8}, "dualpipe_fills_both_ways"),
        ("hai-llm", {"vpp": 2}, "schedule_fits_chunks"),
        ("torchtitan", {}, "schedule_known"),
        ("megatron-core", {}, "schedule_known"),
    ],
)
def test_dualpipe_where_it_can_not_be_is_refused_by_name(framework: str, changes: dict[str, int], rule: str) -> None:
    scenario = under(framework)
    assert rule in slugs(finished(scenario, row("dualpipe", **changes)), scenario)


@pytest.mark.parametrize(
    ("framework", "pins", "rule"),
    [
        ("hai-llm", ["schedule=dualpipe", "pp=7"], "dualpipe_needs_even_pp"),
        ("hai-llm", ["schedule=dualpipe", "pp=8", "micro_batch_size=4"], "dualpipe_fills_both_ways"),
        ("hai-llm", ["schedule=zb_v", "pp=8"], "schedule_known"),
        ("torchtitan", ["schedule=zb_v", "pp=8", "vpp=4"], "schedule_fits_chunks"),
        ("torchtitan", ["schedule=dualpipe_v", "pp=8", "micro_batch_size=4"], "microbatches_cover_stages"),
        ("megatron-core", ["pp=8", "vpp=5"], "chunks_within_layers"),
    ],
)
def test_schedules_that_can_not_be_are_eliminated_by_name(framework: str, pins: list[str], rule: str) -> None:
    """Llama 3 8B has 32 layers: pp 8 * vpp 5 = 40 chunks are too many."""
    request = request_of(under(framework), pins, min_used=0.8)
    assert eliminate(request, mesh_candidates(request)).counts.get(rule, 0) > 0


def test_virtual_stages_without_enough_layers_are_refused_by_name() -> None:
    scenario = under("megatron-core")
    plan = finished(scenario, row("interleaved_1f1b", vpp=4))
    too_many = plan.model_copy(update={"vpp": 5, "layers_per_chunk": ((1, 1, 1, 1, 0),) * PP})
    assert "chunks_within_layers" in slugs(too_many, scenario)

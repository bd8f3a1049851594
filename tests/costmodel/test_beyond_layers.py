"""Options that count layers say so where they count further than the layers of a plan; what they mean is that count."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.beyond_layers import beyond_layers, row_beyond_layers
from costmodel.plan_rows import plan_of
from costmodel.spec.plan import Plan
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_NONE
from tests.scenarios import plan_row, scenario_of

SCENARIO = scenario_of("llama-3-8b", devices=8, global_batch_size=16)
INTERVAL = "recompute_interval {} means the same as {}: no chunk of a stage has more layers that run again"
PREFETCHED = {"zero_stage": 3, "fsdp_prefetch": 33}
PREFETCH = "fsdp_prefetch {} means the same as {}: no stage has more layers"


def plan(**axes: Any) -> Plan:
    return plan_of(SCENARIO, plan_row(16, **axes))


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"recompute_interval": 32}, ()),
        ({"recompute_interval": 33}, (INTERVAL.format(33, 32),)),
        ({"pp": 4, "recompute_interval": 9}, (INTERVAL.format(9, 8),)),
        ({"pp": 4, "vpp": 2, "recompute_interval": 5}, (INTERVAL.format(5, 4),)),
        ({"pp": 5, "recompute_interval": 7}, ()),  # 6 or 7 layers a stage
    ],
)
def test_a_checkpoint_ends_with_its_chunk(axes: dict[str, int], says: tuple[str, ...]) -> None:
    assert beyond_layers([plan(recompute=RECOMPUTE_FULL, **axes)]) == says


@pytest.mark.parametrize(("pp", "layers", "says"), [(1, 32, ()), (1, 33, (PREFETCH.format(33, 32),)), (4, 8, ())])
def test_nothing_is_gathered_beyond_the_stage(pp: int, layers: int, says: tuple[str, ...]) -> None:
    assert beyond_layers([plan(pp=pp, zero_stage=3, fsdp_prefetch=layers)]) == says


def test_layers_that_do_not_run_again_share_no_checkpoint() -> None:
    some = plan(recompute=RECOMPUTE_FULL, recompute_interval=4).model_copy(update={"recomputed_layers_per_stage": (3,)})
    assert beyond_layers([some]) == (INTERVAL.format(4, 3),)


def test_several_plans_have_one_line_for_each_value() -> None:
    plans = [plan(recompute=RECOMPUTE_FULL, pp=pp, recompute_interval=64) for pp in (1, 2, 4, 4)]
    assert beyond_layers(plans) == (INTERVAL.format(64, "8 to 32, by plan"),)
    assert beyond_layers([]) == ()


@pytest.mark.parametrize("pp", [1, 4, 5])
@pytest.mark.parametrize("recompute", [RECOMPUTE_NONE, RECOMPUTE_FULL])
@pytest.mark.parametrize("options", [{"recompute_interval": count} for count in (1, 6, 7, 8, 9, 33)] + [PREFETCHED])
def test_a_row_says_what_its_plan_does(pp: int, recompute: int, options: dict[str, int]) -> None:
    row = plan_row(16, pp=pp, recompute=recompute, **options)
    assert row_beyond_layers(SCENARIO, row) == beyond_layers([plan_of(SCENARIO, row)])


def test_a_row_without_options_counts_no_further_than_its_layers() -> None:
    row = plan_row(16, recompute=RECOMPUTE_FULL)
    axes = {name: row[name] for name in ("pp", "vpp", "layout", "schedule", "recompute")}
    assert row_beyond_layers(SCENARIO, axes) == ()

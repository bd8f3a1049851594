"""What ``check`` says of a global batch that a plan can't cut: the nearest ones that it could."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks import checked, slugs


@pytest.mark.parametrize(
    ("plan", "how", "values"),
    [
        (
            {"dp": 7, "micro_batch_size": 2, "num_microbatches": 18},
            {"devices": 7, "global_batch_size": 256, "framework": "deepspeed"},
            [252, 266],
        ),
        ({"dp": 8}, {"devices": 8, "global_batch_size": 4}, [8]),
        ({"tp": 2, "micro_batch_size": 3}, {"global_batch_size": 64}, [48, 72]),
        # Interleaving wants as many micro-batches as stages, or a multiple.
        ({"pp": 4, "vpp": 2, "dp": 2}, {"devices": 8, "global_batch_size": 12}, [8, 16]),
        ({"pp": 4, "dp": 2}, {"devices": 8, "global_batch_size": 12, "framework": "maxtext"}, [8, 16]),
    ],
)
def test_the_nearest_batches_are_named(
    tmp_path: Path, plan: dict[str, Any], how: dict[str, Any], values: list[int]
) -> None:
    found = checked(tmp_path, plan, **how)
    assert found["status"] == "illegal"
    (hint,) = found["hints"]
    assert (hint["field"], hint["values"]) == ("global_batch_size", values)
    for batch in values:
        less = {name: value for name, value in plan.items() if name != "num_microbatches"}
        assert slugs(checked(tmp_path, less, **{**how, "global_batch_size": batch})) == set()


@pytest.mark.parametrize("plan", [{"tp": 2}, {"tp": 3, "dp": 4}, {"tp": 16, "dp": 7, "micro_batch_size": 3}])
def test_a_batch_that_is_not_the_matter_gets_no_hint(tmp_path: Path, plan: dict[str, Any]) -> None:
    assert checked(tmp_path, plan)["hints"] == []

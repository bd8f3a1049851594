"""Fields that a plan leaves out: the framework's usual values, and others where those would break a rule."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import framework_names
from tests.checks import checked, slugs

MIXTRAL = {"model": "mixtral-8x7b", "devices": 64}
LONG = {"devices": 8, "global_batch_size": 16, "seq_len": 8192}
TPU = {"framework": "maxtext", "cluster": "tpu-v5p", "devices": 64}


@pytest.mark.parametrize(
    ("given", "how", "wanted"),
    [
        ({"cp": 8}, {**LONG, "framework": "torchtitan"}, {"cp_comm_type": "all_gather", "zero_stage": 3}),
        ({"cp": 8}, {**LONG, "framework": "torchtitan", "framework_version": "0.2"}, {"cp_comm_type": "p2p"}),
        ({"cp": 8}, {**LONG, "framework": "accelerate"}, {"zero_stage": 3}),
        ({"cp": 8}, {**LONG, "framework": "deepspeed"}, {"cp_comm_type": "a2a"}),
        # What cp ranks share is sharded as what replicas share.
        ({"cp": 8}, LONG, {"zero_stage": 1, "dp": 1}),
        ({"pp": 2}, {"framework": "maxtext"}, {"schedule": "gpipe"}),
        ({"pp": 2}, {"framework": "torchtitan"}, {"schedule": "1f1b"}),
        ({"pp": 2}, {"framework": "nanotron"}, {"schedule": "1f1b"}),
        ({"cp": 4}, TPU, {"cp_comm_type": "all_gather"}),
        ({"tp": 4}, {**MIXTRAL, "framework": "maxtext"}, {"etp": 4}),
        ({"tp": 4}, {**MIXTRAL, "framework": "torchtitan"}, {"etp": 4, "ep": 1}),
        ({"tp": 4}, {**MIXTRAL, "framework": "torchtitan", "framework_version": "2026-09"}, {"ep": 4, "etp": 1}),
        # Megatron-Core: etp is tp where nothing is said; with ep over all ranks only 1 is left.
        ({"tp": 4}, MIXTRAL, {"etp": 4}),
        ({"tp": 4, "ep": 8}, {**MIXTRAL, "devices": 8}, {"etp": 1}),
        ({"tp": 4, "ep": 8}, {**MIXTRAL, "framework": "deepspeed"}, {"etp": 1}),
        # A sequence that tp can't cut stays whole.
        ({"tp": 4}, {"seq_len": 4098}, {"sequence_parallel": False}),
        ({"tp": 2, "dp_shard": 4}, {"framework": "deepspeed", "devices": 8}, {"zero_stage": 1}),
        # 9 micro-batches fill no rounds of 2 in torchtitan; 3 of three sequences do.
        (
            {"pp": 4, "schedule": "interleaved_1f1b", "dp": 1},
            {"framework": "torchtitan", "devices": 4, "global_batch_size": 9},
            {"vpp": 2, "micro_batch_size": 3},
        ),
    ],
)
def test_open_fields_take_what_the_framework_has(
    tmp_path: Path, given: dict[str, Any], how: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = checked(tmp_path, given, **how)
    assert found["violations"] == []
    assert {axis: found["plan"][axis] for axis in wanted} == wanted


def test_a_value_that_is_not_the_usual_one_says_why(tmp_path: Path) -> None:
    found = checked(tmp_path, {"tp": 4}, **MIXTRAL, framework="torchtitan")
    (entry,) = [entry for entry in found["derived"] if entry["avoids"]]
    assert (entry["field"], entry["value"], entry["assumed"]) == ("etp", 4, True)
    assert entry["why"] == "the usual 1 breaks expert_tensor_parallel_follows_tp"


@pytest.mark.parametrize("framework", framework_names())
def test_no_open_field_breaks_a_rule_that_another_value_keeps(tmp_path: Path, framework: str) -> None:
    """Every value that one open field could have, written down, breaks no fewer rules than what was taken."""
    fields: dict[str, tuple[Any, ...]] = {
        "zero_stage": (0, 1, 2, 3),
        "cp_comm_type": ("p2p", "all_gather"),
        "schedule": ("gpipe", "1f1b", "interleaved_1f1b"),
        "etp": (1, 2, 4),
        "ep": (1, 2, 4, 8),
        "micro_batch_size": (1, 2, 4),
        "sequence_parallel": (True, False),
    }
    for tp, cp, pp in ((1, 8, 1), (4, 1, 1), (2, 1, 2), (1, 2, 4)):
        plan = {"tp": tp, "cp": cp, "pp": pp}
        how = {"framework": framework, "model": "mixtral-8x7b", "devices": 16, "nearest": False, "best": False}
        taken = slugs(checked(tmp_path, plan, **how))
        for field, values in fields.items():
            for value in values:
                other = checked(tmp_path, {**plan, field: value}, **how)
                assert not slugs(other) < taken, (plan, field, value, taken)


def test_attention_is_not_cut_by_heads_unless_that_is_said(tmp_path: Path) -> None:
    """Accelerate has cp, of pairs of chunks, and sp, by heads: a plan with cp means the former."""
    how = {"framework": "accelerate", "devices": 8, "global_batch_size": 8, "seq_len": 16386}
    assert slugs(checked(tmp_path, {"cp": 2}, **how)) == {"sequence_divisible_by_cp"}
    assert slugs(checked(tmp_path, {"cp": 2, "cp_comm_type": "a2a"}, **how)) == set()


def test_what_is_given_is_never_changed(tmp_path: Path) -> None:
    for tp, zero in product((2, 4), (0, 3)):
        given = {"tp": tp, "cp": 2, "zero_stage": zero, "cp_comm_type": "p2p"}
        found = checked(tmp_path, given, framework="torchtitan")
        assert {axis: found["plan"][axis] for axis in given} == given
        assert "ring_rotation_removed" in slugs(found)

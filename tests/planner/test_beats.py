"""Why one plan beats another: the parts that decide add up to what they say, in the words of `suggest` and `check`."""

from __future__ import annotations

from typing import Any

import pytest

from planner.explain.beats import PART_WORDS, beats
from planner.explain.differences import choices_in_words
from planner.explain.explanation import answered, runners_up
from planner.question import Question
from planner.resolving import request_of

Json = dict[str, Any]


@pytest.fixture(scope="module")
def answer() -> Json:
    question = Question(
        model="llama-3.1-8b", cluster="dgx-h100", devices=16, global_batch_size=32, seq_len=8192, top=6, explain=True
    )
    return answered(request_of(question))


def entry(answer: Json, **time: float) -> Json:
    """A plan of an answer whose step has these parts instead of its own."""
    plan = answer["plans"][0]
    return plan | {"prediction": plan["prediction"] | {"time": time, "step_time_s": sum(time.values())}}


def test_each_of_the_first_plans_is_compared_with_the_next(answer: Json) -> None:
    pairs = answer["explanation"]["runners_up"]
    assert [(pair["rank"], pair["other"]) for pair in pairs] == [(1, 2), (2, 3)]
    for pair in pairs:
        ours, theirs = (answer["plans"][pair[name] - 1]["prediction"] for name in ("rank", "other"))
        assert pair["step_time_s"] == pytest.approx(ours["step_time_s"] - theirs["step_time_s"], abs=1e-12)
        assert pair["share"] == pytest.approx(1 - ours["step_time_s"] / theirs["step_time_s"], abs=1e-12)
        for part, seconds in pair["time"].items():
            assert seconds == pytest.approx(ours["time"].get(part, 0.0) - theirs["time"].get(part, 0.0), abs=1e-12)


def test_gains_come_first_with_their_share_and_what_they_cost_after(answer: Json) -> None:
    worse = entry(answer, mlp=2.0, tp_comm=1.0, bubble=0.1)
    better = entry(answer, mlp=2.0, tp_comm=0.79, bubble=0.15)
    found = beats(better, worse)
    assert found["time"] == {"tp_comm": pytest.approx(-0.21), "bubble": pytest.approx(0.05)}
    assert found["told"].startswith("5.2% faster (0.16 s), with ")
    assert found["told"].endswith("21% less tensor-parallel communication (0.21 s); costs 50.0 ms more pipeline bubble")


def test_plans_of_other_batches_are_compared_over_as_many_sequences(answer: Json) -> None:
    better, worse = entry(answer, mlp=2.0), entry(answer, mlp=1.0)
    size = better["plan"]["global_batch_size"]
    worse = worse | {"rank": 2, "plan": worse["plan"] | {"global_batch_size": size // 4}}
    (found,) = runners_up([better, worse])
    assert found["step_time_s"] == pytest.approx(2.0 - 4.0)
    assert found["told"].startswith(
        f"for as many sequences, with a batch of {size} instead of {size // 4}: 50.0% faster"
    )


def test_a_part_that_is_gone_is_told_as_none(answer: Json) -> None:
    worse, better = entry(answer, mlp=2.0, bubble=0.3), entry(answer, mlp=2.0)
    assert "no pipeline bubble (0.30 s)" in beats(better, worse)["told"]


def test_an_end_of_the_model_that_another_stage_has_is_not_told_as_none_at_all(answer: Json) -> None:
    worse, better = entry(answer, mlp=2.0, head=0.3), entry(answer, mlp=2.1)
    assert "no output head and loss on the slowest stage (0.30 s)" in beats(better, worse)["told"]


def test_plans_that_take_as_long_are_called_so(answer: Json) -> None:
    plan = answer["plans"][0]
    found = beats(plan, plan)
    assert found["time"] == {}
    assert found["told"].startswith("as fast")
    assert found["told"].endswith("about the same in every part")


def test_every_word_is_one_of_a_part() -> None:
    small: Json = {"cluster": "dgx-h100", "devices": 16, "global_batch_size": 16, "seq_len": 4096, "top": 1}
    questions = [
        Question(model="deepseek-v2-lite", pins=["ep=4", "cp=2", "recompute=full"], **small),
        Question(model="llama-3.1-8b", pins=["tp=2", "pp=2", "dp=4"], **small),
    ]
    known = {
        part
        for question in questions
        for plan in answered(request_of(question))["plans"]
        for part in plan["prediction"]["time"]
    }
    assert set(PART_WORDS) <= known


def test_recompute_of_some_layers_says_of_how_many() -> None:
    ours = {"recompute": "selective", "recomputed_layers_per_stage": None, "layers_per_stage": [4, 4]}
    theirs = {"recompute": "full", "recomputed_layers_per_stage": [3, 0], "layers_per_stage": [4, 4]}
    axes = [{"axis": "recompute", "ours": "selective", "theirs": "full"}]
    assert choices_in_words(axes, ours, theirs) == "recompute full (3 of 8 layers) instead of selective"
    every = theirs | {"recomputed_layers_per_stage": [4, 4]}
    assert choices_in_words(axes, ours, every) == "recompute full instead of selective"


def test_what_a_degree_of_one_had_no_choice_of_is_not_set_against_it() -> None:
    axes = [
        {"axis": "cp", "ours": 1, "theirs": 2},
        {"axis": "cp_comm_type", "ours": "p2p", "theirs": "all_gather"},
        {"axis": "pp", "ours": 8, "theirs": 4},
        {"axis": "schedule", "ours": "1f1b", "theirs": "interleaved_1f1b"},
    ]
    told = "cp 2 instead of 1, cp_comm_type all_gather, pp 4 instead of 8, schedule interleaved_1f1b instead of 1f1b"
    assert choices_in_words(axes) == told

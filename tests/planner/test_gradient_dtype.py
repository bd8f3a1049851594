"""The choice of gradients, and recipes that a device lacks, on their way through questions, plans and checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput, UnknownName
from costmodel.fingerprint import scenario_id
from planner.check.check import check
from planner.check.question import CheckQuestion
from planner.question import Question
from planner.resolving import scenario_of
from planner.stored.questions import new_search
from planner.stored.records import calibration_record, scenario_of_records, scenario_record
from tests.searches import suggest

ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 64,
    "global_batch_size": 256,
    "seq_len": 8192,
}


@pytest.fixture(scope="module")
def narrow() -> dict[str, Any]:
    """The answer to a question with 16-bit gradients."""
    return suggest(Question(**ASKED, gradient_dtype="bf16", top=1))


def written(path: Path, plan: dict[str, Any], **changes: Any) -> CheckQuestion:
    path.write_text(json.dumps(plan | changes), encoding="utf-8")
    return CheckQuestion(plan=str(path), model="llama-3-8b", cluster="dgx-h100", best=False, nearest=False)


def test_an_answer_and_its_plans_say_what_gradients_are(narrow: dict[str, Any]) -> None:
    assert narrow["scenario"]["gradient_dtype"] == "bf16"
    assert narrow["plans"][0]["plan"]["gradient_dtype"] == "bf16"


def test_a_plan_brings_its_gradients_along(narrow: dict[str, Any], tmp_path: Path) -> None:
    best = narrow["plans"][0]
    found = check(written(tmp_path / "plan.json", best["plan"])).answer
    assert found["status"] in ("fits", "at_risk")
    assert found["prediction"]["step_time_s"] == pytest.approx(best["prediction"]["step_time_s"])
    assert found["plan"]["gradient_dtype"] == "bf16"


def test_a_plan_of_an_earlier_version_has_what_the_framework_usually_has(
    narrow: dict[str, Any], tmp_path: Path
) -> None:
    older = {name: value for name, value in narrow["plans"][0]["plan"].items() if name != "gradient_dtype"}
    found = check(written(tmp_path / "plan.json", older)).answer
    assert found["plan"]["gradient_dtype"] == "fp32"
    assert {"field": "gradient_dtype", "value": "fp32"}.items() <= next(
        entry for entry in found["derived"] if entry["field"] == "gradient_dtype"
    ).items()


def test_what_is_usual_is_the_same_question_said_or_not() -> None:
    said, unsaid, other = (scenario_of(Question(**ASKED, gradient_dtype=dtype)) for dtype in ("fp32", None, "bf16"))
    assert scenario_id(said) == scenario_id(unsaid) != scenario_id(other)


def test_a_stored_question_keeps_its_gradients() -> None:
    from planner.resolving import request_of

    request = request_of(Question(**ASKED, gradient_dtype="bf16"))
    assert new_search(request, None).question["scenario"]["gradient_dtype"] == "bf16"
    stored = scenario_of_records(scenario_record(request.scenario), calibration_record(request.scenario.calibration))
    assert stored == request.scenario


@pytest.mark.parametrize("dtype", ["int8", "", "fp33"])
def test_unknown_gradients_are_refused(dtype: str) -> None:
    with pytest.raises(UnknownName, match="gradient-dtype"):
        scenario_of(Question(**ASKED, gradient_dtype=dtype))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"precision": "fp9"}, "plan.precision: 'fp9' is not usable; did you mean"),
        (
            {"precision": "fp8-rowwise"},
            "plan.precision: 'fp8-rowwise' is not usable; Megatron-Core trains in bf16, fp16",
        ),
        ({"gradient_dtype": "int8"}, "plan.gradient_dtype: 'int8' is not usable; known: bf16, fp16, fp32"),
        (
            {"gradient_dtype": "fp16"},
            "plan.gradient_dtype: 'fp16' is not usable; Megatron-Core has bf16, fp32 with bf16",
        ),
    ],
    ids=str,
)
def test_a_plan_in_numbers_that_there_are_not_is_refused_by_name(
    narrow: dict[str, Any], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(written(tmp_path / "plan.json", narrow["plans"][0]["plan"], **changes))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("precision", "lacking"), [("mxfp8", "mxfp8 needs products of mxfp8"), ("nvfp4", "nvfp4 computes in fp4")]
)
def test_a_plan_in_numbers_that_the_devices_lack_is_illegal(
    narrow: dict[str, Any], tmp_path: Path, precision: str, lacking: str
) -> None:
    found = check(written(tmp_path / "plan.json", narrow["plans"][0]["plan"], precision=precision)).answer
    assert found["status"] == "illegal"
    (broken,) = (rule for rule in found["violations"] if rule["rule"] == "precision_in_hardware")
    assert f"precision {lacking}; h100-sxm5-80gb has" in broken["reason"]

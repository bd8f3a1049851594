"""How people write tasks, outcomes and offload; what says nothing known is neither success nor failure."""

from __future__ import annotations

import pytest

from costmodel.fidelity.tasks_and_outcomes import Outcome, is_offloaded, is_pretraining, outcome_of


@pytest.mark.parametrize(
    ("outcome", "spellings"),
    [
        (
            "ok",
            ["", "OK", "success", "Successful", "succeeded", "COMPLETED", "finished", "done", "ran", "no OOM", "fits"],
        ),
        (
            "oom",
            ["oom", "CUDA OOM", "ran out of memory", "out-of-memory", "torch.cuda.OutOfMemoryError", "failed (OOM)"],
        ),
        ("oom", ["does not fit", "doesn't fit", "RESOURCE_EXHAUSTED", "insufficient GPU memory", "OOMed"]),
        (
            "failed",
            ["fail", "FAILED", "fail(oom_or_crash)", "Crashed", "TIMEOUT", "CANCELLED", "not completed", "NaN loss"],
        ),
        ("failed", ["unsuccessful", "incomplete", "OOMKilled", "host OOM", "didn't finish", "killed"]),
        (None, ["running", "unknown", "?", "see notes", "bloom"]),
    ],
)
def test_outcomes(outcome: Outcome | None, spellings: list[str]) -> None:
    assert {text: outcome_of(text) for text in spellings} == dict.fromkeys(spellings, outcome)


@pytest.mark.parametrize(
    ("pretraining", "spellings"),
    [
        (True, ["", "pretrain", "Pretraining", "pre-train", "PRE_TRAINING", "continued pre-training", "LM training"]),
        (False, ["lora", "QLoRA", "sft", "full fine-tuning", "finetune of a pretrained model", "DPO", "inference"]),
        (False, ["?", "unknown", "constraint"]),
    ],
)
def test_tasks(pretraining: bool, spellings: list[str]) -> None:
    assert {text: is_pretraining(text) for text in spellings} == dict.fromkeys(spellings, pretraining)


@pytest.mark.parametrize(
    ("offloaded", "spellings"),
    [(False, ["", "none", "No", "FALSE", "0"]), (True, ["optimizer", "cpu", "optimizer on the CPU", "yes"])],
)
def test_offload(offloaded: bool, spellings: list[str]) -> None:
    assert {text: is_offloaded(text) for text in spellings} == dict.fromkeys(spellings, offloaded)

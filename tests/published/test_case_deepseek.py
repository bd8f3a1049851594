"""DeepSeek-V3 on 2,048 H800 (arXiv 2412.19437): DualPipe over 16 stages, experts over 64 devices, ZeRO-1, fp8, no TP.

Published are GPU-hours: 180K for a trillion tokens, 2.664M for the 14.8T of pre-training, 2.788M with the extension of
the context and post-training (table 1). A step of 15,360 sequences of 4,096 tokens is what that comes to. Micro-batches
and the layers of a stage are not published; one sequence and a lighter last stage are ours.
"""

from __future__ import annotations

import pytest

from tests.published.case_studies import (
    Case,
    breakdown,
    check_page,
    checked,
    constant_mfu_error,
    error,
    predicted_s,
    results,
    searched,
)

PAGE = "deepseek-v3.md"
DEVICES, BATCH, SEQ_LEN = 2048, 15360, 4096
HOURS_PER_TRILLION, TRILLIONS = 180e3, 14.8
TOKENS_PER_STEP = BATCH * SEQ_LEN
GIB = 2**30

RUN = Case(
    name="DeepSeek-V3",
    plan="deepseek-v3",
    model="deepseek-v3",
    cluster="h800-8x400g",
    step_time_s=HOURS_PER_TRILLION * 3600 * TOKENS_PER_STEP / 1e12 / DEVICES,
)


def gpu_hours(step_time_s: float) -> float:
    """Of all pre-training at that step time."""
    return step_time_s * DEVICES / 3600 * TRILLIONS * 1e12 / TOKENS_PER_STEP


def without_exchange_s() -> float:
    return predicted_s(RUN) - float(checked(RUN).answer["prediction"]["time"].get("ep_comm", 0.0))


def hours_table() -> str:
    rows = [
        ("published", RUN.step_time_s),
        ("predicted", predicted_s(RUN)),
        ("predicted, without what stays exposed of the exchange of experts", without_exchange_s()),
        ("constant 40 % MFU", RUN.step_time_s * (1 + constant_mfu_error(RUN))),
    ]
    lines = ["| | step s | million GPU-hours for 14.8T tokens | days |", "|---|---|---|---|"]
    for name, step in rows:
        hours = gpu_hours(step)
        lines.append(f"| {name} | {step:.1f} | {hours / 1e6:.3f} | {hours / DEVICES / 24:.1f} |")
    return "\n".join(lines) + "\n"


TABLES = {
    "hours": hours_table,
    "results": lambda: results([RUN]),
    "breakdown": lambda: breakdown([RUN]),
    "searched": lambda: searched([RUN]),
}


def test_the_published_hours_are_one_number() -> None:
    """180K hours a trillion tokens and 2.664M for 14.8T; 3.7 days a trillion on 2,048 devices (section 1)."""
    assert gpu_hours(RUN.step_time_s) == pytest.approx(2.664e6, rel=1e-9)
    days = HOURS_PER_TRILLION / DEVICES / 24
    assert days == pytest.approx(3.7, abs=0.05)


def test_the_plan_is_legal_and_has_no_tensor_parallelism() -> None:
    answer = checked(RUN).answer
    assert answer["violations"] == []
    assert answer["plan"]["devices_used"] == DEVICES
    assert "tp_comm" not in answer["prediction"]["time"]


def test_all_but_the_exchange_of_experts_takes_the_published_gpu_hours() -> None:
    """DualPipe hides the exchange (section 3.2.1); what is priced as exposed of it comes on top and is no speed-up."""
    assert gpu_hours(without_exchange_s()) == pytest.approx(2.664e6, rel=0.1)
    assert without_exchange_s() < predicted_s(RUN)


def test_the_step_comes_out_as_long_as_published() -> None:
    """What the page says; too short would be as wrong as far too long."""
    assert -0.1 < error(RUN) < 0.15
    assert 2.4e6 < gpu_hours(predicted_s(RUN)) < 3.1e6


def test_the_memory_comes_out_above_the_80_gb_that_it_ran_on() -> None:
    """What the page says is wrong, and where: the state fits, the activations of 17 micro-batches are too many.

    Inputs of the SwiGLU are priced in 16 bits and were kept in fp8 (section 3.3.3). A plan that truly ran is called too
    big: whoever mends that has to change the page, and this test.
    """
    found = checked(RUN)
    memory = found.answer["prediction"]["memory"]
    assert found.answer["status"] == "too_big"
    assert 90 * GIB < memory["peak_bytes"] < 100 * GIB
    assert memory["peak_bytes"] > found.scenario.cluster.accelerator.memory_bytes
    fullest = max(memory["stages"], key=lambda terms: sum(terms.values()))
    state = sum(fullest[term] for term in ("parameters", "weight_copies", "gradients", "optimizer"))
    assert max(fullest, key=lambda term: float(fullest[term])) == "activations"
    assert state < 35 * GIB < 50 * GIB < fullest["activations"]


def test_a_constant_utilisation_of_the_fp8_peak_is_far_off() -> None:
    """40 % of it would be more than twice as fast as DeepSeek was."""
    assert constant_mfu_error(RUN) < -0.5


def test_utilisation_is_far_lower_against_the_fp8_peak() -> None:
    used = checked(RUN).answer["prediction"]["utilisation"]
    assert used["peak"] == "fp8"
    assert used["mfu_bf16_peak"] == pytest.approx(used["mfu"] * 1979 / 989)


def test_the_page_says_what_the_code_says() -> None:
    check_page(PAGE, TABLES)

"""What training programs print, as people published it, and what must not disturb: half lines, noise, other JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.column_types import is_storable
from planner.profiling.dialects import hear
from planner.profiling.measured import Gathered

# (source, line, step, seconds) for a global batch of 2048 sequences of 2048 tokens on 8 devices
STEPS = [
    (
        "bigscience-workshop/bigscience, chronicles of BLOOM 176B (Megatron-DeepSpeed)",
        " [default7]: iteration    12695/  115311 | consumed samples:      9841584 | consumed tokens:  20155564032 | "
        "elapsed time per iteration (s): 105.22 | learning rate: 5.969E-05 | global batch size:  2048 | lm loss: "
        "2.463556E+00 | grad norm: 0.174 | samples per second: 19.463 | TFLOPs: 149.02 |",
        12695,
        105.22,
    ),
    (
        "Megatron-LM, megatron/training/training.py",
        " [2026-04-27 00:00:01] iteration        1/       3 | consumed samples:            2 | elapsed time per "
        "iteration (ms): 4000.0 | learning rate: 1.000000E-04 | global batch size:     2 | lm loss: 3.000000E+00 |",
        1,
        4.0,
    ),
    (
        "Megatron-LM at ranks of torchrun, with throughput",
        "[default0]: [2025-05-27 15:23:07] iteration        1/    24000 | consumed samples:          1024 | elapsed "
        "time per iteration (ms): 271607.0 | throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: 1.500000E-06 |",
        1,
        271.607,
    ),
    (
        "Ascend ModelLink, README of LLaMA-65B: two spaces",
        " iteration  11/50000 | consumed samples: 5632 | consumed tokens:  11534336 | elapsed time per iteration (ms):"
        "  52728.1 | learning rate:    1.499E-05 | gloabl batch size:  512 | lm loss:  1.376514E+01 |",
        11,
        52.7281,
    ),
    (
        "Primus: this iteration and the average",
        "iteration  7/  50 | consumed samples: 56 | elapsed time per iteration (ms): 1500.5/1498.2 | mem: 1",
        7,
        1.5005,
    ),
    (
        "DeepSpeed, deepspeed/utils/timer.py, from 0.8 on",
        "[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
        "RunningAvgSamplesPerSec=25.025771473496132, CurrSamplesPerSec=25.6, MemAllocated=4.32GB, "
        "MaxMemAllocated=38.49GB",
        10,
        80.0,
    ),
    (
        "DeepSpeed before 0.8",
        "[2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] 0/20, RunningAvgSamplesPerSec=232.7340551694273, "
        "CurrSamplesPerSec=204.8, MemAllocated=0.36GB, MaxMemAllocated=15.06GB",
        20,
        10.0,
    ),
    (
        "nanotron, nanotron/trainer.py, an issue of 2024",
        "08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]: iteration: 1 / 15 | consumed_tokens: 512 | "
        "elapsed_time_per_iteration_ms: 4.71K | tokens_per_sec: 109 | tokens_per_sec_per_gpu: 109 | lm_loss: 5.32",
        1,
        4.71,
    ),
    (
        "torchtitan, torchtitan/components/metrics.py, with colours",
        "[rank0]:[titan] 2026-01-01 12:00:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  4.8214  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[36mmemory: 12.50GiB(15.40%)  \x1b[34mtps: 52,428.8  \x1b[36m"
        "tflops: 123.45  \x1b[35mmfu: 12.47%\x1b[39m",
        10,
        10.0,
    ),
]
PEAKS = [
    (STEPS[5][1], {"allocated": 38.49 * 2**30}),
    (STEPS[6][1], {"allocated": 15.06 * 2**30}),
    (STEPS[8][1], {"reserved": 12.5 * 2**30}),
    (
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1000.5 | max allocated: 2,000.5 | reserved: 2100.0 | "
        "max reserved: 2200.0",
        {"allocated": 2000.5 * 2**20, "reserved": 2200.0 * 2**20},
    ),
    (
        "08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]:  Memory usage: 64.15MiB. Peak allocated 309.29MiB. Peak reserved: "
        "496.00MiB",
        {"allocated": 309.29 * 2**20, "reserved": 496.0 * 2**20},
    ),
    # The probe on CPUs: what a process holds beyond its libraries.
    (
        '{"peak_rss_bytes": [345759744, 352759744], "rss_before_model_bytes": [328568832, 328568832]}',
        {"allocated": 352759744.0 - 328568832.0},
    ),
]


def gathered(*lines: str, warm_up: int = 0) -> Gathered:
    found = Gathered(warm_up=warm_up, tokens_per_step=2048 * 2048, devices=8, sequences_per_step=2048)
    for line in lines:
        hear(line, found)
    return found


@pytest.mark.parametrize(("source", "line", "step", "seconds"), STEPS, ids=[source for source, *_ in STEPS])
def test_steps_of_real_logs(source: str, line: str, step: int, seconds: float) -> None:
    assert gathered(line).steps == {step: pytest.approx(seconds)}, source


@pytest.mark.parametrize(("line", "peaks"), PEAKS)
def test_peaks_of_real_logs(line: str, peaks: dict[str, float]) -> None:
    assert gathered(line).peaks == {kind: round(amount) for kind, amount in peaks.items()}


@pytest.mark.parametrize("line", [line for _, line, *_ in STEPS])
def test_half_a_line_never_tells_another_step(line: str) -> None:
    (whole,) = gathered(line).steps.items()
    for end in range(len(line)):
        for step, _ in gathered(line[:end]).steps.items():
            assert step == whole[0]


def test_json_lines() -> None:
    found = gathered(
        '{"environment": {"torch": "2.13.0", "bad": "\\u0000\\ud800"}}',
        '{"step": 0, "step_time_s": 9.0, "loss": NaN}',
        '{"step": 1, "step_time_s": 0.5}',
        '{"step": 2, "step_time_s": 0.7, "tokens_per_s": 1}',
        '{"peak_allocated_bytes": [1, 3, 2], "peak_reserved_bytes": 4}',
        '{"step": 3, "step_time_s": 0.6',
        warm_up=1,
    ).measured("ok")
    assert found.step_times_s == (0.5, 0.7)
    assert found.step_time_s == pytest.approx(0.6)
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (3, 4)
    assert found.environment == {"torch": "2.13.0", "bad": "\ufffd?"}
    assert found.log_tail.endswith('"step_time_s": 0.6\n')


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB",
        "RuntimeError: HIP out of memory. Tried to allocate 1.00 GiB",
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
        '{"level": "error", "message": "torch.OutOfMemoryError: CUDA out of memory."}',
        '{"failed": "out_of_memory", "detail": "allocate 7 GiB"}',
    ],
)
def test_out_of_memory_whatever_comes_after_it(line: str) -> None:
    found = gathered(line, '{"failed": "crash", "detail": "NCCL went away"}').measured("failed", "exit code 1")
    assert found.status == "out_of_memory"
    assert found.reason
    assert found.reason in line


@pytest.mark.parametrize(
    "line",
    [
        '{"step": true, "step_time_s": "0.5"}',
        '{"step": 1, "step_time_s": -1}',
        '{"step": 1, "step_time_s": 1e400}',
        json.dumps({"step": 1, "step_time_s": 10**400}),
        '{"peak_allocated_bytes": [1e300, -5, null, "7"]}',
        '{"a":' * 5000,
        "iteration 1/ 2 | elapsed time per iteration (ms): ,.,",
        "iteration " + "9" * 5000 + "/ 2 | elapsed time per iteration (ms): 5.0",
        "step: 1  loss: 2.0  memory: 1.0GiB(2%)  tps: 0  tflops: 0",
    ],
)
def test_nonsense_tells_nothing(line: str) -> None:
    found = gathered(line)
    assert (found.steps, found.failure) == ({}, None)
    assert not found.peaks or found.peaks == {"reserved": 2**30}


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from([line for _, line, *_ in STEPS])), max_size=4))
def test_no_line_breaks_it_and_all_can_be_stored(lines: list[str]) -> None:
    found = gathered(*lines).measured("failed", "".join(lines))
    assert is_storable(found.log_tail)
    assert is_storable(found.reason)

"""Runs that people tried, and whether they fitted: what ``planner predict`` says of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.published.user_cases import each, predicted


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A run as people tried it, and whether it fitted."""

    report: str
    run: dict[str, Any]
    fitted: bool
    fails: str = ""


LLAMA_7B = {
    "framework": "Megatron-LLaMA",
    "model_name": "llama-2-7b",
    "accelerator": "A800-80GB",
    "tp": 2,
    "pp": 1,
    "micro_batch": 4,
    "global_batch": 16,
    "seq_len": 4096,
    "dist_opt": True,
    # The core's only: what FlashAttention keeps anyway. Neither is said in the thread.
    "recompute": "selective:core_attn",
}
LLAMA_8B = {
    "framework": "DeepSpeed",
    "model_name": "llama-3-8b",
    "accelerator": "RTX3090",
    "devices": 8,
    "tp": 1,
    "pp": 1,
    "dp": 8,
    "micro_batch": 1,
    "global_batch": 8,
    "seq_len": 1024,
    "zero_stage": "3",
    "precision": "fp16",
}
QWEN_32B = {
    "framework": "torch FSDP",
    "model_name": "qwen2.5-32b",
    "accelerator": "H100-80GB",
    "tp": 1,
    "pp": 1,
    "micro_batch": 1,
    "zero_stage": "full_shard",
}
NANO = {
    "framework": "Megatron-Bridge",
    "model_name": "nemotron-3-nano-30b-a3b",
    "accelerator": "H100-80GB",
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 8,
    "micro_batch": 1,
    "global_batch": 16,
    "seq_len": 8192,
}


def on(devices: int, **more: Any) -> dict[str, Any]:
    return {"devices": devices, "dp": devices, **more}


TRIED = [
    Tried(report="uc-006", run=LLAMA_7B | on(2, dp=1), fitted=False),
    Tried(report="uc-006", run=LLAMA_7B | on(4, dp=2), fitted=True),
    Tried(report="uc-014", run=LLAMA_8B, fitted=False),
    Tried(report="uc-014", run=LLAMA_8B | {"recompute": "none"}, fitted=False),
    Tried(report="uc-014", run=LLAMA_8B | {"offload": "optimizer"}, fitted=True),
    Tried(report="uc-017", run=QWEN_32B | on(8, seq_len=20000, global_batch=8), fitted=False),
    Tried(report="uc-017", run=QWEN_32B | on(16, seq_len=32000, global_batch=16), fitted=False),
    Tried(
        report="uc-017",
        run=QWEN_32B | on(16, seq_len=20000, global_batch=16),
        fitted=True,
        fails="73.6 GiB are predicted, 23 of them logits that a fused loss would not keep: the device has them, "
        "the 87 % that are held usable don't",
    ),
    *(
        Tried(report="uc-033", run=NANO | on(16, recompute=recompute), fitted=False)
        for recompute in ("none", "core_attn", "moe_act", "layernorm+moe_act")
    ),
    *(Tried(report="uc-033", run=NANO | on(8, recompute=recompute), fitted=False) for recompute in ("none", "full")),
]


@each(TRIED)
def test_what_was_tried_fits_or_not(case: Tried) -> None:
    assert predicted(case.report, **case.run).feasible is case.fitted

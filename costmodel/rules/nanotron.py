"""Rules of nanotron.

Checks that hold by construction of a plan have no rule here; docs/rules.md lists them.
"""

from __future__ import annotations

import numpy as np

from costmodel.rules import shared
from costmodel.rules.rule import Rule
from costmodel.spec.plan import SCHEDULES

_REPOSITORY = "huggingface/nanotron 2411b022a75f (2026-04-07) src/nanotron/"
_RELEASE = "nanotron 0.4 (PyPI) nanotron/"

_1F1B = SCHEDULES.index("1f1b")

NANOTRON_RULES: tuple[Rule, ...] = (
    shared.heads_divisible_by_tp(_REPOSITORY + "config/config.py:536"),
    # num_kv_heads >= tp (config.py:541) follows from it.
    shared.kv_heads_divisible_by_tp(_REPOSITORY + "models/llama.py:346-366"),
    shared.ffn_divisible_by_tp(_REPOSITORY + "parallel/tensor_parallel/nn.py"),
    shared.without_axes(
        "no_expert_parallelism",
        "ep",
        "etp",
        what="holds every expert whole on every rank",
        # Its mesh has an ep axis beside tp * cp * dp * pp, which the check of the world size leaves out.
        source=_REPOSITORY + "parallel/context.py, nn/moe.py: read, not run",
    ),
    shared.without_axes(
        "no_context_parallelism",
        "cp",
        what="has no context parallelism yet",
        source=_RELEASE + "config/parallelism_config.py",
        without_feature="context_parallel",
    ),
    shared.no_hybrid_sharding(_REPOSITORY + "optim/zero.py shards over dp_pg"),
    shared.sequence_divisible_by_pairs(_REPOSITORY + "models/qwen.py:777"),
    shared.sequence_divisible_by_tp(_REPOSITORY + "parallel/tensor_parallel/functional.py: tp_mode REDUCE_SCATTER"),
    Rule(
        name="microbatches_fill_warm_up",
        axes=("pp", "schedule", "num_microbatches"),
        holds=lambda _, c: np.asarray((c["schedule"] != _1F1B) | (c["num_microbatches"] >= c["pp"] - 1)),
        reason=lambda _, row: (
            f"num_microbatches {row['num_microbatches']} must be at least pp {row['pp']} - 1 under 1f1b"
        ),
        source=_REPOSITORY + "parallel/pipeline_parallel/engine.py:253",
    ),
)

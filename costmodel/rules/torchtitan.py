"""Rules of torchtitan and of the PyTorch pipeline schedules that it runs.

Checks that hold by construction of a plan have no rule here; docs/rules.md lists them.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.rules import shared
from costmodel.rules.offload import TORCHTITAN_OFFLOAD_RULES
from costmodel.rules.rule import PlanColumns, Row, Rule, as_columns, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.options import GRADIENT_SYNCS, RESHARD_AFTER
from costmodel.spec.plan import SCHEDULES

_REPOSITORY = "pytorch/torchtitan b5bcd76c66d0 (2026-08-21) torchtitan/"
_TOML_ERA = "torchtitan 0.2.2 (PyPI) torchtitan/"
_RELEASE = "torchtitan 0.3.0 (PyPI) torchtitan/"
_SCHEDULES = "torch 2.13.0 (PyPI) torch/distributed/pipelining/schedules.py"

_1F1B = SCHEDULES.index("1f1b")
_INTERLEAVED = SCHEDULES.index("interleaved_1f1b")
_DUALPIPE_V = SCHEDULES.index("dualpipe_v")


def _sequence_chunks(scenario: Scenario, columns: PlanColumns) -> Ints:
    """tp ranks times pairs of chunks of every cp rank; older versions ask for a pair even with cp 1."""
    cp, tp = columns["cp"], columns["tp"]
    pairs = np.where(cp > 1, 2 * cp, 1) if scenario.framework.has("sequence_divisor_by_cp") else 2 * cp
    return np.asarray(tp * pairs)


def _expert_tp(scenario: Scenario, columns: PlanColumns) -> Bools:
    """Without expert parallelism experts are cut as everything else is; with it they are whole, or were once cut."""
    tp, ep, etp = columns["tp"], columns["ep"], columns["etp"]
    parallel = (etp == 1) | (etp == tp) & (not scenario.framework.has("experts_without_tp"))
    return np.asarray((not shared.has_experts(scenario)) | np.where(ep == 1, etp == tp, parallel))


def _expert_tp_reason(scenario: Scenario, row: Row) -> str:
    if row["ep"] == 1:
        wanted = f"tp {row['tp']}"
    else:
        wanted = "1" if scenario.framework.has("experts_without_tp") else f"1 or tp {row['tp']}"
    return f"etp {row['etp']} with ep {row['ep']} must be {wanted} in torchtitan {scenario.framework.version}"


def _expert_shards(columns: PlanColumns) -> Ints:
    """Over how many ranks FSDP cuts one expert's matrices."""
    ranks = columns["dp_shard"] * columns["cp"]
    return np.asarray(np.where(columns["ep"] > 1, np.maximum(ranks * columns["tp"] // columns["ep"], 1), ranks))


def _even_expert_shards(scenario: Scenario, columns: PlanColumns) -> Bools:
    """FSDP cuts experts by their number while they suffice, else each of them along its width, and that evenly."""
    model, moe = scenario.model, scenario.model.moe
    if moe is None:
        return np.asarray(True)
    ep, shards = columns["ep"], _expert_shards(columns)
    without_ep = columns["dp"] * columns["cp"] * columns["tp"] * scenario.framework.has("whole_experts_cut")
    ranks = np.where(ep > 1, shards * ep, without_ep)
    even = (moe.expert_ffn_hidden_size % (shards * columns["etp"]) == 0) & (model.hidden_size % shards == 0)
    return np.asarray((shards == 1) | (ranks <= moe.num_experts) | even)


def _even_expert_shards_reason(scenario: Scenario, row: Row) -> str:
    model, moe = scenario.model, scenario.model.moe
    assert moe is not None, "a model without experts breaks no rule on them"
    shards = int(_expert_shards(as_columns(row)))
    return (
        f"{moe.num_experts} experts are too few for the ranks of FSDP, so each is cut over {shards}: "
        f"expert_ffn_hidden_size {moe.expert_ffn_hidden_size} % ({shards} * etp {row['etp']}) and hidden_size "
        f"{model.hidden_size} % {shards} must be 0"
    )


def _rounds(columns: PlanColumns) -> Ints:
    return np.asarray(np.maximum(columns["num_microbatches"] // columns["pp"], 1))


def _stages_to_cover(columns: PlanColumns) -> Ints:
    """As many micro-batches as stages are asked for by 1f1b, which has one a device, and DualPipeV, which has two."""
    schedule, pp = columns["schedule"], columns["pp"]
    return np.asarray(np.where(schedule == _DUALPIPE_V, 2 * pp, np.where(schedule == _1F1B, pp, 0)))


AFTER_STEP = RESHARD_AFTER.index("step")
ONCE_A_STEP = GRADIENT_SYNCS.index("step")

TORCHTITAN_RULES: tuple[Rule, ...] = (
    Rule(
        name="pipelines_reduce_once_a_step",
        axes=("pp", "zero_stage", "gradient_sync"),
        holds=lambda _, c: np.asarray((c["zero_stage"] < 2) | ((c["pp"] > 1) == (c["gradient_sync"] == ONCE_A_STEP))),
        reason=lambda _, row: (
            f"gradient_sync {GRADIENT_SYNCS[row['gradient_sync']]} with pp {row['pp']}: pipelines reduce "
            "gradients of shards once a step, and nothing else does"
        ),
        source="pytorch 2.13 torch/distributed/pipelining/stage.py: set_requires_gradient_sync(False) before the last",
        policy=True,
    ),
    Rule(
        name="parameters_stay_in_pipelines_alone",
        axes=("pp", "reshard_after"),
        holds=lambda _, c: np.asarray((c["pp"] > 1) | (c["reshard_after"] != AFTER_STEP)),
        reason=lambda _, row: (
            f"reshard_after step with pp {row['pp']}: only pipelines keep parameters from one micro-batch to the next"
        ),
        source="pytorch 2.13 torch/distributed/pipelining/stage.py: set_reshard_after_backward(False) before the last",
    ),
    shared.heads_divisible_by_tp(_REPOSITORY + "models/common/decoder.py:167-208"),
    # At 0.2 the reshape of the heads fails on the first step.
    shared.kv_heads_divisible_by_tp(
        _REPOSITORY + "models/common/decoder.py:167-208; before that torchtitan issue 2574"
    ),
    divisible_rule(
        name="expert_mesh_divides_shards",
        axes=("tp", "cp", "dp_shard", "ep", "etp"),
        dividend=("tp * cp * dp_shard", lambda _, c: c["tp"] * c["cp"] * c["dp_shard"]),
        divisor=shared.EP_ETP,
        source=_REPOSITORY + "distributed/parallel_dims.py, _validate; before that the mesh can't be unflattened",
    ),
    Rule(
        name="expert_tensor_parallel_follows_tp",
        axes=("tp", "ep", "etp"),
        holds=_expert_tp,
        reason=_expert_tp_reason,
        source=_TOML_ERA
        + "distributed/parallel_dims.py:54; "
        + _RELEASE
        + "config/configs.py has no degree of its own",
    ),
    Rule(
        name="ep_covers_tp",
        axes=("tp", "ep"),
        holds=lambda s, c: np.asarray((not shared.has_experts(s)) | (c["ep"] >= c["tp"])),
        reason=lambda _, row: f"ep {row['ep']} must be at least tp {row['tp']}: experts are no longer cut by tp",
        with_feature="ep_covers_tp",
        source="pytorch/torchtitan PR 4794 (2026-09-20)",
    ),
    Rule(
        name="expert_shards_are_even",
        axes=("tp", "cp", "dp", "dp_shard", "ep", "etp"),
        holds=_even_expert_shards,
        reason=_even_expert_shards_reason,
        source=_RELEASE + "distributed/fsdp.py:224-235; " + _TOML_ERA + "models/llama4/infra/parallelize.py:398-402; "
        "torch 2.13.0 (PyPI): FSDP does not support uneven sharding on dim 1",
    ),
    divisible_rule(
        name="sequence_divisible_by_cp_and_tp",
        axes=("tp", "cp"),
        dividend=shared.SEQ_LEN,
        divisor=("(tp * chunks of cp)", _sequence_chunks),
        source=_TOML_ERA + "distributed/parallel_dims.py:365-372; " + _RELEASE + "trainer.py:307-315",
    ),
    Rule(
        name="ring_rotation_removed",
        axes=("cp", "cp_comm_type"),
        holds=lambda _, c: np.asarray((c["cp"] == 1) | (c["cp_comm_type"] != shared.P2P)),
        reason=lambda s, row: (
            f"cp {row['cp']} by p2p: torchtitan {s.framework.version} gathers keys and values, "
            "context_parallel_rotate_method is gone"
        ),
        with_feature="all_gather_only",
        source=_RELEASE + "config/configs.py, distributed/context_parallel/api.py",
    ),
    Rule(
        name="context_parallelism_is_sharded",
        axes=("cp", "zero_stage"),
        holds=lambda _, c: np.asarray((c["cp"] == 1) | (c["zero_stage"] >= 2)),
        reason=lambda _, row: (
            f"cp {row['cp']} with zero_stage {row['zero_stage']}: FSDP shards over cp too, zero_stage must be 2 or 3"
        ),
        source=_RELEASE + "distributed/parallel_dims.py, build_mesh",
    ),
    Rule(
        name="replicas_need_plain_data_parallelism",
        axes=("tp", "pp", "zero_stage", "dp_replicate"),
        holds=lambda _, c: np.asarray(
            (c["zero_stage"] > 0) | (c["dp_replicate"] == 1) | ((c["tp"] == 1) & (c["pp"] == 1))
        ),
        reason=lambda s, row: (
            f"zero_stage 0 with dp_replicate {row['dp_replicate']}, tp {row['tp']} and pp {row['pp']}: torchtitan "
            f"{s.framework.version} runs DDP alone, tp and pp must be 1"
        ),
        without_feature="composable_replication",
        source=_TOML_ERA + "models/llama3/infra/parallelize.py:148-151",
    ),
    Rule(
        name="untied_embeddings_with_pipeline",
        axes=("pp",),
        holds=lambda s, c: np.asarray((c["pp"] == 1) | (not s.model.tie_word_embeddings)),
        reason=lambda s, row: (
            f"pp {row['pp']} with the tied embeddings of {s.model.name}: the copies on the first and the last stage "
            "would drift apart, pp must be 1"
        ),
        source=_REPOSITORY + "models/common/decoder.py:167-208; 0.2.2 copies the modules of each stage unseen",
    ),
    Rule(
        name="microbatches_cover_stages",
        axes=("pp", "schedule", "num_microbatches"),
        holds=lambda _, c: np.asarray((c["pp"] == 1) | (c["num_microbatches"] >= _stages_to_cover(c))),
        reason=lambda _, row: (
            f"num_microbatches {row['num_microbatches']} must be at least the {int(_stages_to_cover(as_columns(row)))} "
            f"stages of pp {row['pp']} under {SCHEDULES[row['schedule']]}"
        ),
        source=_SCHEDULES + ":1021,3440",
    ),
    divisible_rule(
        name="microbatches_fill_rounds",
        axes=("pp", "schedule", "num_microbatches"),
        dividend=shared.NUM_MICROBATCHES,
        divisor=("(num_microbatches // pp)", lambda _, c: _rounds(c)),
        when=lambda _, c: c["schedule"] == _INTERLEAVED,
        source=_SCHEDULES + ":2938",
    ),
    *TORCHTITAN_OFFLOAD_RULES,
)

"""Small models, and plans on them that break no rule, one rule or several: what the frameworks are asked about."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np

from costmodel.arrays import Ints
from costmodel.catalog.framework_catalog import load_framework
from costmodel.rules import broken_by, rules_for
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.model import Hybrid, LinearMixer, Mla, ModelSpec, Moe
from costmodel.spec.options import GRADIENT_SYNCS, OPTION_NAMES
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import PlanTable, mesh_size
from costmodel.usual_options import usual_options_in
from tests import scenarios

Row = dict[str, int]

# The other one is for models with multi-token prediction, which the dense one here has none of.
LAYOUTS = (Layout.EVEN, Layout.LOSS_COUNTS, Layout.EMBEDDING_AND_LOSS_COUNT)

# Small, so that a framework builds them in no time, with sizes that few degrees divide.

DENSE = ModelSpec(
    name="small",
    num_layers=6,
    hidden_size=96,
    num_heads=12,
    num_kv_heads=6,
    head_dim=8,
    ffn_hidden_size=120,
    vocab_size=512,
    tie_word_embeddings=False,
)
TIED = DENSE.model_copy(update={"name": "small-tied", "tie_word_embeddings": True})
WITH_MTP = DENSE.model_copy(update={"name": "small-mtp", "num_mtp_layers": 1})
ODD_WIDTH = DENSE.model_copy(update={"name": "small-odd-width", "hidden_size": 90})
FEW_KV_HEADS = DENSE.model_copy(update={"name": "small-few-kv-heads", "num_kv_heads": 2})
MOE = DENSE.model_copy(
    update={
        "name": "small-moe",
        "num_heads": 24,
        "num_kv_heads": 12,
        "ffn_hidden_size": 60,
        "moe": Moe(num_experts=12, top_k=2, expert_ffn_hidden_size=36),
    }
)
MOE_WITH_SHARED = MOE.model_copy(
    update={
        "name": "small-moe-shared",
        "moe": Moe(num_experts=12, top_k=2, expert_ffn_hidden_size=36, shared_expert_ffn_hidden_size=40),
    }
)
MOE_WITH_DENSE = MOE.model_copy(
    update={
        "name": "small-moe-dense",
        "moe": Moe(
            num_experts=12, top_k=2, expert_ffn_hidden_size=36, shared_expert_ffn_hidden_size=40, num_dense_layers=1
        ),
    }
)
LATENT = DENSE.model_copy(
    update={
        "name": "small-latent",
        "num_kv_heads": 12,
        "ffn_hidden_size": 126,
        "head_dim": 12,
        # Without Transformer Engine the down-projections are cut over tp; with it they are not, so theirs is no rule:
        # both widths, 120 and 116 + 4, are divisible by every tp that the heads allow.
        "mla": Mla(q_lora_rank=120, kv_lora_rank=116, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8),
    }
)

# tp 4 divides the heads of attention, but not those of the mixer.
HYBRID = DENSE.model_copy(
    update={
        "name": "small-hybrid",
        "num_heads": 24,
        "num_kv_heads": 12,
        "head_dim": 4,
        "hybrid": Hybrid(
            mixer=LinearMixer(
                kind="gated_delta_net", num_heads=18, head_dim=8, num_key_heads=6, key_head_dim=8, conv_kernel=4
            ),
            num_attention_layers=3,
            num_mixer_layers=3,
            num_mlp_layers=6,
        ),
    }
)


def scenario_of(model: ModelSpec, framework: str, devices: int, batch: int, seq_len: int, **offers: Any) -> Scenario:
    """A question under the framework, with changes to what it offers."""
    scenario = scenarios.scenario_of(model, "dgx-h100", devices, batch, seq_len, calibration=scenarios.UNCALIBRATED)
    return scenario.model_copy(update={"framework": load_framework(framework).model_copy(update=offers)})


def drawn_row(scenario: Scenario, draw: random.Random) -> Row:
    """A plan close to legal: most axes follow from the others, and now and then one of them doesn't."""
    moe = scenario.model.moe is not None
    tp, cp = draw.choice([1, 1, 2, 2, 4, 3, 5, 6, 8]), draw.choice([1, 1, 1, 2, 3, 4])
    pp = draw.choice([1, 1, 2, 2, 3, 4, 5])
    dp = max(scenario.devices // (tp * cp * pp), 1)
    zero = draw.choice(scenario.framework.zero_stages)
    replicate = dp if zero == 0 else draw.choice([n for n in (1, 1, 1, 2, 4) if dp % n == 0])
    vpp = draw.choice([1, 2, 2, 3]) if pp > 1 else 1
    size = draw.choice([1, 1, 2, 4])
    row = {
        "tp": tp,
        "cp": cp,
        # Rings of rings take sizes of their own, which the probes do not say.
        "cp_comm_type": draw.choice(
            [CP_COMM_TYPES.index(kind) for kind in scenario.framework.cp_comm_types if kind != "a2a+p2p"]
        )
        if cp > 1
        else 0,
        "ep": draw.choice([1, 2, 3, 4, 6, 5, 8, 12]) if moe else 1,
        "etp": draw.choice([1, tp, tp, 2, 8]) if moe else 1,
        "dp": dp,
        "dp_replicate": replicate,
        "dp_shard": dp // replicate,
        "pp": pp,
        "vpp": vpp,
        "layout": draw.choice([0, 0, 1, 2]) if pp > 1 else 0,
        "zero_stage": zero,
        "micro_batch_size": size,
        "num_microbatches": max(scenario.workload.global_batch_size // (dp * size), 1),
        "recompute": 0,
        "schedule": SCHEDULES.index("interleaved_1f1b" if vpp > 1 else "1f1b"),
    }
    if scenario.framework.pipelines_reduce_once and pp > 1:
        row["gradient_sync"] = GRADIENT_SYNCS.index("step")
    row |= usual_options_in(scenario)
    if draw.random() < 0.2:
        axis, values = draw.choice(
            [
                ("ep", [2]),
                ("etp", [2, 3]),
                ("num_microbatches", [1, 2, 7, 9]),
                ("vpp", [1, 2]),
                ("dp_shard", [1, 2]),
                ("schedule", [0, 1, 2]),
            ]
        )
        row[axis] = draw.choice(values)
    return row


def chosen_rows(scenario: Scenario, *, seed: int, draws: int, legal: int, illegal: int) -> list[Row]:
    """Rows that can be said at all: so many legal ones, so many of each rule that is broken alone, one of each mix."""
    draw = random.Random(seed)
    offered = {SCHEDULES.index(name) for name in scenario.framework.schedules}
    drawn = [drawn_row(scenario, draw) for _ in range(draws)]
    drawn = [row for row in drawn if chunks_of(scenario, row) is not None]
    drawn = [row for row in drawn if row["pp"] == 1 or row["schedule"] in offered]
    breaks = broken_by(scenario, PlanTable.of_rows(drawn))
    kinds: defaultdict[frozenset[str], dict[tuple[int, ...], Row]] = defaultdict(dict)
    for place, row in enumerate(drawn):
        rules = frozenset(name for name, broken in breaks.items() if broken[place])
        wanted = legal if not rules else illegal if len(rules) == 1 else 1
        if len(kinds[rules]) < wanted:
            kinds[rules][tuple(row.values())] = row
    mixed = [row for rules, rows in kinds.items() if len(rules) > 1 for row in rows.values()]
    return [row for rules, rows in kinds.items() if len(rules) < 2 for row in rows.values()] + mixed[: 4 * illegal]


def not_drawn(framework: FrameworkSpec) -> set[str]:
    """Rules on what drawn plans have alike: the usual options, bf16, schedules and CP exchanges of one way."""
    options = {*OPTION_NAMES, "recompute_modules"}
    on_options = {rule.name for rule in rules_for(framework) if options & set(rule.axes)}
    one_way = {"dualpipe_needs_even_pp", "dualpipe_fills_both_ways", "hybrid_cp_needs_cp_comm_type"}
    return on_options | one_way | {"precision_in_hardware"}


def chunks_of(scenario: Scenario, row: Row) -> tuple[tuple[int, ...], ...] | None:
    return layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]))


def columns_of(row: Row) -> dict[str, Ints]:
    return {axis: np.asarray(value, dtype=np.int64) for axis, value in row.items()}


def case_of(scenario: Scenario, row: Row) -> dict[str, Any]:
    """The plan with what a framework has to know of its scenario, in plain values."""
    drawn = {axis: value for axis, value in row.items() if axis not in OPTION_NAMES}
    return drawn | {
        "world": mesh_size(row),
        "chunks": chunks_of(scenario, row),
        "schedule": SCHEDULES[row["schedule"]],
        "cp_comm_type": CP_COMM_TYPES[row["cp_comm_type"]],
        "global_batch_size": scenario.workload.global_batch_size,
        "seq_len": scenario.workload.seq_len,
        "model": scenario.model.model_dump(mode="json"),
    }

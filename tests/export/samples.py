"""Plans to export: the best of real searches, legal ones drawn at random, and each of them changed in one field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from costmodel.catalog.framework_catalog import load_framework, load_precision, optimizer_recipes
from costmodel.scenario import Scenario
from costmodel.spec.model import Hybrid, LinearMixer, Mla, ModelSpec, Moe
from costmodel.spec.options import BY_NAME
from costmodel.spec.plan import Plan
from costmodel.spec.plan_draft import PlanDraft
from costmodel.usual_options import usual_options_in
from planner.check.complete import complete
from planner.export.errors import Inexpressible
from planner.export.job import Job
from planner.export.launch import Launch
from planner.export.reading import Read
from planner.export.target import Target
from planner.search.answer import answer_to
from tests.plans import finished, slugs
from tests.scenarios import random_legal_plans, scenario_of
from tests.searches import request_of

Change: TypeAlias = Callable[[Plan], dict[str, Any]]
_PRECISIONS = "bf16 bf16-pure fp16 fp32 tf32 fp8 fp8-current fp8-rowwise fp8-blockwise mxfp8 nvfp4"
PRECISIONS = tuple(load_precision(name).name for name in _PRECISIONS.split())
OPTIMIZERS = tuple(recipe.name for recipe in optimizer_recipes())

# What people ask for by name, with devices and batch that have a plan.
MODELS: Mapping[str, tuple[int, int, int]] = {
    "llama-3.1-405b": (512, 512, 8192),
    "deepseek-v3": (1024, 1024, 4096),
    "qwen3-235b-a22b": (256, 1024, 4096),
    "mixtral-8x22b": (256, 1024, 4096),
    "llama-3.1-8b": (64, 256, 8192),
}


def asked(model: str | ModelSpec, framework: str, devices: int, batch: int, seq_len: int, **how: Any) -> Scenario:
    version = how.pop("version", None)
    scenario = scenario_of(model, devices=devices, global_batch_size=batch, seq_len=seq_len, **how)
    return scenario.model_copy(update={"framework": load_framework(framework, version)})


def best(scenario: Scenario, *pins: str, top: int = 3) -> list[Job]:
    """The best plans of a real search."""
    answer = answer_to(request_of(scenario, pins=pins, top=top))
    return [Job(scenario=scenario, plan=Plan(**found["plan"])) for found in answer["plans"]]


def drawn(scenario: Scenario, count: int, seed: int, change: Change | None = None) -> list[Job]:
    """Legal plans of all kinds; ``change`` may touch them up, and those that are no longer legal are left out."""
    table = random_legal_plans(scenario, count, seed)
    found = []
    for index in range(len(table)):
        plan = finished(scenario, table.row(index))
        full = plan.recompute == "full"
        again = plan.layers_per_stage if full else plan.recomputed_layers_per_stage
        usual = {name: BY_NAME[name].decode(code) for name, code in usual_options_in(scenario).items()}
        plan = plan.model_copy(update={"recomputed_layers_per_stage": again} | usual | (change(plan) if change else {}))
        if not slugs(plan, scenario):
            found.append(Job(scenario=scenario, plan=Plan(**plan.model_dump())))
    return found


def changed(job: Job, **fields: Any) -> Job:
    """The same job with other fields; only what no plan could be is refused here."""
    plan = Plan(**{**job.plan.model_dump(), **fields})
    return Job(scenario=job.scenario, plan=plan, name=job.name)


def with_model(job: Job, **fields: Any) -> Job:
    model = ModelSpec(**{**job.model.model_dump(), **fields})
    return Job(scenario=job.scenario.model_copy(update={"model": model}), plan=job.plan, name=job.name)


@dataclass(frozen=True)
class Told:
    """What an export came to: everything that a user sees of it, or the fields that it was refused for."""

    launch: Launch | None
    refused: tuple[str, ...] = ()


def told(target: Target, job: Job, version: str | None = None) -> Told:
    try:
        return Told(launch=target.write(job, version))
    except Inexpressible as error:
        return Told(launch=None, refused=tuple(refusal.field for refusal in error.refusals))


def mutations(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of the plan -> other values of it, with what has to change along."""
    stages, batch = plan.pp, plan.global_batch_size
    moved = (plan.layers_per_stage[0] - 1, *plan.layers_per_stage[1:-1], plan.layers_per_stage[-1] + 1)
    others: dict[str, list[dict[str, Any]]] = {
        "tp": [{"tp": 2 * plan.tp, "devices_used": 2 * plan.devices_used}],
        "pp": [
            {
                "pp": 2 * stages,
                "devices_used": 2 * plan.devices_used,
                "layers_per_stage": plan.layers_per_stage * 2,
                "recomputed_layers_per_stage": plan.recomputed_layers_per_stage * 2,
            }
        ],
        "cp": [{"cp": 2 * plan.cp, "devices_used": 2 * plan.devices_used}],
        "dp": [
            {
                "dp": 2 * plan.dp,
                "dp_shard": 2 * plan.dp_shard,
                "devices_used": 2 * plan.devices_used,
                "global_batch_size": 2 * batch,
            }
        ],
        "dp_replicate": [{"dp_replicate": plan.dp_shard, "dp_shard": plan.dp_replicate}],
        "global_batch_size": [{"global_batch_size": 2 * batch, "num_microbatches": 2 * plan.num_microbatches}],
        "micro_batch_size": [{"micro_batch_size": 2 * plan.micro_batch_size, "global_batch_size": 2 * batch}],
        "recomputed_layers_per_stage": [{"recomputed_layers_per_stage": (1, *plan.recomputed_layers_per_stage[1:])}],
        "layers_per_stage": [{"layers_per_stage": moved}] if stages > 1 else [],
        "layers_per_chunk": [{"layers_per_chunk": tuple((1, layers - 1) for layers in plan.layers_per_stage)}],
    }
    values: dict[str, tuple[Any, ...]] = {
        "vpp": (2,),
        "cp_comm_type": ("p2p", "all_gather", "a2a", "a2a+p2p"),
        "ep": (2, 8),
        "etp": (2, 4),
        "zero_stage": (0, 1, 2, 3),
        "sequence_parallel": (True, False),
        "seq_len": (2 * plan.seq_len,),
        "schedule": ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe", "dualpipe_v"),
        "recompute": ("none", "selective", "full"),
        "recompute_modules": (("core_attn",), ("layernorm",)),
        "recompute_interval": (2,),
        "offload": ("none", "optimizer", "activations", "parameters"),
        "reshard_after": ("forward", "backward", "step"),
        "fsdp_prefetch": (0, 1, 2),
        "gradient_sync": ("step", "microbatch"),
        "zero_plus": ((), ("qwz",), ("hpz",), ("qgz",), ("qwz", "hpz", "qgz")),
        "tp_overlap": (True, False),
        "cp_a2a_degree": (1, 2),
        "cp_balanced": (True, False),
        "moe_dispatcher": ("deduplicated", "all_to_all", "all_gather"),
        "ep_overlap": (True, False),
        "moe_capacity_factor": (None, 1.25),
        "precision": PRECISIONS,
        "optimizer": OPTIMIZERS,
        "gradient_dtype": ("fp32", "bf16", "fp16"),
    }
    for name, found in values.items():
        others[name] = [{name: value} for value in found if value != getattr(plan, name)]
    for name, changes in others.items():
        yield from ((name, change) for change in changes)


UNCHANGED = frozenset({"dp_shard", "num_microbatches", "devices_used", "framework", "framework_version"})
"""They change with others, or, the framework, the target with them."""


def silent(target: Target, job: Job, means_nothing: Callable[[Plan, str], bool]) -> list[tuple[str, dict[str, Any]]]:
    """Changes of a plan that its export does not show.

    Args:
        means_nothing: whether the framework could not look at a field beside the rest of the plan.
    """
    before = told(target, job)
    found = []
    for name, change in mutations(job.plan):
        after = changed(job, **change)
        now = told(target, after)
        nothing = means_nothing(job.plan, name) and means_nothing(after.plan, name)
        if now == before and after.plan != job.plan and not nothing:
            found.append((name, change))
    return found


def one_of_each_kind(jobs: Iterable[Job]) -> list[Job]:
    """So that no two of them differ in sizes alone."""
    axes = ("tp", "cp", "pp", "ep")
    kinds = {
        (job.model.name, job.plan.zero_stage, *(getattr(job.plan, axis) > 1 for axis in axes)): job for job in jobs
    }
    return list(kinds.values())


def means_nothing(plan: Plan, field: str) -> bool:
    """Whether no framework has anything to look at: one rank has no exchange, dense gradients no gathers."""
    return {
        "cp_comm_type": plan.cp == 1,
        "cp_a2a_degree": plan.cp == 1,
        "cp_balanced": plan.cp == 1,
        "tp_overlap": plan.tp == 1,
        "sequence_parallel": plan.tp == 1,
        "moe_dispatcher": plan.ep == 1,
        "ep_overlap": plan.ep == 1,
        "schedule": plan.pp == 1,
        "dp_replicate": plan.zero_stage == 0,
        "fsdp_prefetch": plan.zero_stage < 3,
        "reshard_after": plan.zero_stage < 3,
    }.get(field, False)


def read_back(job: Job, read: Read) -> Plan:
    """The whole plan that a reading comes to under the job's scenario."""
    return complete(PlanDraft(**read.plan), job.scenario, {}).plan


def model_mutations(model: ModelSpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every feature that a model may have -> a model that differs in it, with what has to change along."""
    mla = Mla(q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32)
    mixer = LinearMixer(kind="mamba2", num_heads=8, head_dim=64, num_key_heads=1, key_head_dim=64, conv_kernel=4)
    layers = model.num_layers
    switches = ("qkv_bias", "attention_out_bias", "mlp_bias", "expert_bias", "head_bias", "norm_bias", "norm_weight")
    switches += ("gated_mlp", "tie_word_embeddings", "attention_output_gate", "embedding_norm", "attention_sinks")
    for name in switches:
        yield name, {name: not getattr(model, name)}
    for name, value in {
        "hidden_size": 2 * model.hidden_size,
        "num_heads": 2 * model.num_heads,
        "num_kv_heads": 1 if model.num_kv_heads > 1 else model.num_heads,
        "ffn_hidden_size": model.ffn_hidden_size + 128,
        "vocab_size": model.vocab_size + 128,
        "max_position_embeddings": 2 * (model.max_position_embeddings or 4096),
        "extra_position_embeddings": 2,
        "norms_per_layer": 4,
        "num_mtp_layers": model.num_mtp_layers + 1,
    }.items():
        yield name, {name: value}
    if model.mla is None:
        yield "qk_norm", {"qk_norm": "full" if model.qk_norm == "head" else "head"}
        yield "head_dim", {"head_dim": 2 * model.head_dim}
    yield "learned_position_embeddings", {"learned_position_embeddings": True, "max_position_embeddings": 4096}
    yield "sliding_window", {"sliding_window": 1024, "num_sliding_layers": layers}
    yield "num_sliding_layers", {"sliding_window": 1024, "num_sliding_layers": layers - 1}
    yield "mla", {"mla": mla, "head_dim": mla.qk_head_dim, "qk_norm": "none"}
    hybrid = Hybrid(mixer=mixer, num_attention_layers=1, num_mixer_layers=layers - 1, num_mlp_layers=layers)
    yield "hybrid", {"hybrid": hybrid}
    moe = model.moe
    if moe is None:
        yield "moe", {"moe": Moe(num_experts=8, top_k=2, expert_ffn_hidden_size=256)}
        return
    shared = moe.shared_expert_ffn_hidden_size
    for name, more in {
        "num_experts": {"num_experts": 2 * moe.num_experts},
        "top_k": {"top_k": moe.top_k + 1},
        "expert_ffn_hidden_size": {"expert_ffn_hidden_size": moe.expert_ffn_hidden_size + 128},
        "latent_size": {"latent_size": 128},
        "shared_expert_ffn_hidden_size": {"shared_expert_ffn_hidden_size": shared + 256},
        "num_dense_layers": {"num_dense_layers": moe.num_dense_layers + 1},
        "layer_step": {"layer_step": 2},
        "router_bias": {"router_bias": not moe.router_bias},
        "score_correction_bias": {"score_correction_bias": not moe.score_correction_bias},
        "shared_expert_gate": {"shared_expert_gate": not moe.shared_expert_gate, "shared_expert_ffn_hidden_size": 256},
        "num_groups": {"num_groups": 2 if moe.num_groups != 2 else 4, "max_groups_per_token": 1},
        "max_groups_per_token": {"num_groups": moe.num_groups or 2, "max_groups_per_token": 2},
    }.items():
        yield f"moe.{name}", {"moe": Moe(**{**moe.model_dump(), **more})}


def silent_about_model(target: Target, job: Job) -> list[str]:
    """Features that a model may differ in without its export saying so."""
    before = told(target, job)
    return [name for name, change in model_mutations(job.model) if told(target, with_model(job, **change)) == before]

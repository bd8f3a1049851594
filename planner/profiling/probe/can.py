"""What the probe can't run of a plan, and what it runs a little differently, known before anything starts.

Every field of a plan is accounted for here, as in ``planner.export.sheet``: a test holds the list against ``Plan``. No
torch is needed, so that whoever wants a trial can ask first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.recompute_modules import selective_modules
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from planner.export.errors import Refusal
from planner.profiling.probe.can_model import model_refusals
from planner.profiling.probe.can_pipeline import pipeline_refusals

PRECISIONS = ("bf16", "bf16-pure", "fp32")
OPTIMIZERS = ("adam", "adamw", "sgd")
CP_EXCHANGES = ("all_gather", "a2a")
MODULES = ("core_attn", "mlp", "moe", "shared_experts")
"""Whose recomputation saves something where autograd keeps the inputs of products: a norm's output is such an input."""

ACCOUNTED = frozenset(
    {
        *("tp", "sequence_parallel", "tp_overlap", "ep", "etp", "moe_dispatcher", "ep_overlap", "moe_capacity_factor"),
        *("pp", "vpp", "schedule", "layers_per_stage", "layers_per_chunk", "num_microbatches"),
        *("cp", "cp_comm_type", "cp_a2a_degree", "cp_balanced"),
        *("dp", "dp_replicate", "dp_shard", "zero_stage", "reshard_after", "fsdp_prefetch", "gradient_sync"),
        *("zero_plus", "offload", "recompute", "recompute_modules", "recomputed_layers_per_stage"),
        *("recompute_interval", "precision", "optimizer", "gradient_dtype", "framework", "framework_version"),
        # They follow from the rest, or are done to the letter whatever they are.
        *("micro_batch_size", "global_batch_size", "seq_len", "devices_used"),
    }
)


class CantProbe(InvalidInput):
    """The probe can't run the plan.

    Attributes:
        refusals: all that stands against it.
    """

    slug = "cant-probe"

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("plan", "plan", "; ".join(f"{of.field} {of.value}: {of.why}" for of in refusals))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).__new__, (type(self), *self.args), vars(self)

    @property
    def members(self) -> dict[str, Any]:
        return {"refusals": [asdict(of) for of in self.refusals]}

    def _found(self) -> str:
        return "the probe can't run it"


def check_can(scenario: Scenario, plan: Plan) -> None:
    """Accepts what the probe can run.

    Raises:
        CantProbe: with everything that it can't.
    """
    found = refusals(scenario, plan)
    if found:
        raise CantProbe(found)


def refusals(scenario: Scenario, plan: Plan) -> tuple[Refusal, ...]:
    """Everything of the plan and of its model that the probe can't run; empty where it can."""
    return (
        *model_refusals(scenario, plan),
        *pipeline_refusals(plan),
        *_context(plan),
        *_sharding(plan),
        *_recompute(scenario, plan),
        *_numbers(plan),
    )


def is_sharded(plan: Plan) -> bool:
    """Whether FSDP2 cuts parameters: zero stages 2 and 3 over several ranks, where context parallel ones count."""
    return plan.zero_stage >= 2 and plan.dp * plan.cp > 1


def selects_products(scenario: Scenario, plan: Plan) -> bool:
    """Whether selective recompute goes by operations, keeping every second product, instead of by modules."""
    usual = set(plan.recompute_modules) == set(selective_modules(scenario))
    return plan.recompute == "selective" and scenario.framework.selects_products and usual


def as_run(scenario: Scenario) -> Scenario:
    """The scenario to predict for: PyTorch's operations one by one, since the probe compiles nothing."""
    return scenario.model_copy(update={"fused_pointwise": False})


def notes(scenario: Scenario, plan: Plan) -> tuple[str, ...]:
    """What runs differently than the plan says, or than its framework would do it, a sentence each."""
    found = []
    if scenario.framework.name not in ("pytorch-fsdp", "torchtitan"):
        found.append(f"PyTorch's own parallelism stands in for {scenario.framework.title}")
    if plan.tp > 1 and plan.tp_overlap:
        found.append("tensor parallel exchanges don't overlap with products, which needs a compiled model")
    if is_sharded(plan) and plan.pp > 1:
        found.append("in a pipeline parameters stay gathered and gradients are reduced once, at the end of the step")
    if plan.precision == "bf16" and not is_sharded(plan):
        found.append("parameters and gradients are kept in 32 bits and cast for products (autocast)")
    if plan.zero_stage == 1 and plan.dp > 1:
        found.append("stage 1 is ZeroRedundancyOptimizer: gradients are all-reduced, updated tensors broadcast")
    if scenario.model.moe is not None:
        found.append("experts are multiplied one after the other")
    if plan.tp > 1 and scenario.model.vocab_size % plan.tp:
        found.append(f"the vocabulary is padded to a multiple of {plan.tp}")
    return tuple(found)


def _context(plan: Plan) -> Iterator[Refusal]:
    if plan.cp == 1:
        return
    if plan.cp_comm_type not in CP_EXCHANGES:
        why = "the probe exchanges keys and values by all_gather or a2a"
        yield Refusal(field="cp_comm_type", value=plan.cp_comm_type, why=why)
    if plan.cp_comm_type == "a2a" and plan.cp_a2a_degree != plan.cp:
        why = f"all {plan.cp} ranks exchange heads under a2a"
        yield Refusal(field="cp_a2a_degree", value=plan.cp_a2a_degree, why=why)
    pieces = 2 * plan.cp if plan.cp_comm_type == "all_gather" and plan.cp_balanced else plan.cp
    if plan.seq_len % pieces:
        yield Refusal(field="cp", value=plan.cp, why=f"{pieces} pieces don't divide a sequence of {plan.seq_len}")


def _sharding(plan: Plan) -> Iterator[Refusal]:
    if plan.zero_stage == 1 and plan.dp > 1:
        if plan.dp_replicate > 1:
            why = "ZeroRedundancyOptimizer deals its tensors to all replicas"
            yield Refusal(field="dp_replicate", value=plan.dp_replicate, why=why)
        if plan.tp > 1:
            why = "ZeroRedundancyOptimizer takes no tensors that tensor parallelism has cut; stages 0, 2 and 3 do"
            yield Refusal(field="zero_stage", value=plan.zero_stage, why=why)
    if plan.zero_plus:
        yield Refusal(field="zero_plus", value=plan.zero_plus, why="PyTorch has no ZeRO++")
    if plan.offload != "none":
        yield Refusal(field="offload", value=plan.offload, why="the probe keeps everything on its devices")
    if is_sharded(plan) and plan.fsdp_prefetch == 0:
        why = "FSDP2 always gathers the next layer ahead; 1 or more"
        yield Refusal(field="fsdp_prefetch", value=plan.fsdp_prefetch, why=why)
    if plan.zero_stage == 2 and plan.reshard_after == "step" and is_sharded(plan) and plan.pp == 1:
        why = "under stage 2 parameters go after each micro-batch's backward pass"
        yield Refusal(field="reshard_after", value=plan.reshard_after, why=why)
    if plan.gradient_sync == "microbatch" and not is_sharded(plan) and plan.pp > 1 and plan.dp * plan.cp > 1:
        why = "PyTorch's pipelines reduce gradients once a step"
        yield Refusal(field="gradient_sync", value=plan.gradient_sync, why=why)


def _recompute(scenario: Scenario, plan: Plan) -> Iterator[Refusal]:
    if plan.recompute == "none":
        return
    if plan.pp > 1 and plan.schedule in ("zb_v", "dualpipe_v"):
        why = f"{plan.schedule} splits the backward pass, which PyTorch's checkpoints don't"
        yield Refusal(field="recompute", value=plan.recompute, why=why)
    if plan.recompute_interval > 1 and (plan.recompute == "selective" or is_sharded(plan)):
        why = "layers share a checkpoint under full recompute alone, and where FSDP doesn't gather them one by one"
        yield Refusal(field="recompute_interval", value=plan.recompute_interval, why=why)
    if plan.recompute != "selective":
        return
    if any(plan.recomputed_layers_per_stage):
        why = "under selective recompute no layer runs again as a whole"
        yield Refusal(field="recomputed_layers_per_stage", value=plan.recomputed_layers_per_stage, why=why)
    unknown = [name for name in plan.recompute_modules if name not in MODULES]
    if unknown and not selects_products(scenario, plan):
        why = f"the probe can recompute {', '.join(MODULES)}"
        yield Refusal(field="recompute_modules", value=tuple(unknown), why=why)


def _numbers(plan: Plan) -> Iterator[Refusal]:
    if plan.precision not in PRECISIONS:
        yield Refusal(field="precision", value=plan.precision, why=f"the probe trains in {', '.join(PRECISIONS)}")
        return
    if plan.optimizer not in OPTIMIZERS:
        yield Refusal(field="optimizer", value=plan.optimizer, why=f"the probe has {', '.join(OPTIMIZERS)}")
    kept = "bf16" if plan.precision == "bf16-pure" else "fp32"
    # FSDP2 reduces in either type and adds up in that of its parameters.
    usable = {kept, "bf16"} if is_sharded(plan) and plan.precision == "bf16" else {kept}
    if plan.gradient_dtype not in usable:
        why = f"with {plan.precision} and this sharding gradients are in {' or '.join(sorted(usable))}"
        yield Refusal(field="gradient_dtype", value=plan.gradient_dtype, why=why)

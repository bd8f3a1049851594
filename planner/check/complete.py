"""From a draft to a whole plan: what it leaves open follows from the scenario, and every such step is told.

What the draft says stays as it is, also where it contradicts itself or the scenario. Of what it leaves open, the usual
value is taken, by the framework's file, as long as that breaks no rule that another value would keep: see ``choices``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.rules.context_parallel import uses_hybrid
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.spec.options import OPTIONS
from costmodel.spec.plan import CP_COMM_TYPES, Plan
from costmodel.spec.plan_draft import PlanDraft
from costmodel.usual_options import usual_codes
from planner.check.choices import without_broken_rules
from planner.check.complete_layers import settle_layers, settle_recompute
from planner.check.settling import Chosen, Derived, Settling
from planner.check.synonyms import Normalised, normalised

_OPEN = "not given"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A whole plan, not validated, and which of its fields were derived.

    Attributes:
        has_layers: False for pipelines far deeper than the model, which nothing can be laid over.
        normalised: the draft's own fields that mean nothing beside the others and were read in the usual spelling.
    """

    plan: Plan
    derived: tuple[Derived, ...]
    has_layers: bool
    normalised: tuple[Normalised, ...]


def complete(draft: PlanDraft, scenario: Scenario, origins: Mapping[str, str]) -> Completion:
    """Fill in what the draft leaves open.

    Args:
        origins: where facts of the scenario come from that neither a flag nor the plan gave, by field.
    """
    draft, respelt = normalised(draft, scenario)

    def settled(chosen: Mapping[str, Chosen]) -> tuple[Settling, bool]:
        plan = Settling(draft=draft, chosen=chosen)
        _settle_mesh(plan, scenario)
        _settle_sharding(plan, scenario)
        _settle_schedule(plan, scenario)
        has_layers = settle_layers(plan, scenario)
        settle_recompute(plan, scenario)
        _settle_options(plan, scenario)
        _settle_workload(plan, scenario, origins)
        return plan, has_layers

    plan, has_layers = settled(without_broken_rules(draft, scenario, lambda chosen: settled(chosen)[0].values))
    return Completion(
        plan=Plan.model_construct(**plan.values),
        derived=tuple(plan.derived),
        has_layers=has_layers,
        normalised=respelt,
    )


def _settle_mesh(plan: Settling, scenario: Scenario) -> None:
    draft, batch = plan.draft, scenario.workload.global_batch_size
    tp, cp, *_ = (plan.assume(axis, 1, _OPEN) for axis in ("tp", "cp", "ep"))
    _etp(plan, scenario, tp)
    pp = _pp(plan)
    _vpp(plan, pp)
    _exchange(plan, scenario, cp)
    unit = tp * cp * pp
    dp = _dp(plan, scenario, unit)
    if draft.num_microbatches is None:
        size = plan.assume("micro_batch_size", 1, _OPEN)
    else:
        rest = dp * draft.num_microbatches
        size = plan.follow("micro_batch_size", max(batch // rest, 1), "global_batch_size // (dp * num_microbatches)")
    count = max(batch // (size * dp), 1)
    plan.follow("num_microbatches", count, "global_batch_size // (micro_batch_size * dp)")
    plan.follow("devices_used", unit * dp, "tp * cp * dp * pp")
    plan.follow("sequence_parallel", tp > 1, "on where tp > 1")


def _pp(plan: Settling) -> int:
    for name in ("layers_per_stage", "layers_per_chunk"):
        layers = getattr(plan.draft, name)
        if layers is not None:
            return int(plan.follow("pp", len(layers), f"entries of {name}"))
    return int(plan.assume("pp", 1, _OPEN))


def _vpp(plan: Settling, pp: int) -> None:
    draft = plan.draft
    if draft.layers_per_chunk is not None:
        plan.follow("vpp", len(draft.layers_per_chunk[0]), "chunks of the first device in layers_per_chunk")
    elif pp > 1 and draft.schedule in ("zb_v", "dualpipe_v", "interleaved_1f1b"):
        plan.assume("vpp", 2, f"the fewest that schedule {draft.schedule} has")
    else:
        plan.assume("vpp", 1, _OPEN)


def _etp(plan: Settling, scenario: Scenario, tp: int) -> None:
    framework = scenario.framework
    if scenario.model.moe is not None and framework.experts_follow_tp:
        plan.assume("etp", tp, f"tp, where {framework.title} is not told otherwise")
    else:
        plan.assume("etp", 1, _OPEN)


def _exchange(plan: Settling, scenario: Scenario, cp: int) -> None:
    if cp == 1:
        plan.follow("cp_comm_type", "p2p", "cp is 1")
    else:
        offered = scenario.framework.cp_comm_types or CP_COMM_TYPES
        plan.assume("cp_comm_type", offered[0], f"the first that {scenario.framework.title} has")


def _dp(plan: Settling, scenario: Scenario, unit: int) -> int:
    draft = plan.draft
    if draft.dp_replicate is not None and draft.dp_shard is not None:
        return int(plan.follow("dp", draft.dp_replicate * draft.dp_shard, "dp_replicate * dp_shard"))
    name, devices = "devices", scenario.devices
    if draft.devices_used is not None:
        name, devices = "devices_used", draft.devices_used
    return int(plan.follow("dp", max(devices // unit, 1), f"{name} {devices} // (tp * cp * pp = {unit})"))


def _settle_sharding(plan: Settling, scenario: Scenario) -> None:
    draft, dp, framework = plan.draft, plan.values["dp"], scenario.framework
    if 0 in framework.zero_stages and _ranks_to_shard_over(plan, scenario) == 1:
        zero = plan.follow("zero_stage", 0, "nothing to shard over")
    else:
        zero = plan.assume("zero_stage", framework.usual_zero_stage, f"usual for {framework.title}")
    if draft.dp_replicate is not None:
        shard = plan.follow("dp_shard", max(dp // draft.dp_replicate, 1), "dp / dp_replicate")
    elif zero > 0:
        shard = plan.assume("dp_shard", dp, "sharded over all of dp")
    else:
        shard = plan.follow("dp_shard", 1, "zero_stage is 0")
    plan.follow("dp_replicate", max(dp // shard, 1), "dp / dp_shard")


def _ranks_to_shard_over(plan: Settling, scenario: Scenario) -> int:
    """The most ranks that hold the same parameters inside one replica: context parallelism shares them as dp does."""
    tp, cp, dp, ep, etp = (plan.values[axis] for axis in ("tp", "cp", "dp", "ep", "etp"))
    shard = plan.draft.dp_shard or max(dp // (plan.draft.dp_replicate or 1), 1)
    of_experts = tp * cp * shard // (ep * etp) if scenario.model.moe is not None else 1
    return int(max(cp * shard, of_experts))


def _settle_schedule(plan: Settling, scenario: Scenario) -> None:
    pp, vpp, offered = plan.values["pp"], plan.values["vpp"], scenario.framework.schedules
    if pp == 1:
        plan.follow("schedule", "1f1b", "pp is 1")
        return
    wanted = "interleaved_1f1b" if vpp > 1 else "1f1b"
    if wanted in offered or not offered:
        plan.assume("schedule", wanted, f"vpp is {vpp}")
    else:
        plan.assume("schedule", offered[0], f"the first that {scenario.framework.title} has")


def _settle_options(plan: Settling, scenario: Scenario) -> None:
    """Options that the draft leaves open are the usual ones, which goes without saying."""
    columns = as_columns(
        {
            "zero_stage": plan.values["zero_stage"],
            "tp": plan.values["tp"],
            "cp": plan.values["cp"],
            "cp_comm_type": CP_COMM_TYPES.index(plan.values["cp_comm_type"]),
        }
    )
    usual = usual_codes(scenario, columns)
    for option in OPTIONS:
        own = getattr(plan.draft, option.name)
        plan.values[option.name] = option.decode(int(usual[option.name])) if own is None else own
    together = plan.values["tp"] > 1 and not plan.values["sequence_parallel"] and scenario.framework.has("tp_overlap")
    if plan.draft.tp_overlap is None and together:
        plan.follow("tp_overlap", False, "sequence_parallel is off")
    if plan.draft.cp_a2a_degree is None and uses_hybrid(columns):
        degree = plan.values["cp_a2a_degree"]
        plan.assume("cp_a2a_degree", degree, "the most that divide the heads inside the scale-up domain")


def _settle_workload(plan: Settling, scenario: Scenario, origins: Mapping[str, str]) -> None:
    """What repeats the scenario."""
    work, framework = scenario.workload, scenario.framework
    for name, given in (
        ("global_batch_size", work.global_batch_size),
        ("seq_len", work.seq_len),
        ("precision", work.precision.name),
        ("optimizer", work.optimizer.name),
        ("gradient_dtype", scenario.gradients),
        ("framework", framework.name),
    ):
        _from_scenario(plan, name, given, origins)
    _from_scenario(plan, "framework_version", framework.version, origins)
    # Under which version a plan is judged is the scenario's business, not a contradiction.
    plan.values["framework_version"] = framework.version


def _from_scenario(plan: Settling, name: str, given: object, origins: Mapping[str, str]) -> None:
    if name in origins:
        plan.assume(name, given, origins[name])
    else:
        plan.follow(name, given, "the flags")

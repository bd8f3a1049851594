"""A plan's degrees as the axes of MaxText's mesh: inside a slice (ICI) and over slices (DCN).

The expert axis carries the batch outside the experts, so it is a part of ``dp_shard``. Only TPUs have slices: elsewhere
MaxText sees one, and the order of the axes is the order of the devices.
"""

from __future__ import annotations

from math import gcd

from planner.export.job import Job

# Outermost first. What is split over slices comes off from the left; the rest is never recommended there.
OVER_SLICES = ("data", "fsdp", "pipeline", "expert")
AXES = (*OVER_SLICES, "context", "context_usp_ulysses", "tensor", "tensor_sequence")
# mesh_axes of base.yml with experts outside of what the planner lays closer together.
MESH_AXES = (
    "diloco",
    "data",
    "stage",
    "fsdp",
    "fsdp_transpose",
    "expert",
    "context",
    "context_usp_ulysses",
    "context_autoregressive",
    "tensor",
    "tensor_sequence",
    "autoregressive",
)


def axes_of(job: Job) -> dict[str, int]:
    """The size of every axis; of fsdp 0 where ep is no part of the shards.

    Parameters outside of the experts are cut over the expert axis as well, so it is a part of what is sharded over.
    """
    plan = job.plan
    replicas, shards = (plan.dp_replicate, plan.dp_shard) if plan.zero_stage == 3 else (plan.dp, plan.ep)
    ulysses = plan.cp_a2a_degree if plan.cp_comm_type == "a2a+p2p" else 1
    return {
        "data": replicas,
        "fsdp": shards // plan.ep if shards % plan.ep == 0 else 0,
        "pipeline": plan.pp,
        "expert": plan.ep,
        "context": plan.cp // ulysses,
        "context_usp_ulysses": ulysses,
        "tensor": 1 if plan.sequence_parallel else plan.tp,
        "tensor_sequence": plan.tp if plan.sequence_parallel else 1,
    }


def slices_of(job: Job) -> int:
    """How many slices of TPUs the plan spans; 1 elsewhere."""
    cluster, used = job.scenario.cluster, job.plan.devices_used
    if cluster.accelerator.family != "tpu" or used <= cluster.scale_up_devices:
        return 1
    return used // gcd(used, cluster.scale_up_devices)


def over_slices(axes: dict[str, int], slices: int) -> dict[str, int] | None:
    """The part of each axis that is over slices; None where those that may be are too small for it."""
    left, found = slices, {}
    for axis in OVER_SLICES:
        found[axis] = gcd(axes[axis], left)
        left //= found[axis]
    return found if left == 1 else None

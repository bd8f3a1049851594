"""Variables that a plan needs beside its settings."""

from __future__ import annotations

from planner.export.allocator import allocator_of
from planner.export.job import Job

# Compute capability 10 and later need no order among streams (megatron/training/arguments.py of megatron-core 0.17.1,
# validate_args: get_device_arch_version() < 10).
_WITHOUT_ORDER = ("blackwell",)
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def environment_of(job: Job) -> dict[str, str]:
    """Of every process.

    With tensor or context parallelism one hardware queue keeps communication in front of the product that it is to
    overlap with; Megatron-FSDP refuses that, and overlap of dispatch and combine wants many queues (validate_args, as
    above; launch_flags of Megatron-Bridge's performance guide).
    """
    plan, accelerator = job.plan, job.scenario.cluster.accelerator
    found: dict[str, str] = {}
    if plan.zero_stage >= 2:
        found[_CONNECTIONS] = "8"  # the driver's own default; a container may have set 1
    elif (plan.tp > 1 or plan.cp > 1) and accelerator.family not in _WITHOUT_ORDER:
        found[_CONNECTIONS] = "32" if plan.ep_overlap else "1"
    return found | allocator_of(job)

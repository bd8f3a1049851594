"""PyTorch's allocator, as launch scripts of all frameworks on it set it."""

from __future__ import annotations

from planner.export.job import Job

_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


def allocator_of(job: Job) -> dict[str, str]:
    """The variable by which segments grow in place of lying about in pieces (docs.pytorch.org, notes/cuda).

    The variable is CUDA's: other vendors' builds of PyTorch have names of their own for theirs, and not all can do so.
    """
    return {_VARIABLE: "expandable_segments:True"} if job.scenario.cluster.accelerator.vendor == "NVIDIA" else {}

"""Pipelines of DeepSpeed: a ``PipelineModule`` that the user's script makes, with arguments that the plan gives."""

from __future__ import annotations

from planner.export.job import Job

PARTITION = "type:decoderlayer"
"""Stages with the same number of layers whose class is named so, as Hugging Face's are (LlamaDecoderLayer)."""


def split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage under ``PARTITION``: what does not divide goes to the first stages, one each.

    Source: deepspeed 0.19.8 (PyPI) deepspeed/runtime/utils.py, partition_balanced of weights 0 and 1; run.
    """
    base, extra = divmod(layers, stages)
    return tuple(base + (stage < extra) for stage in range(stages))


def notes(job: Job) -> list[str]:
    """What the script has to write."""
    plan = job.plan
    if plan.pp == 1:
        return []
    interval = plan.recompute_interval if plan.recompute == "full" else 0
    found = [
        f"DeepSpeed takes the pipeline from code: PipelineModule(layers, num_stages={plan.pp}, "
        f'partition_method="{PARTITION}", activation_checkpoint_interval={interval}), with layers in their order and '
        "a class name with DecoderLayer in it for those that are counted"
    ]
    if job.model.tie_word_embeddings:
        found.append("embedding and output projection share their weights: both are a TiedLayerSpec of one key")
    return found

"""Parameters and memory of a run by rules of thumb, for the baselines.

State is 18 bytes per parameter: 2 weight, 4 gradient, 12 optimizer, of which data parallelism shards what the ZeRO
stage says (Megatron-LM, distributed optimizer: 6 + 12/d). Activations are ``34 s b h`` bytes per layer without the
attention matrix, ``2 s b h`` when the layer is recomputed (arXiv:2205.05198, equation 1 and table 2); a single stage
also holds the logits, 4 bytes each.
"""

from __future__ import annotations

from costmodel.runs.columns import Run
from costmodel.runs.words import recompute_of, sharding_of

_WEIGHT_BYTES = 2
_GRADIENT_BYTES = 4
_OPTIMIZER_BYTES = 12
_LOGIT_BYTES = 4
_LAYER_BYTES = 34
_RECOMPUTED_LAYER_BYTES = 2


def active_params(run: Run) -> float | None:
    """Parameters that one token passes through: as stated, else counted from the shape."""
    stated = run.n_active_params_b or (None if run.experts else run.n_params_b)
    return stated * 1e9 if stated else _counted(run, run.top_k or 1) or _stated_total(run)


def total_params(run: Run) -> float | None:
    """All parameters: as stated, else counted from the shape."""
    return _stated_total(run) or _counted(run, run.experts or 1)


def recomputes_all(run: Run) -> bool:
    """Whether every layer is recomputed, and not something that merely counts as that elsewhere (a note says so)."""
    policy, _, notes = recompute_of(run.recompute)
    return policy == "full" and not notes


def data_parallel(run: Run) -> float:
    """Replicas of the model: as stated, else what is left of the devices."""
    return run.dp or max(1.0, (run.devices or 1) / ((run.tp or 1) * (run.pp or 1) * (run.cp or 1)))


def micro_batches(run: Run) -> float | None:
    """Micro-batches that one replica runs per step."""
    if not (run.global_batch and run.micro_batch):
        return None
    return max(1.0, run.global_batch / (run.micro_batch * data_parallel(run)))


def first_stage_bytes(run: Run) -> float | None:
    """State and activations of a device of the first pipeline stage, which holds the most activations."""
    total, active, in_flight = total_params(run), active_params(run), micro_batches(run)
    if not (total and active and in_flight and run.layers and run.hidden and run.seq_len and run.micro_batch):
        return None
    tp, pp = run.tp or 1, run.pp or 1
    local_params = (active + max(0.0, total - active) / (run.ep or 1)) / (tp * pp)
    layer = _RECOMPUTED_LAYER_BYTES if recomputes_all(run) else _LAYER_BYTES / tp
    tokens = run.seq_len / (run.cp or 1) * run.micro_batch
    alive = run.layers / pp * min(pp, in_flight)
    logits = _LOGIT_BYTES * tokens * (run.vocab or 0) / tp if pp == 1 else 0.0
    return local_params * _state_bytes(run) + layer * tokens * run.hidden * alive + logits


def _stated_total(run: Run) -> float | None:
    return run.n_params_b * 1e9 if run.n_params_b else None


def _counted(run: Run, experts_counted: int) -> float | None:
    """Attention, feed-forward and embedding weights of the shape, each token passing ``experts_counted`` experts."""
    if not (run.layers and run.hidden and run.vocab):
        return None
    shared_heads = (run.kv_heads or run.heads or 1) / (run.heads or run.kv_heads or 1)
    width = (run.head_dim or 0) * (run.heads or 0) or run.hidden
    attention = 2 * run.hidden * width * (1 + shared_heads)
    matrices = 2 if run.swiglu is False else 3
    if run.experts:
        units = experts_counted + (run.n_shared_experts or 0)
        feed_forward = matrices * run.hidden * (run.moe_ffn_hidden or run.ffn_hidden or 0) * units
    else:
        feed_forward = matrices * run.hidden * (run.ffn_hidden or 4 * run.hidden)
    embeddings = run.vocab * run.hidden * (1 if run.tied_embeddings else 2)
    return run.layers * (attention + feed_forward) + embeddings


def _state_bytes(run: Run) -> float:
    """Bytes of state per parameter that a device holds, by how much of it data parallelism shards."""
    replicas = data_parallel(run)
    stage = _sharding(run)
    kept = _WEIGHT_BYTES * (stage < 3) + _GRADIENT_BYTES * (stage < 2) + _OPTIMIZER_BYTES * (stage < 1)
    everything = _WEIGHT_BYTES + _GRADIENT_BYTES + _OPTIMIZER_BYTES
    return kept + (everything - kept) / replicas


def _sharding(run: Run) -> int:
    """ZeRO stage: 0 nothing, 1 optimizer, 2 gradients too, 3 weights too; what nobody says is not sharded."""
    stage, _, _ = sharding_of(run.zero_stage)
    return int(run.dist_opt or False) if stage is None else stage

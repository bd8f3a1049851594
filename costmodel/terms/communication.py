"""Communication inside and between layers: tensor, context and pipeline parallelism.

Each output is the seconds of one forward pass of one layer (or of one boundary); the backward pass moves as much
unless a docstring says otherwise. What of it is exposed is decided where compute is known, in ``costmodel.layers``.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num, num
from costmodel.collectives import all_gather, all_to_all, neighbours, reduce_scatter
from costmodel.facts import Facts
from costmodel.kernels import memory_bound_s
from costmodel.spec.plan import CP_COMM_TYPES
from costmodel.terms import groups, shapes
from costmodel.terms.expert_parallel import gathers_tokens
from costmodel.terms.groups import Group
from costmodel.terms.term import Axes, Outputs, Term

P2P, ALL_GATHER, A2A, HYBRID = (CP_COMM_TYPES.index(kind) for kind in ("p2p", "all_gather", "a2a", "a2a+p2p"))


def _tensor_parallel(f: Facts, x: Axes) -> Outputs:
    """One all-gather and one reduce-scatter of ``b s h`` around each sub-block, forward and again backward.

    Korthikanti 2022, arXiv 2205.05198, section 4.2.2. Shared experts are cut like an MLP; routed ones by ``etp``.
    Layers of one sub-block only, as hybrids have them, exchange half as much.
    """
    size = shapes.tokens(f, x) * f.model.hidden * f.work.activation_bytes

    def there_and_back(group: Group, size: Num) -> Num:
        both = all_gather(f, *group).seconds(size) + reduce_scatter(f, *group).seconds(size)
        return np.where(group.size > 1.0, both, 0.0)

    block = there_and_back(groups.tensor(x), size)
    block = block * (shapes.sub_blocks(f) / 2.0)
    routed = shapes.routed_tokens(f, x) * f.model.expert_hidden * f.work.activation_bytes
    # Where all tokens are gathered for the experts, that is over etp too.
    expert = np.where(gathers_tokens(x), 0.0, there_and_back(groups.expert_tensor(x), routed)) * f.model.mlp_share
    in_domain = (x.tp <= f.hardware.tier_devices[0]) * f.hardware.tier_scale_up[0]
    return {
        "tp_block_s": block,
        "tp_expert_s": expert + np.where(f.model.shared_ffn > 0, block, 0.0),
        "tp_in_domain": in_domain,
        "tp_can_overlap": in_domain * x.tp_overlap,
    }


def _context_parallel(f: Facts, x: Axes) -> Outputs:
    """Exchange of keys and values (primer, "Context parallelism and ring attention").

    ``cp_hideable_s`` overlaps with attention, ``cp_exposed_s`` cannot. Ring: hops of one K/V chunk to all ranks but
    one's own. All-gather: the whole K/V before attention starts (Llama 3). Ulysses: all-to-all of Q, K, V before and of
    the output after attention (Jacobs 2023, arXiv 2309.14509, section 3.2). Both: Ulysses among ``cp_a2a_degree``
    neighbours, and a ring of what these hold together (Fang 2024, arXiv 2405.07719, section 3).
    """
    t, element = shapes.tokens(f, x), f.work.activation_bytes
    inner, outer = x.cp_a2a_degree, x.cp / x.cp_a2a_degree
    widths, width = f.model.qk_head_dim + f.model.v_head_dim, shapes.heads(f, x) * f.model.v_head_dim
    # After the exchange a rank has its share of the KV heads, at least one, of the tokens of all inner ranks.
    kv = np.maximum(shapes.kv_heads(f, x) / inner, 1.0) * inner * widths
    chunk = t * kv * element
    ring = (outer - 1.0) * neighbours(f, outer, x.tp * inner).seconds(chunk)
    gather = all_gather(f, *groups.context(x)).seconds(chunk * x.cp)
    everything = t * (shapes.heads(f, x) * f.model.qk_head_dim + kv + width) * element
    exchange = all_to_all(f, inner, x.tp, np.ones_like(x.cp)).seconds(everything)
    # A mixer passes on a state of fixed size: next to keys and values of a chunk it is nothing.
    ring, gather, exchange = (seconds * f.model.attention_share for seconds in (ring, gather, exchange))
    active = x.cp > 1.0
    gathers = active & (x.cp_comm_type == ALL_GATHER)
    exchanges = active & ((x.cp_comm_type == A2A) | (x.cp_comm_type == HYBRID))
    rings = active & ((x.cp_comm_type == P2P) | (x.cp_comm_type == HYBRID))
    # After every hop but the first the running output is rescaled by the softmax statistics: read, read, write in fp32
    # (Liu 2023, arXiv 2310.01889, section 3).
    merged = (outer - 1.0) * t * width * 3.0 * 4.0
    merge = (memory_bound_s(f, merged) + (outer - 1.0) * f.cal.gemm_launch_s) * f.model.attention_share
    # Gathered K/V and its gradient; two chunks on the way and two at work; Q, K, V and output in their other layout.
    held = np.where(exchanges, everything, 0.0) + np.where(rings, 4.0 * chunk, 0.0)
    return {
        "cp_buffer_bytes": np.where(gathers, 2.0 * chunk * x.cp, held),
        "cp_leaves_domain": num(x.tp * x.cp > f.hardware.tier_devices[0]),
        "cp_merge_s": np.where(rings, merge, 0.0),
        "cp_hideable_s": np.where(rings, ring, 0.0),
        "cp_exposed_s": np.where(gathers, gather, np.where(exchanges, exchange, 0.0)),
        # Gathered K/V is gathered again and its gradient scattered; an all-to-all goes back as it came.
        "cp_exposed_backward_s": np.where(gathers, 2.0 * gather, np.where(exchanges, exchange, 0.0)),
    }


def _pipeline_parallel(f: Facts, x: Axes) -> Outputs:
    """One activation of ``b s h / (c t)`` to the next stage: each tp rank sends its shard.

    Without sequence parallelism too: the copies are cut and gathered again (Narayanan 2021, arXiv 2104.04473, section
    4.1).
    """
    size = shapes.tokens(f, x) / x.tp * f.model.hidden * f.work.activation_bytes
    return {"pp_boundary_s": np.where(x.pp > 1.0, neighbours(f, *groups.pipeline(x)).seconds(size), 0.0)}


TENSOR_PARALLEL = Term(
    name="tensor_parallel",
    axes=("tp", "cp", "ep", "etp", "micro_batch_size", "moe_dispatcher", "tp_overlap"),
    gives=("tp_block_s", "tp_expert_s", "tp_in_domain", "tp_can_overlap"),
    evaluate=_tensor_parallel,
)
CONTEXT_PARALLEL = Term(
    name="context_parallel",
    axes=("tp", "cp", "cp_comm_type", "cp_a2a_degree", "micro_batch_size"),
    gives=(
        "cp_buffer_bytes",
        "cp_leaves_domain",
        "cp_merge_s",
        "cp_hideable_s",
        "cp_exposed_s",
        "cp_exposed_backward_s",
    ),
    evaluate=_context_parallel,
)
PIPELINE_PARALLEL = Term(
    name="pipeline_parallel",
    axes=("tp", "cp", "dp", "pp", "micro_batch_size"),
    gives=("pp_boundary_s",),
    evaluate=_pipeline_parallel,
)

"""Products of an optimizer step that works on whole matrices: Muon's Newton-Schulz iterations.

One iteration on an m x n matrix, m the smaller: ``A = X X^T`` (2 m^2 n FLOPs), ``A A`` (2 m^3), ``B X`` (2 m^2 n), so
``4 m^2 n + 2 m^3``, at most ``6 m^2 n``; over T iterations at most ``T m / tokens`` of the step's own FLOPs (Jordan
2024, kellerjordan.github.io/posts/muon, "Runtime analysis"). Matrices are those of one tensor-parallel rank, which
makes its blocks orthogonal by themselves (Megatron-Core's default, muon_tp_mode blockwise); products run in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodel.arrays import Num, num
from costmodel.facts import Facts
from costmodel.kernels import gemm_s
from costmodel.matrices import Shape, dense_mlp_shapes, expert_shapes, mixing_shapes, shared_expert_shapes
from costmodel.terms.term import Axes, Outputs, Term

MOMENTUM_WIRE_BYTES = 2.0
"""Momentum is gathered in 16 bits, in which the products run."""


def newton_schulz_s(f: Facts, shape: Shape) -> Num:
    """Seconds of all iterations on one matrix."""
    m, n = np.minimum(shape.rows, shape.columns), np.maximum(shape.rows, shape.columns)
    wide = f.hardware.attention_peak_flops
    once = gemm_s(f, m, m, n, peak_flops=wide) + gemm_s(f, m, m, m, peak_flops=wide)
    return f.work.newton_schulz * (once + gemm_s(f, m, n, m, peak_flops=wide))


def _evaluate(f: Facts, x: Axes) -> Outputs:
    if not (f.work.newton_schulz > 0).any():
        return {}

    def both(shapes: Iterable[Shape]) -> tuple[Num, Num]:
        """Seconds of all, and of the longest."""
        total, longest = num(0.0), num(0.0)
        for shape in shapes:
            one = newton_schulz_s(f, shape)
            total = total + shape.count * one
            longest = np.maximum(longest, one * (shape.count > 0))
        return total, longest

    mixing, of_mixing = both(mixing_shapes(f.model, x.tp))
    mlp, of_mlp = both(dense_mlp_shapes(f.model, x.tp))
    shared, of_shared = both(shared_expert_shapes(f.model, x.tp))
    experts, of_experts = both(expert_shapes(f.model, x.ep, x.etp))
    moe = f.model.moe_layers > 0
    of_mlp = of_mlp * (f.model.dense_layers > 0)
    return {
        "matrices_dense_s": mixing + mlp,
        "matrices_moe_s": (mixing + shared) * moe,
        "matrices_experts_s": experts * moe,
        "largest_matrix_s": np.maximum(of_mixing, np.maximum(of_mlp, of_shared * moe)),
        "largest_expert_matrix_s": of_experts * moe,
    }


MATRIX_OPTIMIZER = Term(
    name="matrix_optimizer",
    axes=("tp", "ep", "etp"),
    gives=("matrices_dense_s", "matrices_moe_s", "matrices_experts_s", "largest_matrix_s", "largest_expert_matrix_s"),
    evaluate=_evaluate,
)

"""The two ends of the model: embedding at the front, head and loss at the back."""

from __future__ import annotations

from costmodel.facts import Facts
from costmodel.kernels import BACKWARD_OVER_FORWARD, gemm_s, memory_bound_s
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term


def _ends(f: Facts, x: Axes) -> Outputs:
    t, vocab = shapes.tokens(f, x), shapes.padded_vocab(f, x)
    h, element = f.model.hidden, f.work.activation_bytes
    # The head stays in 16 bits where a recipe says so.
    head = gemm_s(f, t, vocab, h, peak_flops=f.hardware.head_peak_flops)
    loss = memory_bound_s(f, t * vocab * f.cal.loss_traffic_bytes)
    # Gather of rows and scatter-add of their gradient in fp32.
    embedding = memory_bound_s(f, t * h * (2.0 * element + 3.0 * 4.0) / shapes.sequence_shards(f, x))
    return {
        "head_s": head,
        "head_backward_s": head * BACKWARD_OVER_FORWARD,
        "loss_s": loss,
        # Multi-token prediction joins the last hidden state and the next token's embedding (arXiv 2412.19437, 2.2).
        "mtp_projection_s": gemm_s(f, t, h / x.tp, 2.0 * h) * (f.model.mtp_layers > 0),
        "embedding_s": embedding,
        "logits_bytes": t * vocab * f.cal.logits_bytes,
    }


ENDS = Term(
    name="ends",
    axes=("tp", "cp", "micro_batch_size"),
    gives=("head_s", "head_backward_s", "loss_s", "mtp_projection_s", "embedding_s", "logits_bytes"),
    evaluate=_ends,
)

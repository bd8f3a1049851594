"""What cannot be true together in one run: each value may be right, but not all of them.

Such a row is still used: whoever prices it decides what to believe. An axis that is not stated contradicts nothing,
nor does a plan that frameworks refuse (more stages than layers): somebody may have tried it.
"""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.runs.columns import Run

# Two printed figures of one run are rounded on their own; three digits of each leave less than this.
_ROUNDING = 0.2


def contradictions(run: Run) -> Iterator[tuple[str, str]]:
    """(column, what is wrong) for everything in the run that contradicts something else in it."""
    yield from _model(run)
    yield from _mesh(run)
    yield from _batch(run)
    yield from _measured(run)


def _model(run: Run) -> Iterator[tuple[str, str]]:
    if run.heads and run.kv_heads:
        if run.kv_heads > run.heads:
            yield "kv_heads", f"{run.kv_heads} are more than the {run.heads} heads"
        elif run.heads % run.kv_heads:
            yield "kv_heads", f"{run.kv_heads} do not divide the {run.heads} heads"
    if run.tp and run.heads and run.tp > run.heads:
        yield "tp", f"{run.tp} are more than the {run.heads} heads"
    if run.ep and run.experts and run.experts % run.ep:
        yield "ep", f"{run.ep} do not divide the {run.experts} experts"
    if run.top_k and run.experts is not None and run.top_k > run.experts:
        yield "top_k", f"{run.top_k} are more than the {run.experts} experts"
    if run.n_active_params_b and run.n_params_b and run.n_active_params_b > run.n_params_b:
        yield "n_active_params_b", f"{run.n_active_params_b:g} are more than all {run.n_params_b:g}"


def _mesh(run: Run) -> Iterator[tuple[str, str]]:
    tp, pp, cp = run.tp or 1, run.pp or 1, run.cp or 1
    if run.devices and run.dp and run.tp and run.pp and tp * pp * cp * run.dp != run.devices:
        yield "devices", f"tp {tp} x pp {pp} x cp {cp} x dp {run.dp} is not {run.devices}"
    elif run.devices and run.devices % (tp * pp * cp):
        yield "devices", f"tp {tp} x pp {pp} x cp {cp} does not divide {run.devices}"
    experts_mesh = (run.ep or 1) * (run.etp or 1)
    if run.devices and pp * experts_mesh > run.devices:
        yield "ep", f"pp {pp} x ep x etp {experts_mesh} is more than the {run.devices} devices"


def _batch(run: Run) -> Iterator[tuple[str, str]]:
    if run.global_batch and run.micro_batch and run.dp and run.global_batch % (run.micro_batch * run.dp):
        at_once = f"micro_batch {run.micro_batch} x dp {run.dp}"
        yield "global_batch", f"{run.global_batch} is not a multiple of {at_once}"


def _measured(run: Run) -> Iterator[tuple[str, str]]:
    step, rate = run.measured_step_time_s, run.measured_tokens_per_s_per_device
    if step and rate and run.devices and run.global_batch and run.seq_len:
        implied = run.global_batch * run.seq_len / (rate * run.devices)
        if abs(implied - step) > _ROUNDING * step:
            yield "measured_step_time_s", f"{step:g} s, but the tokens per second make it {implied:.3g} s"
    if run.outcome.strip().lower() == "oom" and step:
        yield "outcome", "oom, but a step time was measured"

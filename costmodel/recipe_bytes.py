"""Bytes per parameter of a scenario's recipes: what is kept, and what the optimizer step moves.

Published: 16 with 16-bit gradients, 18 with 32-bit ones (Rajbhandari 2019, arXiv 1910.02054, section 3.1); a master
copy that is the parameter takes the place of the 16-bit one.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.matrices import model_matrices
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.recipes import OptimizerRecipe, PrecisionRecipe

_FACTOR_BYTES = 4.0
"""Rows and columns of a factored moment are kept in 32 bits."""


@dataclass(frozen=True, kw_only=True)
class RecipeBytes:
    """Bytes per parameter, as the mean over the model's parameters.

    Attributes:
        read: of a parameter as the passes read it.
        kept: of a parameter as its rank keeps it: the master copy where that is the parameter.
        copies: of the quantised copies that lie beside it, in layers, while a pass uses it.
        kept_copies: the same where they lie there all the time.
        optimizer: of master copy and moments, where the former is not the parameter.
        moment: of one of two 32-bit moments; 0 for optimizers that have fewer or narrower ones.
        traffic_over_adamw: what the optimizer step moves, over what it moves under AdamW in bf16 with a 32-bit copy and
            the framework's usual gradients, which is what calibrations know.
    """

    read: float
    kept: float
    copies: float
    kept_copies: float
    optimizer: float
    moment: float
    traffic_over_adamw: float


_WIDE = 4.0
"""Bytes of a 32-bit moment. Optimizers with narrower ones (AnyPrecisionAdamW, torchao) go parameter by parameter."""
_ADAMW = OptimizerRecipe(name="adamw", master_bytes=4, moments=2, source="what optimizer_traffic_bytes is of")


def recipe_bytes(scenario: Scenario) -> RecipeBytes:
    """The bytes of a scenario's precision, optimizer and gradients under its framework."""
    precision, optimizer = scenario.workload.precision, scenario.workload.optimizer
    read = float(precision.param_bytes)
    master = float(optimizer.master_bytes) if precision.keeps_master else 0.0
    is_master = scenario.framework.fp32_parameters and master > 0
    quantisation = precision.quantisation
    copies = quantisation.weight_copy_bytes * (1.0 - precision.kept_layer_share) if quantisation else 0.0
    moments = moment_bytes(optimizer, precision, scenario.model)
    element = min(optimizer.moment_element_bytes, precision.state_element_bytes)
    gradient = float(scenario.gradient_bytes)
    traffic = _traffic(
        optimizer,
        parameter=read if precision.keeps_master else 2.0 * read,
        master=master,
        moments=moments,
        gradient=gradient,
    )
    # Every gradient is read and written once more to unscale it and look for what overflowed.
    traffic += 2.0 * gradient if precision.loss_scaling else 0.0
    usual = float(scenario.framework.gradient_bytes.get("bf16", gradient))
    return RecipeBytes(
        read=read,
        kept=master if is_master else read,
        copies=copies,
        # Parameters that are cast when they are gathered are quantised then, too.
        kept_copies=0.0 if scenario.framework.fp32_parameters else copies,
        optimizer=(0.0 if is_master else master) + moments,
        moment=_WIDE if optimizer.moments >= 2 and element >= _WIDE else 0.0,
        traffic_over_adamw=traffic / _traffic(_ADAMW, parameter=2.0, master=4.0, moments=8.0, gradient=usual),
    )


def moment_bytes(optimizer: OptimizerRecipe, precision: PrecisionRecipe, model: ModelSpec) -> float:
    """Bytes of all moments per parameter, as the mean over a model's parameters.

    A matrix of r x c with a factored moment keeps ``4 (r + c)`` bytes for it (Shazeer 2018, arXiv 1804.04235, 3).
    """
    element = min(optimizer.moment_element_bytes, precision.state_element_bytes)
    total = float(model.params.with_mtp)
    moments = optimizer.moments * element
    if optimizer.rest_moments is None and not optimizer.factored_moments:
        return moments
    inside = [matrix for matrix in model_matrices(model) if not matrix.table]
    share = sum(matrix.count * matrix.rows * matrix.columns for matrix in inside) / total
    if optimizer.rest_moments is not None:
        moments = moments * share + optimizer.rest_moments * element * (1.0 - share)
    edges = sum(matrix.count * (matrix.rows + matrix.columns) for matrix in model_matrices(model))
    return moments + optimizer.factored_moments * _FACTOR_BYTES * edges / total


def _traffic(optimizer: OptimizerRecipe, *, parameter: float, master: float, moments: float, gradient: float) -> float:
    """Bytes moved per parameter: gradients are read, master and moments read and written.

    Args:
        parameter: the 16-bit copy that is written, or the parameter itself, read and written.
    """
    return optimizer.gradient_reads * gradient + 2.0 * (master + moments) + parameter

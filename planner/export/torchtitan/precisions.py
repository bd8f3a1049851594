"""What torchtitan is told of a precision recipe: types of parameters, and what its quantised layers are made by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.export.sheet import Sheet

DTYPES: Mapping[str, tuple[str, str]] = {
    "bf16": ("float32", "bfloat16"),
    "bf16-pure": ("bfloat16", "bfloat16"),
    "fp32": ("float32", "float32"),
}
"""Recipe -> ``training.dtype`` and ``training.mixed_precision_param``; what is quantised trains as bf16 does."""

_FLOAT8 = ("fp8", "fp8-current", "fp8-rowwise")
_QUANTISED = (*_FLOAT8, "mxfp8", "nvfp4")
_HEAD_OF_0_2 = "output"
# Of a decoder layer; the router and the head stay as they are.
_LAYERS = ["attention", "feed_forward"]
_EXPERT_LAYERS = ["attention", "shared_experts", "feed_forward"]
# NVFP4 keeps the last layers in bf16, as many as torchtitan's own recipes do.
_BF16_TAIL = 0.15
_MX_PADDING = 128  # of tokens of an expert, as models/deepseek_v3/config_registry.py has it for sm_100


def put_precision(sheet: Sheet) -> None:
    """Write the plan's precision, or refuse it."""
    plan, name = sheet.plan, sheet.plan.precision
    if name not in DTYPES and name not in _QUANTISED:
        why = "it trains in " + ", ".join([*DTYPES, *_QUANTISED])
        sheet.refuse("precision", name, why)
        return
    dtype, mixed = DTYPES.get(name, DTYPES["bf16"])
    sheet.put("training.dtype", dtype, "precision", "gradient_dtype")
    sheet.put("training.mixed_precision_param", mixed, "precision")
    kept = "bf16" if dtype == "bfloat16" else "fp32"
    sheet.only("gradient_dtype", kept, why=f"gradients have the parameters' type, {kept}, under {name}")
    unsharded = plan.dp_shard * plan.cp == 1 and plan.tp * plan.pp > 1
    if sheet.version == "0.2" and mixed != dtype and unsharded:
        why = "mixed precision is FSDP's or DDP's, and off with tp or pp alone (distributed/utils.py:251)"
        sheet.refuse("precision", name, why)
    if name in _QUANTISED:
        _put_of_toml(sheet) if sheet.version == "0.2" else _put_of_recipe(sheet)


def _put_of_toml(sheet: Sheet) -> None:
    name, experts = sheet.plan.precision, sheet.job.model.moe is not None
    gate = ["router.gate"] if experts else []
    if name == "nvfp4":
        sheet.refuse("precision", name, "there from 0.3 on")
        return
    if name == "fp8-current" and experts:
        sheet.refuse("precision", name, "products of experts have rowwise scales: ask for fp8, which mixes both")
    kind = "float8" if name in _FLOAT8 else "mx"
    converters = [f"quantize.linear.{kind}", *([f"quantize.grouped_mm.{kind}"] if experts else [])]
    sheet.put("model.converters", converters, "precision")
    sheet.put(f"quantize.linear.{kind}.filter_fqns", [_HEAD_OF_0_2, *gate], "precision")
    if name == "fp8-rowwise":
        sheet.put("quantize.linear.float8.recipe_name", "rowwise", "precision")
    if name == "fp8-current":
        # Without a recipe's name scales are tensorwise, and only then parameters are gathered in 8 bits.
        sheet.put("quantize.linear.float8.enable_fsdp_float8_all_gather", True, "precision")
        sheet.put("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", True, "precision")
    if name == "mxfp8":
        sheet.put("quantize.linear.mx.recipe_name", "mxfp8_cublas", "precision")
    if experts:
        sheet.put(f"quantize.grouped_mm.{kind}.fqns", ["experts"], "precision")


def _put_of_recipe(sheet: Sheet) -> None:
    """Converters as (class, keyword arguments); values are Python's."""
    name, experts = sheet.plan.precision, sheet.job.model.moe is not None
    if name == "fp8-current":
        sheet.refuse("precision", name, "0.3 has rowwise scales alone: ask for fp8-rowwise")
        return
    if name == "nvfp4" and experts:
        sheet.refuse("precision", name, "products of experts have no NVFP4")
        return
    layers = _EXPERT_LAYERS if experts else _LAYERS
    found: list[tuple[str, dict[str, Any]]]
    if name == "nvfp4":
        kept = -(-sheet.job.model.num_layers * _BF16_TAIL // 1)
        quantised = sheet.job.model.num_layers - int(kept)
        found = [("NVFP4LinearConverter", {"fqns": [f"layers.{index}." for index in range(quantised)]})]
    elif name == "mxfp8":
        found = [("MXFP8LinearConverter", {"fqns": layers})]
        found += [("MXFP8GroupedExpertsConverter", {"pad_multiple": _MX_PADDING})] if experts else []
    else:
        recipe = {"recipe_name": "rowwise"} if name == "fp8-rowwise" else {}
        gate = ["router.gate"] if experts else []
        found = [("Float8LinearConverter", {**recipe, "filter_fqns": ["lm_head", *gate]})]
        found += [("Float8GroupedExpertsConverter", {})] if experts else []
    compiled = sheet.job.scenario.fused_pointwise
    with_compile = [(kind, {**arguments, "model_compile_enabled": compiled}) for kind, arguments in found]
    sheet.put("model_registry.converters", with_compile, "precision")


def precision_of(
    dtype: str | None, mixed: str | None, converters: Sequence[str], float8: str | None, gathered: bool | None
) -> str | None:
    """The recipe of what a configuration has; None for what no recipe is.

    Args:
        dtype, mixed: ``training.dtype`` and ``training.mixed_precision_param``; None for the defaults.
        converters: names of 0.2, or classes of 0.3, in lower case.
        float8, gathered: the recipe that float8 is told, and whether parameters are gathered in 8 bits.
    """
    kinds = " ".join(converters)
    if "float8" in kinds:
        if not float8:
            return "fp8-current" if gathered else "fp8"
        return {"rowwise": "fp8-rowwise", "tensorwise": "fp8-current"}.get(float8)
    for mark, name in (("nvfp4", "nvfp4"), ("mx", "mxfp8")):
        if mark in kinds:
            return name
    if converters:
        return None
    if dtype == "bfloat16":
        return "bf16-pure"
    both = (dtype or "float32", mixed or "bfloat16")
    return next((name for name, types in DTYPES.items() if types == both), None)

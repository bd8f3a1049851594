"""Precision recipes: bytes of copies and scales, passes that quantise, which devices and frameworks have them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import load_framework, load_precision
from costmodel.checker import check_plan
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.kernels import gemm_s
from costmodel.plan_rows import plan_of
from costmodel.rules import rules_for
from costmodel.rules.rule import as_columns
from costmodel.scenario import lacking_format
from costmodel.terms.activations import ACTIVATIONS
from costmodel.terms.quantisation import QUANTISATION_PASSES
from tests.scenarios import axes_of, broken_down, ideal, plan_row, recalibrated, scenario_of

EIGHT_BITS = ("fp8", "fp8-current", "fp8-blockwise", "mxfp8")


@pytest.mark.parametrize(
    ("name", "activation", "weight"),
    [
        ("fp8", 1, 2),  # one scale a tensor
        ("fp8-current", 1, 2),
        ("fp8-rowwise", 1, 2),
        ("fp8-blockwise", 1 + 4 / 128, 2 * (1 + 4 / 128**2)),  # DeepSeek-V3 (arXiv 2412.19437), section 3.3.2
        ("mxfp8", 1 + 1 / 32, 2 * (1 + 1 / 32)),  # Rouhani 2023 (arXiv 2310.10537): E8M0 for 32 elements
        ("nvfp4", 1 / 2 + 1 / 16, 2 * (1 / 2 + 1 / 16)),  # NVIDIA 2025 (arXiv 2509.25149): E4M3 for 16 elements
    ],
)
def test_a_quantised_element_carries_its_share_of_a_scale(name: str, activation: float, weight: float) -> None:
    quantisation = load_precision(name).quantisation
    assert quantisation is not None
    assert quantisation.copy_bytes == pytest.approx(activation)
    assert quantisation.weight_copy_bytes == pytest.approx(weight)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("fp8", 2 + 1 + 1),  # the scale is known: read once, write rows and columns
        ("fp8-current", 2 + 2 + 1 + 1),  # torchao roofline_utils.py (2026), tensorwise: the maximum first
        ("fp8-rowwise", (2 + 1 + 2) + (2 + 1)),  # the same file, rowwise: a transposed copy in between
        ("fp8-blockwise", 2 + 2 * (1 + 4 / 128)),
        ("mxfp8", 2 + 2 * (1 + 1 / 32)),
        ("nvfp4", 2 + 2 + 2 * (1 / 2 + 1 / 16)),
    ],
)
def test_a_pass_reads_16_bits_and_writes_both_layouts(name: str, published: float) -> None:
    quantisation = load_precision(name).quantisation
    assert quantisation is not None
    assert quantisation.pass_bytes == pytest.approx(published)


def test_current_scaling_reads_a_tensor_once_more_than_delayed() -> None:
    delayed, current = load_precision("fp8").quantisation, load_precision("fp8-current").quantisation
    assert delayed is not None
    assert current is not None
    assert current.pass_bytes - delayed.pass_bytes == 2
    assert current.weight_pass_bytes - delayed.weight_pass_bytes == 2


@pytest.mark.parametrize(("name", "fused"), [("fp8", True), ("fp8-current", False), ("fp8-blockwise", False)])
def test_quantisation_of_a_dense_layer_is_a_pass_over_every_input_and_gradient(name: str, fused: bool) -> None:
    """Llama 3 8B on one device: inputs h, a d, h, f; gradients of outputs q k v, h, 2 f, h."""
    scenario = scenario_of("llama-3-8b", precision=name)
    facts = Facts.of(scenario)
    found = QUANTISATION_PASSES.evaluate(facts, axes_of(tp=1, cp=1, etp=1, micro_batch_size=2))
    h, f, heads, kv = 4096, 14336, 4096, 2 * 1024
    tokens = 2 * scenario.workload.seq_len
    # With delayed scaling norms and activation functions write 8 bits at once.
    ahead, back = (heads, h + kv + 2 * h) if fused else (h + heads + h + f, h + kv + 2 * h + 2 * f)
    quantisation = load_precision(name).quantisation
    assert quantisation is not None
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency / facts.cal.compute_multiplier
    assert found["quantise_dense_s"] == pytest.approx(tokens * ahead * quantisation.pass_bytes / rate)
    assert found["quantise_dense_backward_s"] == pytest.approx(tokens * back * quantisation.pass_bytes / rate)


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_quantisation_is_a_part_of_the_step(zero_stage: int) -> None:
    """Activations for every micro-batch; weights once a step, or every time that ZeRO-3 gathers them."""
    scenario = scenario_of("llama-3-8b", precision="fp8-current", devices=8, global_batch_size=32)
    facts = Facts.of(scenario)
    found = broken_down(scenario, plan_row(32, dp=8, zero_stage=zero_stage), facts=facts)
    passes = QUANTISATION_PASSES.evaluate(facts, axes_of(tp=1, cp=1, etp=1, micro_batch_size=1))
    layers, micro_batches = 32, 4
    per_layer = float(passes["quantise_dense_s"][0] + passes["quantise_dense_backward_s"][0])
    quantisation = scenario.workload.precision.quantisation
    assert quantisation is not None
    rate = float(facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency / facts.cal.compute_multiplier)
    params = layers * scenario.model.params.dense_layer
    times = 1 if zero_stage == 1 else 2 * micro_batches
    weights = times * params * quantisation.weight_pass_bytes / rate
    assert found.time["quantisation"][0] == pytest.approx(micro_batches * layers * per_layer + weights, rel=1e-6)
    assert sum(part[0] for part in found.time.values()) == pytest.approx(found.step_time_s[0])


def test_nothing_is_quantised_in_16_bits() -> None:
    scenario = scenario_of("llama-3-8b")
    found = broken_down(scenario, plan_row(256, dp=64))
    assert "quantisation" not in found.time
    assert found.memory["weight_copies"].max() == 0


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_copies_of_the_weights_are_those_of_the_layers(name: str) -> None:
    """Embedding, head and the rest stay in 16 bits; ZeRO-3 cuts the copies with the parameters."""
    cluster = "dgx-b200" if name == "mxfp8" else "dgx-h100"
    scenario = scenario_of("llama-3-8b", cluster, precision=name)
    rows = [plan_row(256, dp=64, zero_stage=stage) for stage in (1, 3)]
    whole, cut = broken_down(scenario, *rows).memory["weight_copies"][:, 0]
    quantisation = scenario.workload.precision.quantisation
    assert quantisation is not None
    assert whole == pytest.approx(32 * scenario.model.params.dense_layer * quantisation.weight_copy_bytes)
    assert cut == pytest.approx(whole / 64)


def test_where_the_shards_are_32_bits_wide_copies_are_made_of_what_is_gathered() -> None:
    framework = load_framework("torchtitan")
    scenario = scenario_of("llama-3-8b", precision="mxfp8", cluster="dgx-b200").model_copy(
        update={"framework": framework}
    )
    found = broken_down(scenario, plan_row(256, dp=64, zero_stage=3)).memory
    plain = broken_down(scenario_of("llama-3-8b", cluster="dgx-b200"), plan_row(256, dp=64, zero_stage=3)).memory
    assert found["weight_copies"][0, 0] == 0
    copied = found["gathered_parameters"][0, 0] - plain["gathered_parameters"][0, 0]
    # The layer at work; beside it a table is larger than the next layer.
    assert copied == pytest.approx(scenario.model.params.dense_layer * 2 * (1 + 1 / 32))


def test_four_bits_keep_their_share_of_layers_in_bf16() -> None:
    """16 % of the linear layers (NVIDIA 2025, arXiv 2509.25149): compute-bound products take the mean of both times."""
    scenario = scenario_of("llama-3-8b", "dgx-b200", precision="nvfp4")
    facts = ideal(Facts.of(scenario))
    size = num(8192)
    peaks = scenario.cluster.accelerator.peak_flops_per_s
    expected = 2 * 8192**3 * (0.84 / peaks["fp4"] + 0.16 / peaks["bf16"])
    assert float(gemm_s(facts, size, size, size)) == pytest.approx(expected, rel=1e-6)


def test_the_head_and_the_attention_core_stay_in_16_bits() -> None:
    hardware = Facts.of(scenario_of("llama-3-8b", precision="fp8")).hardware
    assert hardware.peak_flops == pytest.approx(1979e12)
    assert hardware.head_peak_flops == hardware.attention_peak_flops == pytest.approx(989e12)


def test_saved_inputs_are_quantised_where_the_framework_keeps_them_so() -> None:
    """Per token 2 (2 + 1) h of norms, 2 qkv, 2 + 1 of attention's output, 2 of two projections, 1 of their product."""
    scenario = scenario_of("llama-3-8b", precision="fp8", devices=1, global_batch_size=1)
    facts = Facts.of(scenario)
    facts = replace(facts, cal=replace(facts.cal, activation_coefficient=num(1)))
    found = broken_down(scenario, plan_row(1), facts=facts).memory["activations"][0, 0]
    h, f = 4096, 14336
    per_token = 2 * (2 + 1) * h + 2 * (h + 2048) + 3 * h + 2 * 2 * f + f
    assert found == pytest.approx(32 * scenario.workload.seq_len * per_token)
    wide = replace(facts, work=replace(facts.work, saved_input_bytes=num(2), saved_twice_bytes=num(0)))
    assert broken_down(scenario, plan_row(1), facts=wide).memory["activations"][0, 0] > found


def test_parameters_are_gathered_in_8_bits_where_the_framework_does_so() -> None:
    """torchao's enable_fsdp_float8_all_gather is for tensorwise scales."""
    scenario = scenario_of("llama-3-8b", precision="fp8-current")
    torch = scenario.model_copy(update={"framework": load_framework("torchtitan", "0.2")})
    rowwise = torch.model_copy(
        update={"workload": torch.workload.model_copy(update={"precision": load_precision("fp8-rowwise")})}
    )
    assert Facts.of(torch).work.parameter_wire == 0.5
    assert Facts.of(scenario).work.parameter_wire == Facts.of(rowwise).work.parameter_wire == 1
    narrow, wide = (
        broken_down(each, plan_row(256, dp=64, zero_stage=3)).memory["gathered_parameters"][0, 0]
        for each in (torch, rowwise)
    )
    layer, table = scenario.model.params.dense_layer, 128256 * 4096
    assert narrow == pytest.approx(layer + max(layer, 2 * table))
    assert wide == pytest.approx((2 + 2) * layer + max((2 + 2) * layer, 2 * table))


@pytest.mark.parametrize("size", [16384, 32768])
def test_large_fp8_products_reach_what_cublaslt_was_measured_at(size: int) -> None:
    """1377 to 1382 TFLOP/s on H100 SXM, cubes of 16k and more: 0.70 of the peak. Training runs reach a tenth less."""
    facts = Facts.of(scenario_of("llama-3-8b", precision="fp8"))
    edge = num(size)
    rate = 2.0 * size**3 / float(gemm_s(facts, edge, edge, edge)) / 1e12
    assert rate == pytest.approx(1380, rel=0.12)
    assert rate < 1382


@pytest.mark.parametrize(
    ("name", "cluster", "what"),
    [
        ("fp8", "dgx-a100-80gb", "computes in fp8; a100-sxm4-80gb has fp32, tf32, bf16, fp16"),
        ("fp8-blockwise", "l40s-8", "needs products of fp8-block; l40s has"),
        ("mxfp8", "dgx-h100", "needs products of mxfp8; h100-sxm5-80gb has .*fp8, in blocks fp8-block"),
        ("nvfp4", "dgx-h100", "computes in fp4; h100-sxm5-80gb has"),
        ("nvfp4", "mi355x-8x400g", "needs products of nvfp4; mi355x has .*fp4, in blocks mxfp8"),
        ("tf32", "mi355x-8x400g", "computes in tf32; mi355x has"),
    ],
)
def test_what_a_device_lacks_is_refused_by_name(name: str, cluster: str, what: str) -> None:
    scenario = scenario_of("llama-3-8b", load_cluster(cluster), devices=8, precision=name)
    (rule,) = (rule for rule in rules_for(scenario.framework) if rule.name == "precision_in_hardware")
    row = plan_row(256, dp=8)
    assert not rule.holds(scenario, as_columns(row)).any()
    assert re.fullmatch(f"precision {name} {what}.*", rule.reason(scenario, row))
    assert "precision_in_hardware" in {found.rule for found in check_plan(plan_of(scenario, row), scenario)}


@pytest.mark.parametrize("cluster", ["dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72"])
@pytest.mark.parametrize("name", ["fp8", "fp8-current", "fp8-blockwise", "mxfp8", "nvfp4"])
def test_blackwell_has_them_all(name: str, cluster: str) -> None:
    """nvidia.github.io/TransformerEngine/support_matrix.html (2026): compute capability 10.0 and 10.3."""
    assert lacking_format(load_precision(name), load_cluster(cluster).accelerator) is None


@pytest.mark.parametrize(
    ("framework", "version", "refused", "known"),
    [
        ("megatron-core", "0.11", "fp8-current", "fp8"),
        ("megatron-core", "0.12", "fp8-blockwise", "mxfp8"),
        ("megatron-core", "0.14", "nvfp4", "fp8-blockwise"),
        ("torchtitan", "0.3", "fp8-current", "fp8-rowwise"),
        ("torchtitan", "0.2", "nvfp4", "fp8-current"),
        ("deepspeed", "0.18", "bf16-pure", "bf16"),
        ("nanotron", "2026-04", "fp8", "fp16"),
    ],
)
def test_a_version_trains_in_the_recipes_that_it_knows(framework: str, version: str, refused: str, known: str) -> None:
    spec = load_framework(framework, version)
    scenario_of("llama-3-8b", "dgx-b200", precision=known).model_copy(update={"framework": spec}).check()
    with pytest.raises(InvalidInput, match=rf"'{refused}' is not usable; {spec.title}.* trains in .*{known}"):
        scenario_of("llama-3-8b", "dgx-b200", precision=refused).model_copy(update={"framework": spec}).check()


def without_rows_of(precision: str) -> Calibration:
    shipped = load_calibration()
    rows = tuple(row for row in shipped.parameters if row.precision != precision)
    return shipped.model_copy(update={"parameters": rows})


def test_new_recipes_borrow_the_rows_of_fp8_and_say_so() -> None:
    calibration = without_rows_of("mxfp8")
    key = {"accelerator": "b200-sxm-180gb", "family": "blackwell", "framework": "megatron-core"}
    fp8 = calibration.resolve(precision="fp8", **key)
    mxfp8 = calibration.resolve(precision="mxfp8", precision_like="fp8", **key)
    assert mxfp8.parameters.gemm_efficiency == fp8.parameters.gemm_efficiency
    assert fp8.borrowed == ()
    assert "gemm_efficiency" in mxfp8.borrowed
    scenario = scenario_of("llama-3-8b", "dgx-b200", precision="mxfp8")
    warnings = scenario.model_copy(update={"calibration": calibration}).warnings()
    assert any(text.startswith("no run calibrates mxfp8: gemm_efficiency") for text in warnings)
    assert not any("no run calibrates" in text for text in scenario_of("llama-3-8b", precision="fp8").warnings())


def test_a_row_for_the_recipe_itself_beats_one_that_it_borrows() -> None:
    calibration = without_rows_of("mxfp8")
    row = next(
        row
        for row in calibration.parameters
        if (row.name, row.precision, row.accelerator) == ("gemm_efficiency", "fp8", "b200-sxm-180gb")
    )
    own = calibration.model_copy(
        update={"parameters": (*calibration.parameters, row.model_copy(update={"precision": "mxfp8", "value": 0.5}))}
    )
    key = {"accelerator": "b200-sxm-180gb", "family": "blackwell", "framework": "megatron-core"}
    found = own.resolve(precision="mxfp8", precision_like="fp8", **key)
    assert found.parameters.gemm_efficiency == 0.5
    assert "gemm_efficiency" not in found.borrowed


@pytest.mark.parametrize("name", ["fp8-delayed", "FP8-Tensorwise", "pure-bf16"])
def test_recipes_have_the_names_that_people_use(name: str) -> None:
    assert load_precision(name).name in ("fp8", "fp8-current", "bf16-pure")


@pytest.mark.parametrize(
    ("slow", "fast"), [("bf16", "fp8"), ("fp8-current", "fp8"), ("tf32", "bf16"), ("fp32", "tf32")]
)
def test_narrower_products_and_fewer_passes_are_faster(slow: str, fast: str) -> None:
    rows = [broken_down(scenario_of("llama-3-8b", precision=name), plan_row(256, dp=64)) for name in (slow, fast)]
    assert np.all(rows[0].step_time_s > rows[1].step_time_s)


def test_an_expert_s_permuted_input_is_kept_as_its_product_reads_it() -> None:
    """Mixtral 8x7B, top 2: what only products read again is kept in 8 bits, the gated inputs of SwiGLU in 16."""
    wide, narrow = (Facts.of(scenario_of("mixtral-8x7b", seq_len=4096, precision=name)) for name in ("bf16", "fp8"))
    one = axes_of(**(dict.fromkeys(ACTIVATIONS.axes, 1) | {"recompute_modules": 0, "moe_capacity_factor": 0}))
    of_wide, of_narrow = (
        float(ACTIVATIONS.evaluate(recalibrated(facts, expert_imbalance=1), one)["moe_saved_bytes"][0])
        for facts in (wide, narrow)
    )
    kept = float(narrow.work.saved_input_bytes)
    assert kept < 2
    read_once = 2 * 4096 + 2 * (4096 + 14336)  # both norms' outputs; permuted input and activation of two copies
    saved = read_once * (2 - kept) - 4096 * float(narrow.work.saved_twice_bytes)
    coefficient = float(wide.cal.activation_coefficient)
    assert of_wide - of_narrow == pytest.approx(4096 * saved * coefficient)

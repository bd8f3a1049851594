"""What optimizers keep and move per parameter, against their papers; the products of one that needs whole matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.facts import Facts
from costmodel.matrices import Shape, model_matrices
from costmodel.recipe_bytes import recipe_bytes
from costmodel.scenario import Scenario
from costmodel.terms.matrix_optimizer import newton_schulz_s
from costmodel.terms.state import PARAMETERS
from tests.scenarios import axes_of, broken_down, ideal, plan_row, scenario_of

STATE = ("parameters", "gradients", "optimizer")


def per_parameter(scenario: Scenario, **axes: int) -> tuple[float, ...]:
    """Bytes of parameters, gradients and optimizer on one device, over its parameters."""
    found = broken_down(scenario, plan_row(scenario.workload.global_batch_size, zero_stage=0, **axes)).memory
    facts = Facts.of(scenario)
    tables = PARAMETERS.evaluate(facts, axes_of(tp=1, ep=1, etp=1))["table_params"][0]
    whole = scenario.model.params.total + 2 * (tables - scenario.model.params.embedding)
    return tuple(float(found[term][0, 0]) / whole for term in STATE)


@pytest.mark.parametrize(
    ("precision", "optimizer", "gradients", "published"),
    [
        ("bf16", "adamw", "fp32", (2, 4, 12)),  # 18, the primer's variant with 32-bit accumulation
        ("bf16", "adamw", "bf16", (2, 2, 12)),  # 16 (Rajbhandari 2019, arXiv 1910.02054, section 3.1)
        ("fp16", "adamw", "fp16", (2, 2, 12)),  # the paper's own case
        ("fp32", "adamw", None, (4, 4, 8)),  # the parameter is its own master copy
        ("tf32", "adamw", None, (4, 4, 8)),
        ("fp8", "adamw", None, (2, 4, 12)),  # quantised copies are counted apart
        ("nvfp4", "adamw", None, (2, 4, 12)),
        ("bf16", "adamw-bf16-moments", None, (2, 4, 8)),  # DeepSeek-V3 (arXiv 2412.19437), section 3.3.3
        ("bf16", "adamw-8bit", None, (2, 4, 4 + 2 * (1 + 4 / 2048))),  # Dettmers 2021 (arXiv 2110.02861)
        ("bf16", "sgd", None, (2, 4, 8)),
        ("bf16", "lion", None, (2, 4, 8)),  # Chen 2023 (arXiv 2302.06675): half of Adam's moments
    ],
)
def test_recipes_carry_their_bytes(
    precision: str, optimizer: str, gradients: str | None, published: tuple[float, ...]
) -> None:
    cluster = "dgx-b200" if precision == "nvfp4" else "dgx-h100"
    scenario = scenario_of("llama-3-8b", cluster, precision=precision, optimizer=optimizer)
    found = per_parameter(scenario.model_copy(update={"gradient_dtype": gradients}))
    assert found == pytest.approx(published, rel=1e-6)


def test_pure_bf16_keeps_everything_in_16_bits() -> None:
    """Parameter, gradient and both moments: 8 bytes; in 8 bits the moments are no wider than that."""
    fsdp = load_framework("pytorch-fsdp")
    pure = scenario_of("llama-3-8b", precision="bf16-pure").model_copy(update={"framework": fsdp})
    assert per_parameter(pure, dp=64) == pytest.approx((2, 2, 4), rel=1e-3)
    eight = pure.workload.model_copy(update={"optimizer": load_optimizer("adamw-8bit")})
    assert per_parameter(pure.model_copy(update={"workload": eight}), dp=64)[2] == pytest.approx(2, rel=3e-3)


@pytest.mark.parametrize("framework", ["torchtitan", "pytorch-fsdp", "maxtext", "accelerate"])
def test_without_a_bf16_copy_adamw_takes_16_bytes(framework: str) -> None:
    """The shard is the master copy: 4 + 4 + 8 (PyTorch FSDP's mixed precision)."""
    scenario = scenario_of("llama-3-8b").model_copy(update={"framework": load_framework(framework)})
    of = recipe_bytes(scenario)
    assert (of.kept, scenario.gradient_bytes, of.optimizer) == (4, 4, 8)


def test_adafactor_keeps_a_row_and_a_column_of_every_matrix() -> None:
    """Shazeer 2018 (arXiv 1804.04235), section 3: n + m numbers instead of n m; no momentum (section 6)."""
    scenario = scenario_of("llama-3-8b", optimizer="adafactor")
    h, f, kv, vocab = 4096, 14336, 1024, 128256
    layer = 2 * (h + h) + 2 * (h + kv) + 3 * (h + f)
    edges = 32 * layer + 2 * (vocab + h)
    total = scenario.model.params.total
    assert recipe_bytes(scenario).optimizer == pytest.approx(4 + 4 * edges / total)
    assert recipe_bytes(scenario).optimizer == pytest.approx(4, rel=0.001)


def test_muon_keeps_one_momentum_of_matrices_and_adamw_of_the_rest() -> None:
    scenario = scenario_of("llama-3-8b", optimizer="muon")
    model = scenario.model
    tables, norms = 2 * 128256 * 4096, (2 * 32 + 1) * 4096
    rest = (tables + norms) / model.params.total
    assert recipe_bytes(scenario).optimizer == pytest.approx(4 + 4 * (1 - rest) + 8 * rest)


@pytest.mark.parametrize("name", model_names())
def test_the_matrices_of_a_model_are_what_its_products_read(name: str) -> None:
    """All parameters but vectors (norms, biases): within one percent of every model of the catalog."""
    model = load_model(name)
    found = sum(matrix.count * matrix.rows * matrix.columns for matrix in model_matrices(model))
    vectors = 0.03 if model.hybrid else 0.01  # convolutions and gates of mixers
    assert found == pytest.approx(model.params.with_mtp, rel=vectors)


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_param"),
    [
        ("adamw", 4 + 2 * (4 + 8) + 2),  # gradient read; master and moments read and written; the 16-bit copy written
        ("adamw-bf16-moments", 4 + 2 * (4 + 4) + 2),
        ("adamw-8bit", 4 + 2 * (4 + 2 * (1 + 4 / 2048)) + 2),
        ("sgd", 4 + 2 * (4 + 4) + 2),
        ("lion", 4 + 2 * (4 + 4) + 2),
    ],
)
def test_the_step_moves_what_the_recipe_keeps(optimizer: str, bytes_per_param: float) -> None:
    """``optimizer_traffic_bytes`` of a calibration is AdamW's; others take the share of it that they move."""
    scenario, adamw = (scenario_of("llama-3-8b", optimizer=name) for name in (optimizer, "adamw"))
    own, usual = (broken_down(each, plan_row(256, dp=64)).time["optimizer"][0] for each in (scenario, adamw))
    assert own / usual == pytest.approx(bytes_per_param / 30)


def test_loss_scaling_reads_and_writes_every_gradient_once_more() -> None:
    """Micikevicius 2017 (arXiv 1710.03740), section 3.2: unscale before the step, skip it where anything overflowed."""
    found = [recipe_bytes(scenario_of(precision=name)).traffic_over_adamw for name in ("bf16", "fp16")]
    assert found == pytest.approx([1, (30 + 2 * 4) / 30])


def test_narrow_gradients_are_less_to_read() -> None:
    scenario = scenario_of("llama-3-8b").model_copy(update={"gradient_dtype": "bf16"})
    assert recipe_bytes(scenario).traffic_over_adamw == pytest.approx(28 / 30)


@pytest.mark.parametrize(("rows", "columns"), [(4096, 4096), (4096, 14336), (14336, 4096)])
def test_newton_schulz_takes_its_flops(rows: int, columns: int) -> None:
    """``5 (4 m^2 n + 2 m^3)`` FLOPs at the peak of 16 bits (Jordan 2024, "Runtime analysis": at most 6 n m^2 each)."""
    facts = ideal(Facts.of(scenario_of("llama-3-8b", optimizer="muon")))
    seconds = float(newton_schulz_s(facts, Shape(count=num(1), rows=num(rows), columns=num(columns))))
    m, n = min(rows, columns), max(rows, columns)
    flops = seconds * float(facts.hardware.attention_peak_flops)
    assert flops == pytest.approx(5 * (4 * m**2 * n + 2 * m**3), rel=1e-6)
    assert flops <= 5 * 6 * n * m**2 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("model", "tokens", "published"),
    [("llama-3.1-405b", 16_000_000, 0.005)],  # Jordan 2024: T m / B = 5 x 16384 / 16e6 = 0.5 %
)
def test_muon_costs_a_small_share_of_the_step(model: str, tokens: int, published: float) -> None:
    scenario = scenario_of(model, devices=1, global_batch_size=round(tokens / 8192), optimizer="muon")
    facts = ideal(Facts.of(scenario))
    plain = ideal(Facts.of(scenario_of(model, devices=1, global_batch_size=round(tokens / 8192))))
    row = plan_row(scenario.workload.global_batch_size, zero_stage=0)
    own = broken_down(scenario, row, facts=facts).time["optimizer"][0]
    step = broken_down(scenario, row, facts=plain).step_time_s[0]
    # The bound counts square matrices and 6 N FLOPs a token; wide ones and attention make it less.
    assert 0.4 * published < own / step < published


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_muon_gathers_whole_matrices_where_they_are_sharded(zero_stage: int) -> None:
    """2 bytes of momentum of every matrix over the data-parallel ring, then each rank's own share of the products.

    Moonlight (Liu 2025, arXiv 2502.16982), section 2.3: one gather in bf16 beside what distributed AdamW sends.
    """
    dp = 8
    scenario = scenario_of("llama-3-8b", devices=dp, global_batch_size=64, optimizer="muon")
    facts = Facts.of(scenario)
    elementwise = replace(facts, work=replace(facts.work, newton_schulz=num(0)))
    row = plan_row(64, dp=dp, zero_stage=zero_stage)
    found, plain = (float(broken_down(scenario, row, facts=each).time["optimizer"][0]) for each in (facts, elementwise))
    h, f, kv = 4096, 14336, 1024
    shapes = [(h, h)] * 2 + [(h, kv)] * 2 + [(h, f)] * 3
    products = 32 * sum(
        float(newton_schulz_s(facts, Shape(count=num(1), rows=num(a), columns=num(b)))) for a, b in shapes
    )
    gathered = 2 * 32 * scenario.model.params.dense_layer * (dp - 1) / dp
    rate = float(facts.hardware.tier_bandwidth[0] * facts.cal.scale_up_efficiency)
    expected = products / (dp if zero_stage else 1) + (gathered / rate if zero_stage else 0.0)
    assert found - plain == pytest.approx(expected, rel=0.01)


def test_no_rank_orthogonalises_less_than_one_matrix() -> None:
    scenario = scenario_of("llama-3-8b", devices=1024, global_batch_size=1024, optimizer="muon")
    facts = Facts.of(scenario)
    largest = float(newton_schulz_s(facts, Shape(count=num(1), rows=num(4096), columns=num(14336))))
    found = broken_down(scenario, plan_row(1024, dp=1024), facts=facts).time["optimizer"][0]
    assert found > largest


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-8bit", "adafactor", "muon", "sgd", "lion"])
def test_every_optimizer_is_priced_with_experts_too(optimizer: str) -> None:
    scenario = scenario_of("deepseek-v3", devices=512, optimizer=optimizer)
    found = broken_down(scenario, plan_row(256, tp=2, pp=4, ep=64, dp=64))
    assert np.isfinite(found.step_time_s).all()
    assert sum(part[0] for part in found.time.values()) == pytest.approx(found.step_time_s[0])


def test_precision_says_how_wide_moments_may_be() -> None:
    assert load_precision("bf16-pure").state_element_bytes == 2
    assert load_precision("bf16").state_element_bytes == 4

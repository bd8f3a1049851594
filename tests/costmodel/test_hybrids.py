"""Hybrids are priced as averages: sums over all layers are those of the layers one by one."""

from __future__ import annotations

import pytest

from costmodel.facts import Facts
from costmodel.spec.layers import Hybrid, LinearMixer
from costmodel.spec.model import ModelSpec
from costmodel.terms.activations import ACTIVATIONS
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import CONTEXT_PARALLEL, TENSOR_PARALLEL
from costmodel.terms.expert_parallel import EXPERT_PARALLEL
from costmodel.terms.mlp import DENSE_MLP, EXPERTS
from costmodel.terms.state import PARAMETERS
from costmodel.terms.term import Term
from tests.scenarios import axes_of, plan_row, priced, recalibrated, scenario_of

MIXER = LinearMixer(
    kind="mamba2", num_heads=128, head_dim=64, num_key_heads=8, key_head_dim=128, conv_kernel=4, conv_bias=True
)
PLAIN = ModelSpec(
    name="plain",
    num_layers=8,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    ffn_hidden_size=14336,
    vocab_size=128256,
    tie_word_embeddings=False,
)
AXES = {"tp": 2, "cp": 2, "ep": 1, "etp": 1, "micro_batch_size": 1, "cp_comm_type": 1}


def hybrid(attention: int, mixers: int, mlps: int, **changes: object) -> ModelSpec:
    layers = Hybrid(mixer=MIXER, num_attention_layers=attention, num_mixer_layers=mixers, num_mlp_layers=mlps)
    return PLAIN.model_copy(update={"hybrid": layers, **changes})


def outputs(model: ModelSpec, term: Term) -> dict[str, float]:
    found = term.evaluate(Facts.of(scenario_of(model, seq_len=8192)), axes_of(**AXES))
    return {name: float(values[0]) for name, values in found.items()}


@pytest.mark.parametrize(
    ("term", "output", "parts"),
    [
        (ATTENTION, "attention_linear_s", "mixing"),
        (ATTENTION, "attention_core_s", "mixing"),
        (ATTENTION, "attention_core_backward_s", "mixing"),
        (DENSE_MLP, "dense_mlp_s", "mlp"),
        (DENSE_MLP, "dense_activation_s", "mlp"),
        (TENSOR_PARALLEL, "tp_block_s", "both"),
        (CONTEXT_PARALLEL, "cp_exposed_s", "attention"),
    ],
)
def test_layers_of_one_sub_block_cost_their_share(term: Term, output: str, parts: str) -> None:
    """Of 8 layers 2 have attention, 2 a mixer and 4 an MLP: the sum over 8 averages is that of the sub-blocks."""
    whole = outputs(PLAIN, term)[output]
    nearly_all_mixers = outputs(hybrid(1, 7, 8), term)[output]
    mixer = (8 * nearly_all_mixers - whole) / 7  # of one layer with a mixer and an MLP
    found = 8 * outputs(hybrid(2, 2, 4), term)[output]
    if parts == "mixing":
        assert found == pytest.approx(2 * whole + 2 * mixer)
        assert mixer > 0
    elif parts == "attention":
        assert mixer == pytest.approx(0, abs=1e-12)
        assert found == pytest.approx(2 * whole)
    else:
        assert mixer == pytest.approx(whole)
        assert found == pytest.approx(4 * whole)


def test_a_scan_is_its_states_its_passes_and_its_products() -> None:
    """Of one layer with a mixer, on what the layer with attention leaves."""
    facts = Facts.of(scenario_of(PLAIN, seq_len=8192))
    whole, mixed = (outputs(model, ATTENTION)["attention_core_s"] for model in (PLAIN, hybrid(1, 7, 8)))
    scan = (8 * mixed - whole) / 7
    tokens, inner, state = 8192 / 2, 8192 / 2, 8192 * 128 / 2  # cp 2, tp 2
    widths = (MIXER.projected_width + 2 * MIXER.mixed_width) / 2 + 4 * inner
    moved = tokens * (2 * widths + 4 * 4 * state / 128)
    seconds = moved / float(facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency)
    products = tokens * (4 * state + 128 * inner)
    seconds += products / float(facts.hardware.attention_peak_flops * facts.cal.scan_efficiency)
    assert scan == pytest.approx(seconds * float(facts.cal.compute_multiplier))


def test_a_larger_state_takes_longer() -> None:
    wide = hybrid(1, 7, 8)
    assert wide.hybrid is not None
    mixer = MIXER.model_copy(update={"key_head_dim": 256, "num_key_heads": 4})
    wider = wide.model_copy(update={"hybrid": wide.hybrid.model_copy(update={"mixer": mixer})})
    assert outputs(wider, ATTENTION)["attention_core_s"] > 1.2 * outputs(wide, ATTENTION)["attention_core_s"]


def test_a_mixer_s_work_does_not_grow_with_the_sequence() -> None:
    """Twice the tokens take twice as long; attention's core takes four times as long."""
    long = {}
    for seq_len in (8192, 16384):
        for name, model in (("plain", PLAIN), ("hybrid", hybrid(1, 7, 8))):
            facts = recalibrated(Facts.of(scenario_of(model, seq_len=seq_len)), gemm_launch_s=0.0)
            core = ATTENTION.evaluate(facts, axes_of(**AXES))["attention_core_s"]
            long[name, seq_len] = float(core[0]) * 8
    scan = {size: (long["hybrid", size] - long["plain", size] / 8) / 7 for size in (8192, 16384)}
    assert scan[16384] == pytest.approx(2 * scan[8192], rel=1e-9)
    assert long["plain", 16384] == pytest.approx(4 * long["plain", 8192], rel=0.02)


def test_saved_activations_are_those_of_the_sub_blocks() -> None:
    plain = outputs(PLAIN, ACTIVATIONS)["dense_saved_bytes"]
    mixed = 8 * outputs(hybrid(4, 4, 8), ACTIVATIONS)["dense_saved_bytes"]
    split = 8 * outputs(hybrid(2, 2, 4), ACTIVATIONS)["dense_saved_bytes"]
    assert split == pytest.approx(mixed / 2)  # half as many sub-blocks of each kind
    # A mixer saves its projections and its output, attention Q, K, V and its output; the rest is alike.
    tokens, element = 8192 / 2, 2
    attention = (32 + 2 * 8) * 128 + 32 * 128
    mixer = MIXER.projected_width + MIXER.inner_width
    coefficient = float(Facts.of(scenario_of(PLAIN)).cal.activation_coefficient)
    more = 4 * tokens * element * (mixer - attention) / 2 * coefficient
    assert mixed - 8 * plain == pytest.approx(more)


def test_score_matrices_are_those_of_the_layers_with_attention() -> None:
    """Without a fused core, ``5 a s^2 b`` a layer (Korthikanti 2022, equation 1) in 2 of 8 layers."""

    def saved(model: ModelSpec, *, fused: bool) -> float:
        scenario = scenario_of(model, seq_len=8192).model_copy(update={"fused_attention": fused})
        return float(ACTIVATIONS.evaluate(Facts.of(scenario), axes_of(**AXES))["dense_saved_bytes"][0])

    more = {model: saved(model, fused=False) - saved(model, fused=True) for model in (PLAIN, hybrid(2, 6, 8))}
    plain, mixed = more.values()
    assert plain > 0
    assert mixed == pytest.approx(plain / 4)


@pytest.mark.parametrize("tp", [1, 4])
def test_parameters_of_all_layers_are_the_model_s(tp: int) -> None:
    model = hybrid(2, 2, 4, norms_per_layer=1)
    facts = Facts.of(scenario_of(model))
    found = PARAMETERS.evaluate(facts, axes_of(tp=tp, ep=1, etp=1))["dense_layer_params"]
    params = model.params
    layers = params.total - params.embedding - params.head - params.final_norm
    norms = 8 * params.norms_per_layer
    assert 8 * float(found[0]) == pytest.approx((layers - norms) / tp + norms)


def test_experts_on_a_latent_exchange_and_multiply_as_much_less() -> None:
    """Nemotron 3 Super's experts work on 1024 of 4096 features: dispatch moves a quarter."""
    scenario = scenario_of("nemotron-3-super-120b-a12b-fp8", seq_len=8192)
    moe = scenario.model.moe
    assert moe is not None
    wide = scenario.model.model_copy(update={"moe": moe.model_copy(update={"latent_size": None})})
    axes = AXES | {"ep": 64}
    found = EXPERT_PARALLEL.evaluate(Facts.of(scenario), axes_of(**axes))["ep_exchange_s"]
    whole = EXPERT_PARALLEL.evaluate(Facts.of(scenario_of(wide, seq_len=8192)), axes_of(**axes))["ep_exchange_s"]
    assert 0.25 <= float(found[0] / whole[0]) < 0.3
    work = EXPERTS.evaluate(Facts.of(scenario), axes_of(**axes))["expert_mlp_s"]
    more = EXPERTS.evaluate(Facts.of(scenario_of(wide, seq_len=8192)), axes_of(**axes))["expert_mlp_s"]
    assert work[0] < more[0]


@pytest.mark.parametrize("model", ["nemotron-h-56b", "nemotron-3-nano-30b-a3b", "qwen3-next-80b-a3b"])
def test_a_hybrid_outpaces_attention_at_long_sequences(model: str) -> None:
    """The point of a hybrid: with attention in every layer a long sequence takes longer."""
    scenario = scenario_of(model, devices=64, global_batch_size=64, seq_len=131072)
    row = plan_row(64, dp=64, zero_stage=3)
    plain = scenario.model.model_copy(update={"hybrid": None})
    assert (
        priced(scenario, row).step_time_s[0] < priced(scenario.model_copy(update={"model": plain}), row).step_time_s[0]
    )

"""Files as people have them: multimodal configs, other tools' exports, wrong files, and files with anything garbled."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.catalog.model_files import model_of
from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec

MODELS = files("costmodel.catalog") / "models"
NATIVE = json.loads((Path(__file__).parent / "native_models.json").read_text("utf-8"))["models"]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "vocab_size": 1000,
}
VISION = {"model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 27, "num_attention_heads": 4}
NOT_COSTED = "vision_config: only the text model is planned, the rest isn't costed"


def read(config: dict[str, Any]) -> ModelSpec:
    return model_of(config, "m", "somewhere")


def saved(folder: Path, config: dict[str, Any], name: str = "config.json") -> str:
    (folder / name).write_text(json.dumps(config))
    return str(folder / name)


# The text model of multimodal ones.


def test_a_nested_text_model_takes_its_class_s_defaults_and_says_which() -> None:
    """As Gemma 3 4B is published: heads, their width and the vocabulary are left to Gemma3TextConfig."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    spec = read({"model_type": "gemma3", "text_config": text | {"sliding_window": 1024}, "vision_config": VISION})
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.vocab_size) == (8, 4, 256, 262208)
    assert spec.tie_word_embeddings
    assert spec.num_layers == 34
    vision, filled = spec.notes
    assert vision == NOT_COSTED
    for said in (
        "num_attention_heads 8",
        "num_key_value_heads 4",
        "head_dim 256",
        "vocab_size 262208",
        "embeddings true",
    ):
        assert said in filled


def test_a_text_model_of_defaults_only() -> None:
    """As LLaVA 1.5 is published: Llama 2 7B but for the vocabulary."""
    spec = read({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    reference = load_model("llama-2-7b")
    assert spec.params.total == reference.params.total + 2 * 64 * 4096
    assert spec.num_kv_heads == 32


def test_defaults_that_follow_from_other_keys_still_do() -> None:
    text = {"model_type": "llama", "num_attention_heads": 16, "hidden_size": 512}
    spec = read({"model_type": "llava", "text_config": text})
    assert (spec.num_kv_heads, spec.head_dim) == (16, 32)


@pytest.mark.parametrize(("outer", "inner", "tied"), [(False, None, False), (True, None, True), (False, True, True)])
def test_tied_embeddings_may_be_said_outside(outer: bool, inner: bool | None, tied: bool) -> None:
    text = {key: value for key, value in LLAMA.items() if key != "model_type"} | {"num_key_value_heads": 8}
    text |= {} if inner is None else {"tie_word_embeddings": inner}
    config = {"model_type": "qwen3_vl", "text_config": text, "tie_word_embeddings": outer, "vision_config": VISION}
    assert read(config).tie_word_embeddings is tied


def test_a_text_model_may_lie_two_levels_deep() -> None:
    text = LLAMA | {"num_key_value_heads": 2}
    spec = read({"model_type": "omni", "thinker_config": {"text_config": text, "audio_config": {"d_model": 8}}})
    assert (spec.num_layers, spec.num_kv_heads) == (6, 2)
    assert spec.notes[0].startswith("audio_config: only the text model is planned")


def test_numbers_of_a_vision_tower_are_not_picked() -> None:
    text = {"model_type": "mllama_text_model", "num_hidden_layers": 10, "cross_attention_layers": [3, 8]}
    spec = read({"model_type": "mllama", "text_config": text, "vision_config": VISION | {"attention_heads": 3}})
    assert (spec.num_layers, spec.num_heads) == (10, 32)
    assert any(note.startswith("2 of 10 layers attend to an image") for note in spec.notes)


def test_rope_of_either_generation_is_no_matter() -> None:
    plain = read(LLAMA)
    old = {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 16.0}}
    new = {"rope_parameters": {"rope_type": "yarn", "type": "yarn", "rope_theta": 1e6}}
    assert read(LLAMA | old) == read(LLAMA | new) == plain


# Exports of other tools and quantised checkpoints.


def test_a_tensorrt_llm_checkpoint_is_the_model_it_was_made_of() -> None:
    config = {
        "architecture": "FalconForCausalLM",
        "num_hidden_layers": 80,
        "num_attention_heads": 232,
        "num_key_value_heads": 8,
        "hidden_size": 14848,
        "vocab_size": 65024,
        "max_position_embeddings": 2048,
        "share_embedding_table": False,
        "parallel_attention": True,
        "new_decoder_architecture": True,
        "bias": False,
    }
    assert read(config).params == load_model("falcon-180b").params


@pytest.mark.parametrize(
    ("changes", "beside", "how"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, False, " (fp8)"),
        ({"quantization": {"quant_algo": "FP8"}}, False, " (fp8)"),
        ({"quantization_config": "broken"}, False, ""),
        ({}, True, ""),
        ({}, False, None),
    ],
)
def test_a_quantised_checkpoint_says_so(tmp_path: Path, changes: dict[str, Any], beside: bool, how: str | None) -> None:
    if beside:
        saved(tmp_path, {"quantization": {"quant_algo": "FP8"}}, "hf_quant_config.json")
    notes = load_model(saved(tmp_path, LLAMA | changes)).notes
    if how is None:
        assert notes == ()
    else:
        assert len(notes) == 1
        assert notes[0].startswith(f"the checkpoint is quantised{how}: training is planned from unquantised weights")


def test_catalog_models_are_models_not_checkpoints() -> None:
    assert not any("quantised" in note for name in model_names() for note in load_model(name).notes)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "a description of a quantization"),
        ({"metadata": {}, "weight_map": {}}, "an index of weights"),
        ({"peft_type": "LORA", "r": 8}, "an adapter's config"),
        ({"do_sample": True, "top_p": 0.9}, "a generation config"),
        ({"tokenizer_class": "LlamaTokenizer"}, "a tokenizer's config"),
    ],
)
def test_a_file_given_by_mistake_is_called_by_its_name(tmp_path: Path, config: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidInput, match=f"; this is {what}.*, not of a model; a Hugging Face config"):
        load_model(saved(tmp_path, config, "file.json"))


def test_another_tool_s_schema_is_refused_with_its_keys() -> None:
    """llm-analysis describes Llama 2 7B with an MLP that is not its own; nothing of it is guessed."""
    config = {"name": "x", "model_type": "llama", "num_layers": 32, "n_head": 32, "hidden_dim": 4096}
    config |= {"vocab_size": 32000, "max_seq_len": 4096, "num_key_value_heads": 32, "ffn_embed_dim": 16384}
    with pytest.raises(
        InvalidInput,
        match=r"^hidden_size: None .* also intermediate_size: .*; keys unknown there: ffn_embed_dim, hidden_dim$",
    ):
        read(config)


def test_a_trimmed_file_says_what_it_may_have_lost() -> None:
    (note,) = load_model("glm-4.7-fp8").notes
    assert note.startswith("num_nextn_predict_layers is absent: no multi-token prediction is planned")
    assert load_model("glm-4.5-355b-a32b").notes == ()


# Anything garbled: a model or one line, never anything else.

GARBAGE = [
    *(None, -1, 0, 1, 3, 0.5, 64.0, 1e30, 10**14, 10**30, float("nan"), float("inf"), True, False),
    *("", "x", "64", "${X}", "<n>", "M-*E", "([0]*3+[1]*58)", "[1]*999999999", "full_attention"),
    *([], [1], [0, 1], [None], {}, {"a": 1}, [["a"]], [{}]),
]


def garbled(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """A copy with one to four keys dropped, renamed, or given another value."""
    found = copy.deepcopy(config)
    for _ in range(rng.randint(1, 4)):
        block = found
        nested = [value for value in block.values() if isinstance(value, dict) and value]
        if nested and rng.random() < 0.6:
            block = rng.choice(nested)
        if not block:
            continue
        key = rng.choice(list(block))
        match rng.randrange(4):
            case 0:
                del block[key]
            case 1:
                block[key + rng.choice([" ", "s"])] = block.pop(key)
            case 2:
                block[key] = copy.deepcopy(rng.choice(GARBAGE))
            case _:
                block[key] = copy.deepcopy(rng.choice(list(block.values())))
    return found


def every_source() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in model_names():
        yield name, json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    for row in NATIVE[::6]:
        yield f"{row['dialect']}-{row['model']}", row["data"]


@pytest.mark.parametrize(("name", "config"), [pytest.param(*source, id=source[0]) for source in every_source()])
def test_a_garbled_file_is_a_model_or_one_line(name: str, config: dict[str, Any]) -> None:
    rng = random.Random(name)
    refusals = []
    for _ in range(25):
        try:
            spec = read(garbled(rng, config))
        except InvalidInput as error:
            refusals.append(str(error))
        else:
            assert spec.params.total >= spec.params.active > 0
            hash(spec)
    assert refusals
    assert not any("\n" in refusal for refusal in refusals)

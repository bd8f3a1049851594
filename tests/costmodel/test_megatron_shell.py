"""Megatron arguments out of launch scripts: nothing is run, plain variables are put in, the rest is left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput
from costmodel.spec.native import arguments_of

SCRIPT = """
#!/bin/bash
# a model of 12 layers --num-layers 99
NLAYERS=12
EXPERT_FFN=${EXPERT_FFN:-384}
FIRST_K_DENSE_REPLACE=2
export SHARED=2

arr=()
for ((i=0; i<NLAYERS; i++)); do
  if (( i < FIRST_K_DENSE_REPLACE )); then arr+=(0); else arr+=(1); fi
done
printf -v MOE_LAYER_FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"

MODEL_ARGS=(
    --swiglu
    --num-layers $NLAYERS          # as above
    --hidden-size 256 --num-attention-heads 8
    --ffn-hidden-size=1024 \\
    --normalization "RMSNorm"
    --position-embedding-type rope
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --vocab-size 1000
    --num-experts 16
    --moe-router-topk 4
    --moe-ffn-hidden-size ${EXPERT_FFN}
    --moe-shared-expert-intermediate-size $(($EXPERT_FFN * $SHARED))
    --moe-layer-freq $MOE_LAYER_FREQ
    --seq-length $SEQ_LENGTH)
torchrun pretrain_gpt.py ${MODEL_ARGS[@]} --micro-batch-size 1
"""


def test_a_script_is_read_without_running_it() -> None:
    found = arguments_of(SCRIPT, "s.sh")
    assert found["--num-layers"] == "12"
    assert found["--swiglu"] is True
    assert found["--ffn-hidden-size"] == "1024"
    assert found["--moe-ffn-hidden-size"] == "384"
    assert found["--moe-shared-expert-intermediate-size"] == "768"
    assert found["--moe-layer-freq"] == "[0]*2+[1]*10"
    assert found["--seq-length"] == "$SEQ_LENGTH"
    assert found["--micro-batch-size"] == "1"


@pytest.mark.parametrize("name", ["model.sh", "arguments.txt"])
def test_a_file_of_arguments_is_a_model(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SCRIPT)
    spec = load_model(str(tmp_path / name))
    assert (spec.name, spec.num_layers, spec.hidden_size, spec.vocab_size) == (Path(name).stem, 12, 256, 1000)
    assert spec.moe is not None
    assert (spec.moe.num_dense_layers, spec.moe.shared_expert_ffn_hidden_size) == (2, 768)
    assert not spec.tie_word_embeddings


def test_one_line_of_arguments_is_enough(tmp_path: Path) -> None:
    text = (
        "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --vocab-size 32000 --max-position-embeddings 4096"
    )
    (tmp_path / "a.txt").write_text(text)
    assert load_model(str(tmp_path / "a.txt")).num_layers == 80


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo nothing", "no --arguments are in it"),
        ("", "no --arguments are in it"),
        ("--num-layers 'two", "its arguments can't be read: No closing quotation"),
        ("--num-layers $LAYERS --hidden-size 64", "num_layers: '$LAYERS' is not usable; a whole number of at least 1"),
        ("--swiglu", "hidden_size: None is not usable; a whole number of at least 1 is required; also num_attention"),
    ],
)
def test_what_is_no_file_of_arguments_says_so(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.sh"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load_model(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lists_in_quotes_and_the_first_flag_of_an_array_are_read() -> None:
    script = "ARGS=(--num-layers 4 --moe-layer-freq '([0]*1+[1]*3)')\ntorchrun x.py ${ARGS[@]} --hidden-size 8"
    expected = {"--num-layers": "4", "--moe-layer-freq": "([0]*1+[1]*3)", "--hidden-size": "8"}
    assert arguments_of(script, "x") == expected

"""NeMo 1.x's YAML under the targets that people give it to."""

from __future__ import annotations

import pytest

from planner.export.targets import load_target

_FILE = """
trainer: {num_nodes: 4, devices: 8, precision: bf16-mixed}
model:
  tensor_model_parallel_size: 4
  micro_batch_size: 1
  global_batch_size: 128
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  vocab_size: 32000
  activation: fast-swiglu
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  optim: {name: distributed_fused_adam, lr: 1e-4}
"""


@pytest.mark.parametrize("target", ["megatron-bridge", "nemo"])
def test_reads_what_nemo_1_wrote(target: str) -> None:
    read = load_target(target).read
    assert read is not None
    found = read(_FILE)
    said = {
        "tp": 4, "seq_len": 4096, "recompute": "full", "precision": "bf16", "optimizer": "adamw", "zero_stage": 1,
        "devices_used": 32,
    }  # fmt: skip
    assert {name: found.plan.get(name) for name in said} == said
    assert found.model is not None
    assert found.model.gated_mlp
    odd = read(_FILE.replace("distributed_fused_adam", "novograd").replace("bf16-mixed", "64"))
    assert any("novograd" in name for name in odd.unread)
    assert any("64" in name for name in odd.unread)


def test_reads_the_nodes_of_a_recipe() -> None:
    read = load_target("nemo").read
    assert read is not None
    recipe = "recipe = llm.llama3_70b.pretrain_recipe(name='x', num_nodes=4, num_gpus_per_node=8)\n"
    found = read(recipe + "recipe.trainer.strategy.tensor_model_parallel_size = 8\n")
    assert found.plan["devices_used"] == 32

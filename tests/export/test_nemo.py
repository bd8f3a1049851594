"""Plans as overrides of NeMo's recipes, and back.

NeMo is too heavy for CI, so nothing here runs it: keys were looked up in its wheel (words.yaml), and what its
documentation shows is read.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan
from planner.export.job import Job
from planner.export.nemo import TARGET
from planner.export.nemo.keys import override
from planner.export.reading import Read
from tests.differential import plans as small
from tests.export import samples
from tests.export.samples import asked, best, changed, told, with_model
from tests.export.test_megatron_lm import varied

MODELS: tuple[str | ModelSpec, ...] = ("llama-3.1-405b", "deepseek-v3", "qwen3-235b-a22b", small.WITH_MTP, small.MOE)
SEARCHED = ("mixtral-8x22b", "llama-3.1-8b")
CALLBACK = "nemo.lightning.pytorch.callbacks.megatron_comm_overlap.MegatronCommOverlapCallback"


@pytest.fixture(scope="module")
def exported() -> list[Job]:
    """The best plans of real searches, and legal ones of all kinds, as far as they can be said."""
    found = [
        job for name in SEARCHED for job in best(asked(name, "nemo", *samples.MODELS[name]), "zero_stage=1", top=2)
    ]
    for seed, model in enumerate(MODELS):
        size = (256, 512, 4096) if isinstance(model, str) else (32, 96, 480)
        found += samples.drawn(asked(model, "nemo", *size), 24, seed, varied(seed))
    jobs = [job for job in found if told(TARGET, job).launch is not None]
    assert len(jobs) > len(found) / 4
    return jobs


def read_text(text: str) -> Read:
    assert TARGET.read is not None
    return TARGET.read(text)


def overrides(job: Job) -> list[str]:
    assert TARGET.program is not None
    return list(TARGET.program(job, None).arguments)


def base_job(*pins: str) -> Job:
    return best(asked("llama-3.1-8b", "nemo", 64, 256, 8192), "zero_stage=1", *pins, top=1)[0]


def test_best_plans_are_said() -> None:
    for name in SEARCHED:
        for job in best(asked(name, "nemo", *samples.MODELS[name]), "zero_stage=1", "ep_overlap=false", top=2):
            assert told(TARGET, job).refused == ()


def test_round_trip(exported: list[Job]) -> None:
    told_apart = {"name", "source", "notes", "max_position_embeddings"}
    for job in exported:
        for file in TARGET.write(job, None).files[:2]:
            found = read_text(file.text)
            assert not found.unread
            assert found.ignored == ()
            assert samples.read_back(job, found) == job.plan, file.text
            assert found.model is not None
            assert found.model.model_dump(exclude=told_apart) == job.model.model_dump(exclude=told_apart)


def means_nothing(plan: Plan, field: str) -> bool:
    adam = field == "optimizer" and plan.optimizer in ("adam", "adamw")
    return adam or samples.means_nothing(plan, field)


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    for job in samples.one_of_each_kind(exported):
        assert samples.silent(TARGET, job, means_nothing) == []


def test_every_feature_of_a_model_shows(exported: list[Job]) -> None:
    for job in {job.model.name: job for job in exported}.values():
        # Rotated positions have no table, latents no heads of keys, and layers that a model lacks no biases.
        nothing = {"max_position_embeddings"} | ({"num_kv_heads"} if job.model.mla else set())
        nothing |= {"expert_bias"} if job.model.moe is None else set()
        nothing |= set() if job.model.num_dense_layers else {"mlp_bias"}
        assert set(samples.silent_about_model(TARGET, job)) <= nothing, job.model.name


def test_what_a_recipe_has_is_taken_back() -> None:
    """A recipe's own layout, recompute or overlap must not stay beside the plan's."""
    job = base_job("pp=1", "tp=1", "recompute=none")
    said = set(overrides(job))
    assert {"trainer.strategy.pipeline_model_parallel_layout=null", "model.config.recompute_granularity=null"} <= said
    assert {"trainer.callbacks=null", "model.config.mtp_num_layers=null", "trainer.strategy.fsdp=null"} <= said
    assert "model.config.num_query_groups=32" in overrides(with_model(job, num_kv_heads=32))


def test_tensor_parallel_overlap_is_its_callback() -> None:
    job = base_job("tp=2", "pp=1", "tp_overlap=true")
    flags = "tp_comm_overlap=true,overlap_grad_reduce=true,overlap_param_gather=true"
    said = overrides(job)
    assert f"trainer.callbacks=[{CALLBACK}({flags})]" in said
    assert read_text(TARGET.write(job, None).files[0].text).plan["tp_overlap"] is True
    assert read_text("trainer.callbacks=[x(tp_comm_overlap=false)]").plan == {}


def test_precisions() -> None:
    job = base_job("recompute=none")
    recipes = "trainer.plugins=nemo.collections.llm.recipes.precision.mixed_precision"
    said = overrides(changed(job, precision="fp8-current"))
    assert f"{recipes}.bf16_with_fp8_current_scaling_mixed" in said
    # What the plugin's recipe sets has to come before what is told apart of it.
    assert said.index(f"{recipes}.bf16_with_fp8_current_scaling_mixed") < said.index(
        "trainer.plugins.first_last_layers_bf16=false"
    )
    assert "trainer.plugins.grad_reduce_in_fp32=false" in overrides(changed(job, gradient_dtype="bf16"))
    assert "trainer.strategy.pipeline_dtype=torch.float16" in overrides(
        changed(job, precision="fp16", gradient_dtype="fp16")
    )
    assert "optim.config.exp_avg_dtype=torch.bfloat16" in overrides(changed(job, optimizer="adamw-bf16-moments"))


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"precision": "nvfp4"}, "precision"),
        ({"precision": "fp32"}, "precision"),
        ({"gradient_dtype": "fp16"}, "gradient_dtype"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"zero_stage": 3, "gradient_sync": "microbatch"}, "zero_stage"),
        ({"offload": "parameters"}, "offload"),
        ({"schedule": "zb_h1"}, "schedule"),
    ],
)
def test_what_has_no_certain_spelling_is_refused(fields: dict[str, str], refused: str) -> None:
    assert told(TARGET, changed(base_job("recompute=none"), **fields)).refused == (refused,)


def test_values_as_nemo_run_reads_them() -> None:
    """Lists are Python's literals there, ``null`` is None, and words stand bare (nemo_run 0.11.1 cli_parser.py)."""
    assert override("a", ["layernorm", "moe_act"]) == 'a=["layernorm", "moe_act"]'
    assert override("a", [0, 1]) == "a=[0, 1]"
    assert override("a", None) == "a=null"
    assert override("a", False) == "a=false"
    assert override("a", "Et*7|(t|)*2L") == "a=Et*7|(t|)*2L"


def test_the_script_passes_what_the_program_has(tmp_path: Path) -> None:
    job = base_job("pp=4")
    job = Job(scenario=job.scenario, plan=job.plan, name="a 'b'\n$(touch owned)")
    script, _, trained = TARGET.write(job, None).files
    ast.parse(trained.text)
    (tmp_path / script.name).write_text(script.text, encoding="utf-8")
    fake = tmp_path / "torchrun"
    fake.write_text(f"#!{sys.executable}\nimport json, sys; print(json.dumps(sys.argv[1:]))", encoding="utf-8")
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", script.name, "--factory", "llama3_8b"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = json.loads(done.stdout)
    assert words[-2:] == ["--factory", "llama3_8b"]
    assert words[words.index(trained.name) + 1 : -2] == overrides(job)
    assert not (tmp_path / "owned").exists()


# Of NVIDIA/NeMo, docs/source/features/parallelisms.rst and batching.rst, and nemo/collections/diffusion/readme.rst.
DOCUMENTED = {
    "nemo llm pretrain --factory llama3_8b trainer.strategy.tensor_model_parallel_size=2": {"tp": 2},
    "nemo llm pretrain --factory llama3_8b trainer.strategy.pipeline_model_parallel_size=2 "
    "trainer.strategy.virtual_pipeline_model_parallel_size=2": {"pp": 2, "vpp": 2},
    "nemo llm pretrain --factory mixtral_8x7b trainer.strategy.expert_model_parallel_size=4": {"ep": 4},
    "nemo llm pretrain --factory llama3_8b data.micro_batch_size=4 data.global_batch_size=16 "
    "trainer.accumulate_grad_batches=1": {"micro_batch_size": 4, "global_batch_size": 16},
    "PYTHONPATH=.:$PYTHONPATH torchrun --nproc-per-node=2 nemo/collections/diffusion/train.py --yes "
    "--factory train_mock trainer.strategy.tensor_model_parallel_size=1 trainer.strategy.context_parallel_size=1 "
    "trainer.strategy.sequence_parallel=False model.config.num_layers=1 data.global_batch_size=8 "
    "model.config.hidden_size=1024 data.seq_length=1024 data.task_encoder.seq_length=1024 model.config.num_layers=1": {
        "tp": 1, "cp": 1, "sequence_parallel": False, "global_batch_size": 8, "seq_len": 1024,
    },
}  # fmt: skip


@pytest.mark.parametrize("command", DOCUMENTED)
def test_reads_what_is_documented(command: str) -> None:
    found = read_text(command)
    assert found.plan == DOCUMENTED[command]
    assert not found.unread


def test_reads_what_people_have() -> None:
    found = read_text(
        "nemo llm pretrain --factory llama3_70b -y trainer.num_nodes=4 trainer.devices=8 \\\n"
        "  trainer.strategy.ddp.grad_reduce_in_fp32=False model.config.cuda_graph_impl=local \\\n"
        "  model.config.recompute_granularity=full model.config.recompute_method=uniform \\\n"
        "  model.config.recompute_num_layers=1 optim.config.lr=3e-4 optim.config.use_distributed_optimizer=True \\\n"
        "  trainer.strategy.context_parallel_size=$CP trainer.plugins.grad_reduce_in_fp32=False"
    )
    assert found.plan == {
        "devices_used": 32, "recompute": "full", "recompute_interval": 1, "zero_stage": 1, "gradient_dtype": "bf16",
    }  # fmt: skip
    assert found.ignored == ("optim.config.lr",)
    assert set(found.unread) == {
        "trainer.strategy.ddp.grad_reduce_in_fp32=False",
        "model.config.cuda_graph_impl=local",
        "trainer.strategy.context_parallel_size=$CP",
    }
    assert found.model is None


def test_reads_python() -> None:
    found = read_text(
        "recipe = llm.llama3_70b.pretrain_recipe(name='it\\'s', num_nodes=1)\n"
        "recipe.trainer.strategy.tensor_model_parallel_size=4\n"
        "recipe.trainer.strategy.virtual_pipeline_model_parallel_size = None  # of the recipe\n"
        "if recipe.trainer.strategy.tensor_model_parallel_size == 1:\n"
        "    recipe.data.micro_batch_size = 1\n"
        'recipe.model.config.recompute_granularity = "selective"\n'
        'recipe.model.config.recompute_modules = ["mla_up_proj", "layernorm"]\n'
        "recipe.trainer.plugins = bf16_with_fp8_mixed()\n"
    )
    assert found.plan == {
        "tp": 4, "vpp": 1, "micro_batch_size": 1, "recompute": "selective",
        "recompute_modules": ["mla_up_proj", "layernorm"], "precision": "fp8", "gradient_dtype": "fp32",
    }  # fmt: skip
    assert not found.unread


def test_reads_a_yaml() -> None:
    text = """
trainer: {num_nodes: 2, devices: 8, strategy: {tensor_model_parallel_size: 8, sequence_parallel: true}}
data: {micro_batch_size: 2}
"""
    assert read_text(text).plan == {"tp": 8, "sequence_parallel": True, "micro_batch_size": 2, "devices_used": 16}


@pytest.mark.parametrize("text", ["", "hello world", "--lr 3", "model.config.x='"])
def test_unusable_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="from"):
        read_text(text)

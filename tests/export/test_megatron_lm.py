"""Plans as Megatron-LM's arguments, and back."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput, UnknownName
from costmodel.plan_rows import chunks_of_plan
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import arguments_of
from costmodel.spec.plan import Plan
from planner.export.job import Job
from planner.export.megatron.layout import layout_counts, layout_text
from planner.export.megatron_lm import TARGET
from planner.export.megatron_lm.read import settings_of
from planner.export.sheet import Sheet
from tests.differential import plans as small
from tests.export import releases, samples
from tests.export.samples import asked, best, changed, told, with_model

MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts")
MODELS: tuple[str | ModelSpec, ...] = (
    "llama-3.1-405b",
    small.MOE_WITH_DENSE,
    small.FEW_KV_HEADS,
    "qwen3-235b-a22b",
    small.LATENT,
    small.WITH_MTP,
    small.DENSE,
    small.MOE,
    "deepseek-v3",
)
SEARCHED = ("llama-3.1-405b", "mixtral-8x22b", "llama-3.1-8b")


def varied(seed: int, modules: tuple[str, ...] = MODULES) -> samples.Change:
    """Some of the choices that plans have beside their degrees; those that make a plan illegal are left out later."""
    draw = random.Random(seed)

    def change(plan: Plan) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if plan.recompute == "selective":
            found["recompute_modules"] = tuple(draw.sample(modules, draw.randint(1, min(2, len(modules)))))
        elif plan.recompute == "full" and draw.random() < 0.5:
            found["recomputed_layers_per_stage"] = tuple(
                sum(min(count, layers) for layers in device)
                for device in chunks_of_plan(plan)
                for count in [draw.randint(0, 2)]
            )
        elif plan.recompute == "full":
            found["recompute_interval"] = 2
        if draw.random() < 0.2:
            found["offload"] = draw.choice(["optimizer", "activations"])
        if plan.tp > 1 and draw.random() < 0.2:
            found["tp_overlap"] = False
        if plan.ep > 1:
            found["moe_dispatcher"] = draw.choice(["deduplicated", "all_to_all", "all_gather"])
            found["ep_overlap"] = draw.random() < 0.3
            found["moe_capacity_factor"] = draw.choice([None, None, 1.25])
        return found

    return change


@pytest.fixture(scope="module")
def searched() -> list[Job]:
    """The best plans of real searches."""
    return [job for name in SEARCHED for job in best(asked(name, "megatron-core", *samples.MODELS[name]), top=3)]


@pytest.fixture(scope="module")
def drawn() -> list[Job]:
    """Legal plans of all versions and of models with every part that Megatron has words for."""
    found: list[Job] = []
    for seed, version in enumerate(TARGET.versions):
        modules = MODULES[:1] if version in ("0.9", "0.10", "0.11") else MODULES
        # Not all of them for each version: every model has three, and every version three models.
        for model in MODELS[seed % 3 :: 3]:
            size = (256, 512, 4096) if isinstance(model, str) else (32, 96, 480)
            found += samples.drawn(
                asked(model, "megatron-core", *size, version=version), 7, seed, varied(seed, modules)
            )
    return found


@pytest.fixture(scope="module")
def exported(searched: list[Job], drawn: list[Job]) -> list[Job]:
    """Those that their version can say."""
    return [job for job in searched + drawn if told(TARGET, job).launch is not None]


def arguments(job: Job, version: str | None = None) -> list[str]:
    assert TARGET.program is not None
    return list(TARGET.program(job, version).arguments)


def one_line(job: Job, version: str | None = None) -> str:
    return shlex.join(arguments(job, version))


def read_text(text: str) -> Any:
    assert TARGET.read is not None
    return TARGET.read(text)


@cache
def base_job(**pins: str) -> Job:
    scenario = asked("llama-3.1-8b", "megatron-core", 64, 256, 8192)
    return best(scenario, *(f"{axis}={value}" for axis, value in pins.items()), top=1)[0]


def test_best_plans_are_said(searched: list[Job]) -> None:
    assert [told(TARGET, job).refused for job in searched if told(TARGET, job).refused] == []


def test_samples_are_of_all_kinds(exported: list[Job], drawn: list[Job]) -> None:
    kinds = Counter[str]()
    for job in exported:
        plan = job.plan
        kinds.update(f"{axis}>1" for axis in ("tp", "cp", "pp", "vpp", "ep", "dp_replicate") if getattr(plan, axis) > 1)
        kinds.update([f"zero {plan.zero_stage}", plan.recompute, plan.framework_version, plan.cp_comm_type])
        kinds.update([plan.offload, plan.moe_dispatcher, f"interval {plan.recompute_interval}"])
        kinds.update(["some layers again"] if "--recompute-num-layers-of-stages" in arguments(job) else [])
    wanted = {"tp>1", "cp>1", "pp>1", "vpp>1", "ep>1", "dp_replicate>1", "zero 0", "zero 1", "zero 2", "zero 3", "full"}
    wanted |= {"selective", "none", "all_gather", "a2a", "p2p", "optimizer", "all_to_all"}
    wanted |= {*TARGET.versions, "interval 2", "some layers again"}
    assert wanted <= set(kinds), wanted - set(kinds)
    assert len(exported) > len(drawn) / 2


def test_round_trip(exported: list[Job]) -> None:
    for job in exported:
        launch = TARGET.write(job, None)
        for file in launch.files[:2]:
            found = read_text(file.text)
            assert not found.unread
            assert samples.read_back(job, found) == job.plan, file.text


def test_round_trip_of_the_model(exported: list[Job]) -> None:
    told_apart = {"name", "source", "notes", "max_position_embeddings"}
    for job in samples.one_of_each_kind(exported):
        if job.plan.framework_version == "0.9" and job.model.moe is not None:
            continue  # one width, of experts and of layers that the model has none of
        found = read_text(one_line(job)).model
        assert found is not None
        fields = found.model_dump(exclude=told_apart)
        assert fields == job.model.model_dump(exclude=told_apart)


def means_nothing(plan: Plan, field: str) -> bool:
    """Adam is AdamW here, and latent attention and dense models have nothing more to say."""
    adam = field == "optimizer" and plan.optimizer in ("adam", "adamw")
    return adam or samples.means_nothing(plan, field)


def test_every_field_of_a_plan_shows(exported: list[Job]) -> None:
    # Half of them have all kinds still.
    for job in samples.one_of_each_kind(exported)[::2]:
        assert samples.silent(TARGET, job, means_nothing) == []


def test_every_feature_of_a_model_shows(exported: list[Job]) -> None:
    names = {"llama-3.1-405b", "qwen3-235b-a22b", "mixtral-8x22b", "small-moe-dense", "small-mtp"}
    for job in {job.model.name: job for job in exported if job.model.name in names}.values():
        shown = set(samples.silent_about_model(TARGET, job))
        # Biases of layers that the model has none of, a width that no layer has.
        nothing = {"mlp_bias", "ffn_hidden_size"} if job.model.moe and not job.model.num_dense_layers else set()
        nothing |= set() if job.model.moe else {"expert_bias"}
        # Queries and keys that are normalised head by head already.
        nothing |= {"qk_norm"} if job.model.qk_norm == "head" else set()
        assert shown <= nothing, job.model.name


def test_the_parts_of_a_model() -> None:
    job = base_job()
    assert told(TARGET, with_model(job, qkv_bias=True, attention_out_bias=True, mlp_bias=True)).launch is not None
    assert "--disable-bias-linear" not in arguments(
        with_model(job, qkv_bias=True, attention_out_bias=True, mlp_bias=True)
    )
    qwen = arguments(with_model(job, qkv_bias=True))
    assert {"--add-qkv-bias", "--disable-bias-linear"} <= set(qwen)
    assert told(TARGET, with_model(job, mlp_bias=True)).refused == ("model.mlp_bias",)
    assert told(TARGET, with_model(job, attention_sinks=True), "0.14").refused == ("model.attention_sinks",)
    assert "--softmax-type learnable" in one_line(with_model(job, attention_sinks=True), "0.15")
    windows = with_model(job, sliding_window=1024, num_sliding_layers=16)
    assert told(TARGET, windows).refused == ("model.sliding_window",)
    learned = with_model(job, learned_position_embeddings=True, max_position_embeddings=2048)
    assert told(TARGET, learned).refused == ("model.max_position_embeddings",)


def test_layouts() -> None:
    for counts, mtp, text in (
        ([7, *[8] * 14, 7], 0, "Et*7|(t*8|)*14t*7L"),
        ([0, 1, 1, 0], 1, "E|(t|)*2mL"),
        ([2, 2], 2, "Ett|ttmmL"),
        ([5, 0, 0, 1], 3, "Et*5|(|)*2tm*3L"),
    ):
        assert layout_text(counts, mtp) == text
        assert layout_counts(text) == (counts, mtp)
    assert layout_counts("Ettt|(tt|)*29,m|L") == ([3, *[2] * 29, 0, 0], 1)
    for text in ("tttL", "Et|x|L", "Et*99999|L", "(((", "E(t|)*99999L", "EEtL", ""):
        assert layout_counts(text) is None


def test_layers_by_version() -> None:
    """The same split in the words that each version has for it."""
    job = best(asked("llama-3.1-405b", "megatron-core", *samples.MODELS["llama-3.1-405b"]), "pp=16", "vpp=1", top=1)[0]
    ends = changed(job, layers_per_stage=(7, *[8] * 14, 7), recompute="none", recompute_modules=(), zero_stage=1)
    ends = changed(ends, gradient_sync="step", cp_comm_type="p2p", cp_a2a_degree=1)
    assert "--pipeline-model-parallel-layout 'Et*7|(t*8|)*14t*7L'" in one_line(ends, "0.13")
    both = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    assert both in one_line(ends, "0.12")
    assert "--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 7" in one_line(ends, "0.10")
    assert told(TARGET, ends, "0.9").refused == ("layers_per_stage",)
    uneven = changed(ends, layers_per_stage=(6, 8, *[8] * 13, 8))
    assert told(TARGET, uneven, "0.12").refused == ()
    assert told(TARGET, changed(ends, layers_per_stage=(6, 9, *[8] * 12, 8, 7)), "0.12").refused == (
        "layers_per_stage",
    )


def test_multi_token_prediction_is_in_the_layout() -> None:
    scenario = asked("deepseek-v3", "megatron-core", 256, 512, 4096)
    jobs = samples.drawn(scenario, 20, 1)
    job = next(job for job in jobs if len(set(job.plan.layers_per_stage)) > 1 and job.plan.vpp > 1)
    layout = arguments(job, "0.14")[arguments(job, "0.14").index("--pipeline-model-parallel-layout") + 1]
    assert layout.endswith("mL")
    refused = told(TARGET, job, "0.13").refused
    assert {"layers_per_chunk", "layers_per_stage"} & set(refused)


def test_expert_tensor_parallelism_is_always_said() -> None:
    scenario = asked("mixtral-8x22b", "megatron-core", *samples.MODELS["mixtral-8x22b"])
    job = best(scenario, "tp=4", "etp=1", top=1)[0]
    assert "--expert-tensor-parallel-size 1" in one_line(job)
    found = read_text(one_line(job).replace("--expert-tensor-parallel-size 1", ""))
    assert found.plan["etp"] == 4
    assert any("expert_tensor_parallel_size is not set" in note for note in found.notes)
    assert "etp" in told(TARGET, job, "0.9").refused


def test_dispatchers_by_version() -> None:
    scenario = asked("mixtral-8x22b", "megatron-core", *samples.MODELS["mixtral-8x22b"])
    job = changed(best(scenario, "ep=8", "zero_stage=1", top=1)[0], moe_dispatcher="deduplicated", ep_overlap=False)
    assert "flex --moe-flex-dispatcher-backend deepep" in one_line(job, "0.16")
    assert "flex --moe-enable-deepep" in one_line(job, "0.15")
    dropping = changed(job, moe_capacity_factor=1.25)
    assert "--moe-flex-dispatcher-backend hybridep --moe-expert-capacity-factor 1.25" in one_line(dropping, "0.16")
    assert told(TARGET, dropping, "0.15").refused == ("moe_dispatcher",)


def test_sharding_by_version() -> None:
    job = base_job(zero_stage="3", tp="2")
    now = one_line(job, "0.17")
    assert "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params" in now
    assert "--ckpt-format fsdp_dtensor" in now
    assert "--use-custom-fsdp" in one_line(changed(job, recompute="none", recompute_modules=()), "0.12")
    assert set(told(TARGET, job, "0.11").refused) >= {"zero_stage"}
    halves = {"dp_replicate": 2, "dp_shard": job.plan.dp // 2}
    assert "--num-distributed-optimizer-instances 2" in one_line(changed(job, **halves))
    for field, value in (("reshard_after", "step"), ("fsdp_prefetch", 2), ("gradient_sync", "step")):
        assert told(TARGET, changed(job, **{field: value})).refused == (field,)


def test_precisions_and_optimizers() -> None:
    job = base_job(zero_stage="1", recompute="none")
    said = {
        "fp8": "--fp8-format hybrid --fp8-recipe delayed",
        "fp8-current": "--fp8-format hybrid --fp8-recipe tensorwise",
        "fp8-blockwise": "--fp8-format hybrid --fp8-recipe blockwise",
        "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
        "nvfp4": "--fp4-format e2m1 --fp4-recipe nvfp4",
    }
    for precision, words in said.items():
        assert f"--bf16 {words}" in one_line(changed(job, precision=precision))
    assert "--fp8-recipe" not in one_line(changed(job, precision="fp8"), "0.11")
    assert told(TARGET, changed(job, precision="mxfp8"), "0.11").refused == ("precision",)
    assert "--grad-reduce-in-bf16" in arguments(changed(job, gradient_dtype="bf16"))
    assert told(TARGET, changed(job, gradient_dtype="fp16")).refused == ("gradient_dtype",)
    half = arguments(changed(job, precision="fp16", gradient_dtype="fp16"))
    assert not {"--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"} & set(half)
    moments = one_line(changed(job, optimizer="adamw-bf16-moments"))
    assert "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16" in moments
    assert "--optimizer-cpu-offload --optimizer-offload-fraction 1" in one_line(changed(job, offload="optimizer"))
    alone = changed(base_job(pp="1", recompute="none"), offload="activations")
    assert "--cpu-offloading-num-layers 31" in one_line(alone, "0.17")
    assert told(TARGET, alone, "0.16").refused == ("offload",)
    assert told(TARGET, changed(job, optimizer="adafactor")).refused == ("optimizer",)
    assert told(TARGET, changed(job, optimizer="muon"), "0.17").refused == ("zero_stage",)


def test_recompute_in_8_bits() -> None:
    """megatron-core 0.14.0 transformer_config.py:914: delayed scaling can't run a norm twice."""
    job = changed(base_job(zero_stage="1"), recompute="selective", recompute_modules=("layernorm",))
    assert told(TARGET, changed(job, precision="fp8")).refused == ("recompute_modules",)
    assert told(TARGET, changed(job, precision="fp8-current")).refused == ()
    assert told(TARGET, changed(job, precision="fp8-current"), "0.13").refused == ("recompute_modules",)


def test_the_number_of_layers_that_run_again() -> None:
    job = changed(base_job(pp="2", vpp="2"), layers_per_stage=(16, 16), layers_per_chunk=((8, 8), (8, 8)))
    full = {"recompute": "full", "recompute_modules": (), "ep_overlap": False}
    uniform = changed(job, recomputed_layers_per_stage=(16, 16), recompute_interval=4, **full)
    assert "full --recompute-method uniform --recompute-num-layers 4" in one_line(uniform)
    block = changed(job, recomputed_layers_per_stage=(6, 6), **full)
    assert "full --recompute-method block --recompute-num-layers 3" in one_line(block)
    apart = changed(job, recomputed_layers_per_stage=(6, 0), **full)
    assert arguments(apart)[:3] == ["--recompute-num-layers-of-stages", "3,0", "pretrain_gpt.py"]
    odd = changed(job, recomputed_layers_per_stage=(5, 5), **full)
    assert told(TARGET, odd).refused == ("recomputed_layers_per_stage",)


def test_each_rank_is_told_the_count_of_its_stage(tmp_path: Path) -> None:
    job = changed(base_job(pp="2", vpp="2"), layers_per_stage=(16, 16), layers_per_chunk=((8, 8), (8, 8)))
    job = changed(job, recompute="full", recompute_modules=(), recomputed_layers_per_stage=(6, 2))
    assert TARGET.program is not None
    program = TARGET.program(job, None)
    (wrapper,) = program.files
    assert wrapper.name == program.script
    (tmp_path / wrapper.name).write_text(wrapper.text, encoding="utf-8")
    (tmp_path / "pretrain_gpt.py").write_text("import json, sys; print(json.dumps(sys.argv))", encoding="utf-8")
    found = {}
    for rank in (0, 31, 32, 63):
        done = subprocess.run(
            [sys.executable, wrapper.name, *program.arguments],
            cwd=tmp_path,
            env={"RANK": str(rank), "WORLD_SIZE": "64"},
            capture_output=True,
            text=True,
            check=True,
        )
        script, *words = json.loads(done.stdout)
        assert (script, words[:-2]) == ("pretrain_gpt.py", list(program.arguments[3:]))
        found[rank] = words[-2:]
    assert found == {rank: ["--recompute-num-layers", count] for rank, count in zip(found, "3311", strict=True)}


def test_environment() -> None:
    assert TARGET.program is not None
    plain, tensor = base_job(tp="1", cp="1", zero_stage="1"), base_job(tp="2", zero_stage="1")
    assert TARGET.program(plain, None).environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert TARGET.program(tensor, None).environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    fsdp = TARGET.program(base_job(tp="2", zero_stage="2"), None).environment
    assert fsdp["CUDA_DEVICE_MAX_CONNECTIONS"] != "1"
    blackwell = asked("llama-3.1-8b", "megatron-core", 64, 256, 8192, cluster="dgx-b200")
    newer = Job(scenario=blackwell, plan=tensor.plan)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in TARGET.program(newer, None).environment


def test_the_script_passes_what_the_program_has(tmp_path: Path) -> None:
    """Through a real bash, with a name that would do harm."""
    job = base_job(tp="2", pp="4")
    job = Job(scenario=job.scenario, plan=job.plan, name="a 'b'\n$(touch owned)\n`touch owned`", plan_id="x\ny")
    launch = TARGET.write(job, None)
    assert TARGET.program is not None
    script, text = launch.files[:2]
    (tmp_path / script.name).write_text(script.text, encoding="utf-8")
    fake = tmp_path / "torchrun"
    fake.write_text(f"#!{sys.executable}\nimport json, sys; print(json.dumps(sys.argv[1:]))", encoding="utf-8")
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", script.name, "--lr", "3e-4", "a b"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "NODE_RANK": "3", "MASTER_ADDR": "host0"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = json.loads(done.stdout)
    place = words.index("pretrain_gpt.py")
    assert words[place + 1 :] == [*TARGET.program(job, None).arguments, "--lr", "3e-4", "a b"]
    assert words[:place][:6] == ["--nnodes", "8", "--nproc-per-node", "8", "--node-rank", "3"]
    assert "host0:29500" in words
    assert not (tmp_path / "owned").exists()
    assert shlex.split(text.text) == list(TARGET.program(job, None).arguments)


def test_versions() -> None:
    job = base_job()
    assert TARGET.write(job, None).version == job.plan.framework_version
    assert TARGET.write(changed(job, framework_version="0.13"), None).version == "0.13"
    assert TARGET.write(changed(job, framework_version="1.0"), None).version == "0.17"
    with pytest.raises(UnknownName, match=r"0\.9, 0\.10"):
        TARGET.write(job, "0.3")


def test_nothing_is_written_that_no_version_is_known_to_have() -> None:
    job = base_job()
    sheet = Sheet(job, "x", __import__("planner.export.megatron_lm.write", fromlist=["words"]).words(), "0.9")
    with pytest.raises(KeyError):
        sheet.put("no-such-flag", 1)


# As people have it: variables, continued lines, arrays, flags of an earlier time.
SCRIPT = r"""#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-4}
TP=2; PP=4
TP=4
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES --master_port 6000)
GPT_MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192
    --max-position-embeddings 8192 --position-embedding-type rope --normalization RMSNorm --swiglu
    --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 128256
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size 4     # stages
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce
    --context-parallel-size $UNKNOWN_CP
    --use-tp-pp-dp-mapping
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} \
    --micro-batch-size 1 --global-batch-size=128 \
    --bf16 --fp8-format hybrid --fp8-amax-history-len 1024 --recompute-activations \
    --lr 3e-4 --data-path "my data"
"""


def test_reads_a_script() -> None:
    found = read_text(SCRIPT)
    expected = {
        "tp": 4, "pp": 4, "vpp": 2, "sequence_parallel": True, "tp_overlap": False, "zero_stage": 1, "devices_used": 32,
        "micro_batch_size": 1, "global_batch_size": 128, "seq_len": 8192, "schedule": "interleaved_1f1b",
        "layers_per_stage": [8, 8, 8, 8], "recompute": "selective", "recompute_modules": ["core_attn"],
        "precision": "fp8", "optimizer": "adamw",
    }  # fmt: skip
    assert {name: found.plan.get(name) for name in expected} == expected
    assert found.model.params.total == pytest.approx(8.03e9, rel=0.01)
    assert set(found.unread) == {"--context-parallel-size $UNKNOWN_CP", "--use-tp-pp-dp-mapping"}
    assert {"--lr", "--data-path", "--fp8-amax-history-len"} <= set(found.ignored)
    assert found.meanings["vpp"] == "--num-layers-per-virtual-pipeline-stage 4"


def test_reads_flags_that_a_bracket_or_a_command_s_end_follows() -> None:
    arrays = "A=(--tensor-model-parallel-size 8 --sequence-parallel)\nB=(--bf16)\nB+=(--use-distributed-optimizer)\n"
    plan = read_text(arrays + "torchrun pretrain_gpt.py ${A[@]} ${B[@]}").plan
    said = {"tp": 8, "sequence_parallel": True, "precision": "bf16", "zero_stage": 1}
    assert {name: plan[name] for name in said} == said
    for end in ("; echo done", ";echo done", "&", " & wait", "|tee log", ">log"):
        assert read_text(f"torchrun pretrain_gpt.py --seq-length 2048 --bf16{end}").plan["precision"] == "bf16"
    for end in ("; echo done", ";echo done", "&", " | tee log", " > log"):
        assert read_text(f"torchrun x.py --bf16 --tensor-model-parallel-size 8{end}").plan["tp"] == 8


def test_reads_variables_that_hold_lines_of_flags() -> None:
    script = """
GPT_ARGS="
    --tensor-model-parallel-size 2 \\
    --fp16
"
torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py \\
    $GPT_ARGS \\
    --micro-batch-size 4
"""
    for text in (script, script.replace("2 \\", "2")):
        plan = read_text(text).plan
        assert (plan["tp"], plan["precision"], plan["micro_batch_size"], plan["devices_used"]) == (2, "fp16", 4, 8)
    with pytest.raises(InvalidInput, match="line 3"):
        read_text("# one\n# two\ntorchrun x.py \\\n --lr 'x\n")


@pytest.mark.parametrize(
    ("flags", "unsaid"),
    [
        ("--tensor-model-parallel-size $TP --sequence-parallel --num-experts 8", ("tp", "sequence_parallel", "etp")),
        ("--pipeline-model-parallel-size $PP --num-layers 32", ("pp", "vpp", "schedule", "layers_per_stage")),
        ("--expert-model-parallel-size $EP --num-experts $E", ("ep",)),
        ("--context-parallel-size $CP", ("cp",)),
        ("--recompute-granularity $R", ("recompute",)),
        ("--bf16 --fp8-format $F", ("precision",)),
    ],
)
def test_nothing_is_said_of_what_a_variable_holds(flags: str, unsaid: tuple[str, ...]) -> None:
    found = read_text(flags)
    assert {name for name in unsaid if name in found.plan} == set()
    assert any("$" in name for name in found.unread)
    assert read_text(f"X=1\n{re.sub(r'[$][A-Z]+', '1', flags)}").plan.keys() >= {"tp", "pp"}


def test_fields_on_defaults_are_told() -> None:
    script = "NUM_NODES=${SLURM_NNODES:-1}\ntorchrun --nnodes $NUM_NODES --nproc-per-node 8 x.py "
    found = read_text(script + "--global-batch-size $((128*NUM_NODES)) --micro-batch-size 1")
    assert (found.plan["devices_used"], found.plan["global_batch_size"]) == (8, 128)
    assert set(found.defaulted) == {"devices_used", "global_batch_size"}
    assert any("--nnodes 1" in note and "SLURM_NNODES" in note for note in found.notes)
    assert any("--global-batch-size 128" in note for note in found.notes)
    assert not read_text(f"SLURM_NNODES=2\n{script} --bf16").defaulted


def test_arguments_without_a_model_are_a_plan() -> None:
    found = read_text("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --micro-batch-size 1")
    assert found.model is None
    assert (found.plan["tp"], found.plan["pp"]) == (8, 2)
    assert "layers_per_stage" not in found.plan


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("--data-parallel-sharding-strategy halves --use-megatron-fsdp", "--data-parallel-sharding-strategy halves"),
        ("--use-torch-fsdp2 --bf16", "--use-torch-fsdp2"),
        ("--outer-dp-sharding-strategy optim --use-megatron-fsdp", "--outer-dp-sharding-strategy optim"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.5", "--optimizer-offload-fraction 0.5"),
        ("--bf16 --fp8-format hybrid --fp8-recipe custom", "--fp8-recipe custom"),
        ("--cp-comm-type ring --context-parallel-size 2", "--cp-comm-type ring"),
        ("--recompute-granularity most", "--recompute-granularity most"),
        ("--pipeline-model-parallel-layout Ett --num-layers 2", "--pipeline-model-parallel-layout Ett"),
        ("--num-layers 8 --pipeline-model-parallel-size 3", "--pipeline-model-parallel-size 3"),
        ("--optimizer adafactor", "--optimizer adafactor"),
        ("--tensor-model-parallel-size two", "--tensor-model-parallel-size two"),
        ("--bf16 --rampup-batch-size 16 16 1000", "--rampup-batch-size 16 16 1000"),
        ("--num-layers 9 --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 10",
         "--decoder-first-pipeline-num-layers 10"),
    ],
)  # fmt: skip
def test_what_no_plan_holds_is_named(text: str, unread: str) -> None:
    assert unread in read_text(text).unread


@pytest.mark.parametrize("text", ["", "hello", "--lr 'unclosed"])
def test_unusable_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="from"):
        read_text(text)


def case_of(job: Job, version: str | None = None) -> dict[str, Any]:
    assert TARGET.program is not None
    program = TARGET.program(job, version)
    words = list(program.arguments)
    if "--recompute-num-layers-of-stages" in words:
        words = [*words[3:], "--recompute-num-layers", words[1].split(",")[0]]
    found = arguments_of(shlex.join(words), "arguments")
    return {
        "arguments": words,
        "environment": dict(program.environment),
        "settings": settings_of({name.lstrip("-"): value for name, value in found.items()}).values,
        "world": job.plan.devices_used,
        "dp": job.plan.dp,
        "vpp": job.plan.vpp,
        "blackwell": job.scenario.cluster.accelerator.family == "blackwell",
    }


@pytest.mark.slow
@pytest.mark.parametrize("release", releases.known("megatron", "0.9.0", "0.12.0", "0.14.0", "0.17.1"))
def test_megatron_takes_every_export(release: str, exported: list[Job]) -> None:
    """0.17.1: its own command line. Before, no wheel has that, and its configuration takes every setting."""
    version = release.rpartition(".")[0]
    jobs = [job for job in exported if job.plan.framework_version == version or job.model.name in SEARCHED]
    jobs = [job for job in jobs if told(TARGET, job, version).launch is not None]
    assert len(jobs) > 10
    cases = [case_of(job, version) for job in jobs]
    for job, case, answer in zip(jobs, cases, releases.ask("megatron", release, cases), strict=True):
        assert answer["refused"] is None, (shlex.join(case["arguments"]), answer["refused"])
        assert answer["parsed"] == (release == "0.17.1")
        assert tuple(map(tuple, answer["chunks"])) == chunks_of_plan(job.plan)


@pytest.mark.slow
@pytest.mark.parametrize("release", releases.known("megatron", "0.17.1"))
def test_megatron_s_own_parser_refuses_what_is_wrong(release: str) -> None:
    """The parser that takes all exports does look at them."""
    case = case_of(base_job(tp="2", pp="4", vpp="1", zero_stage="1"), "0.17")
    wrong = [
        {"arguments": [*case["arguments"], "--no-such-flag"]},
        {"arguments": [*case["arguments"], "--pipeline-model-parallel-layout", "Et|tL|"]},
        {"environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}},
        {"world": 60},
    ]
    assert all(answer["refused"] for answer in releases.ask("megatron", release, [case | more for more in wrong]))

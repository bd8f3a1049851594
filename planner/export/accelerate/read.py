"""What a configuration of Accelerate says of a plan: its file, or the arguments of ``accelerate launch``."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import Any

from costmodel.catalog.documents import mapping_of
from costmodel.errors import InvalidInput, UnreadableFile
from planner.export.accelerate.settings import NAME, OPTIMIZERS, STRATEGIES, WORDS
from planner.export.dotted import dotted
from planner.export.known_keys import known_keys
from planner.export.notebook import Notebook
from planner.export.numbers import whole_number
from planner.export.reading import Read

_KEYS = known_keys("planner.export.accelerate")
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*:?-([^}]*)\}")
_COMMAND = re.compile(r"\s*(?:accelerate\s+launch\b|--\w)")
_SCRIPT = tuple(name.removeprefix("--") for name in WORDS.words if name.startswith("--"))
_SECTIONS = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
_MESH = "parallelism_config_"
_SIZES = {"dp_replicate_size": "dp_replicate", "dp_shard_size": "dp_shard", "tp_size": "tp"}
# Strategies of FSDP 1, whose numbers count from 1 (torch.distributed.fsdp.ShardingStrategy): the stage that each is,
# and whether it shards inside a node and keeps copies on the others.
_FSDP1 = {
    "FULL_SHARD": (3, False),
    "SHARD_GRAD_OP": (2, False),
    "NO_SHARD": (0, False),
    "HYBRID_SHARD": (3, True),
    "HYBRID_SHARD_ZERO2": (2, True),
}
_NUMBERED = {str(number): name for number, name in enumerate(_FSDP1, start=1)}
_OTHERS = {
    "DEEPSPEED": "it hands the run over to DeepSpeed: give DeepSpeed's own JSON with --from deepspeed FILE",
    "MEGATRON_LM": "it hands the run over to Megatron-LM: give Megatron-LM's arguments with --from megatron-lm FILE",
}
_EXCHANGES = {word: kind for kind, word in STRATEGIES.items()}
_OPTIMIZERS = {word: name for name, word in OPTIMIZERS.items()} | {"adamw_torch_fused": "adamw"}


def read(text: str) -> Read:
    """What the text says.

    Raises:
        UnreadableFile: it is neither a mapping of YAML nor arguments.
        InvalidInput: its quotes don't match, or a value can't be what its key is about.
    """
    keys = Notebook(_settings(text), NAME)
    keys.says("framework", NAME, "the file is Accelerate's")
    for part in (_kind, _mesh, _precision, _recompute, _script):
        part(keys)
    keys.leave(_KEYS.ignored, _KEYS.unread)
    return keys.found()


def _settings(text: str) -> dict[str, Any]:
    """Names without their sections, as ``accelerate launch`` has them; what the script is told goes with both."""
    arguments = _arguments(text)
    if _COMMAND.match(text):
        return arguments
    data = mapping_of(text, is_json=text.lstrip().startswith("{"), shown="the configuration", field="from")
    if not data:
        raise UnreadableFile("from", NAME, "a configuration file, or arguments of accelerate launch, are expected")
    found: dict[str, Any] = {}
    for name, value in dotted(data).items():
        section, _, key = name.rpartition(".")
        prefix = _SECTIONS.get(section, "")
        found[key if key.startswith(prefix) else prefix + key] = value
    return found | {name: value for name, value in arguments.items() if name in _SCRIPT}


def _arguments(text: str) -> dict[str, Any]:
    """Every ``--name value``, in comments too: there the files of ``planner export`` say what the script is told."""
    joined = _VARIABLE.sub(lambda found: found.group(1), re.sub(r"\\\r?\n", " ", text))
    found: dict[str, Any] = {}
    for line in joined.splitlines():
        if "--" not in line:
            continue
        try:
            words = [*shlex.split(line.strip().lstrip("#")), "--"]
        except ValueError as error:
            raise InvalidInput("from", NAME, f"its arguments can't be read: {error}") from None
        for word, after in pairwise(words):
            if word.startswith("--"):
                name, has_value, value = word.removeprefix("--").partition("=")
                alone = after.startswith("--")
                found[name.replace("-", "_")] = value if has_value else True if alone else after
    return found


def _kind(keys: Notebook) -> None:
    given = dict(keys.items())
    switches = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "use_megatron_lm": "MEGATRON_LM"}
    usual = next((kind for switch, kind in switches.items() if given.get(switch)), "MULTI_GPU")
    kind = (keys.word("distributed_type") or usual).upper()
    if kind in _OTHERS:
        raise InvalidInput(f"{NAME}: distributed_type", kind, _OTHERS[kind])
    version, reshard = keys.pop("fsdp_version"), keys.pop("fsdp_reshard_after_forward")
    strategy = str(keys.pop("fsdp_sharding_strategy") or "FULL_SHARD").upper()
    offloaded = bool(keys.switch("fsdp_offload_params"))
    if kind in ("MULTI_GPU", "NO"):
        keys.says("zero_stage", 0, f"distributed_type {kind}")
        return
    if kind != "FSDP":
        keys.unread("distributed_type", f"{kind} is none of FSDP, MULTI_GPU, NO")
        return
    if str(version) != "2":
        keys.note("FSDP 1 is read as FSDP 2 does it")
    # FSDP 1 had a strategy's name in its place.
    named = strategy if reshard is None else str(reshard).upper()
    name = "fsdp_sharding_strategy" if reshard is None else "fsdp_reshard_after_forward"
    word = {"TRUE": "FULL_SHARD", "FALSE": "SHARD_GRAD_OP"}.get(named, _NUMBERED.get(named, named)).removeprefix("_")
    if word not in _FSDP1:
        keys.unread(name, f"{named} is none of {', '.join(_FSDP1)}")
        return
    stage, inside_nodes = _FSDP1[word]
    keys.says("zero_stage", stage, f"{name} {named}")
    if stage == 3:
        keys.says("reshard_after", "forward", f"{name} {named}")
    if inside_nodes:
        _read_hybrid(keys, given, f"{name} {named}")
    keys.says("offload", "parameters" if offloaded else "none", f"fsdp_offload_params {offloaded}")


def _read_hybrid(keys: Notebook, given: dict[str, Any], meaning: str) -> None:
    """Sharding inside a node, whose size is what processes and machines say."""
    processes, machines = whole_number(given.get("num_processes")), whole_number(given.get("num_machines"))
    if not processes or not machines or processes % machines:
        keys.unread(meaning, "it shards inside a node, and num_processes and num_machines don't say how large that is")
        return
    keys.says("dp_shard", processes // machines, f"{meaning}, {processes} processes on {machines} machines")
    keys.says("dp_replicate", machines, f"{meaning}, {machines} machines")


def _mesh(keys: Notebook) -> None:
    keys.count("num_processes", "devices_used")
    sizes = {word: keys.number(f"{_MESH}{word}") for word in (*_SIZES, "cp_size", "sp_size")}
    strategy = keys.word(f"{_MESH}cp_comm_strategy") or "allgather"
    ring, heads = sizes["cp_size"] or 1, sizes["sp_size"] or 1
    if any(sizes.values()):
        for word, field in _SIZES.items():
            if sizes[word] is None and field in keys.plan:
                continue  # a strategy of FSDP 1 has said it
            keys.says(field, sizes[word] or 1, f"{_MESH}{word} {sizes[word] or 1}")
        keys.says("cp", ring * heads, f"{_MESH}cp_size {ring}, sp_size {heads}")
    if heads > 1:
        keys.says("cp_comm_type", "a2a", f"{_MESH}sp_size {heads}")
    elif ring > 1 and strategy in _EXCHANGES:
        keys.says("cp_comm_type", _EXCHANGES[strategy], f"{_MESH}cp_comm_strategy {strategy}")
    elif ring > 1:
        keys.unread(f"{_MESH}cp_comm_strategy", f"{strategy!r} is none of {', '.join(_EXCHANGES)}")
    if keys.plan.get("zero_stage") == 0 and "dp_shard" not in keys.plan:
        keys.says("dp_shard", 1, "distributed_type shards nothing")
    keys.says("sequence_parallel", False, "Transformers' plans of tensor parallelism leave norms whole")


def _precision(keys: Notebook) -> None:
    given = keys.pop("mixed_precision")
    # YAML has a bare no as false.
    mixed = "no" if given in (None, False) else str(given).lower()
    backend, tf32 = (keys.word("fp8_backend") or "te").lower(), bool(keys.switch("tf32"))
    known = {"no": "tf32" if tf32 else "fp32", "bf16": "bf16", "fp16": "fp16"}
    precision = known.get(mixed) or ({"te": "fp8", "ao": "fp8-current"}.get(backend) if mixed == "fp8" else None)
    if precision is None:
        keys.unread("mixed_precision", f"{mixed} by {backend}: no precision that is known here")
        return
    keys.says("precision", precision, f"mixed_precision {mixed}")
    narrow = keys.plan.get("zero_stage", 0) > 0 and mixed in ("bf16", "fp8")
    keys.says("gradient_dtype", "bf16" if narrow else "fp32", f"mixed_precision {mixed}")


def _recompute(keys: Notebook) -> None:
    of_fsdp, of_script = keys.switch("fsdp_activation_checkpointing"), keys.switch("gradient_checkpointing")
    again = bool(of_fsdp or of_script)
    keys.says("recompute", "full" if again else "none", f"activation checkpointing {again}")


def _script(keys: Notebook) -> None:
    size = keys.count("per_device_train_batch_size", "micro_batch_size")
    steps = keys.count("gradient_accumulation_steps", "num_microbatches")
    plan = keys.plan
    if size is not None and steps is not None and "devices_used" in plan:
        replicas = plan["devices_used"] // (plan.get("tp", 1) * plan.get("cp", 1))
        keys.says("global_batch_size", size * steps * replicas, f"{size} * {steps} steps * {replicas} replicas")
    if (steps or 1) > 1:
        keys.says("gradient_sync", "step", "accumulate() holds reductions back to the last micro-batch")
    keys.count("block_size", "seq_len")
    optimizer = keys.word("optim")
    if optimizer in _OPTIMIZERS:
        keys.says("optimizer", _OPTIMIZERS[optimizer], f"optim {optimizer}")
    elif optimizer is not None:
        keys.unread("optim", f"{optimizer!r} is no optimizer that is known here")

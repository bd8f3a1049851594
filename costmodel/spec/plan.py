"""A plan: how one training step is cut over the devices.

Flat, as ``suggest --json`` prints it and ``plan.json`` holds it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from costmodel.spec.base import Frozen, NonNegativeInt, PositiveInt

Recompute = Literal["none", "selective", "full"]
Schedule = Literal["gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe", "dualpipe_v"]
CpCommType = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
Offload = Literal["none", "optimizer", "activations", "parameters"]
ReshardAfter = Literal["forward", "backward", "step"]
GradientSync = Literal["step", "microbatch"]
ZeroPlus = Literal["qwz", "hpz", "qgz"]
MoeDispatcher = Literal["deduplicated", "all_to_all", "all_gather"]
CapacityFactor = Annotated[float, Field(ge=0.1, le=100.0)]

RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe", "dualpipe_v")
CP_COMM_TYPES: tuple[CpCommType, ...] = ("p2p", "all_gather", "a2a", "a2a+p2p")
RECOMPUTE_MODULES: tuple[str, ...] = (
    "core_attn",
    "layernorm",
    "moe_act",
    "mla_up_proj",
    "mlp",
    "moe",
    "shared_experts",
    "gdn_norm_out",
    "mhc",
)
"""Every module that some framework can be told to recompute by name."""


class Plan(Frozen):
    """One complete way to run the step.

    ``tp``, ``cp``, ``dp`` and ``pp`` span the dense mesh; ``etp`` and ``ep`` fold over the same devices for the
    experts, so ``devices_used = tp * cp * dp * pp`` and experts are replicated ``tp * cp * dp / (ep * etp)`` times.

    Attributes:
        vpp: chunks of layers per device (virtual pipeline stages).
        dp_replicate, dp_shard: their product is ``dp``; what is sharded over ``dp_shard`` says ``zero_stage``.
        layers_per_stage: decoder layers of each pipeline device; multi-token-prediction layers are counted apart. Under
            ``dualpipe`` of each stage of one direction: device i holds those of the stages i and ``pp - 1 - i``.
        layers_per_chunk: for each device the layers of its chunks, in the order in which they are visited.
        recomputed_layers_per_stage: how many of a stage's layers run their forward pass again in the backward pass.
        recompute_modules: what ``selective`` recomputes.
        recompute_interval: under ``full``, how many layers share one checkpoint: their forward passes run again
            together.
        offload: what lives in host memory and visits the device.
        reshard_after: when ZeRO-3 drops the parameters that it gathered: after a layer's forward pass, so that they
            are gathered again for its backward pass, after that, or at the end of the step.
        fsdp_prefetch: layers that are gathered ahead of the one at work.
        gradient_sync: whether gradients are reduced once a step (``no_sync`` before) or after every micro-batch.
        zero_plus: parts of ZeRO++ in use: quantised gathers of weights (qwz), a second copy inside the node for the
            backward pass (hpz), quantised reduction of gradients (qgz).
        tp_overlap: whether tensor parallel exchanges overlap with the products beside them.
        cp_a2a_degree: ranks that exchange heads (Ulysses); the other cp / cp_a2a_degree pass keys and values on.
        cp_balanced: whether every rank holds an early and a late piece of the sequence (zig-zag).
        moe_dispatcher: how tokens reach their experts: once per node that has some of them, once per expert, or all
            tokens everywhere.
        ep_overlap: whether dispatch and combine overlap with the compute of another micro-batch.
        moe_capacity_factor: tokens that an expert takes at most, over the mean; None drops none. It changes training.
        gradient_dtype: what gradients are accumulated and reduced in.
    """

    tp: PositiveInt
    pp: PositiveInt
    vpp: PositiveInt = 1
    cp: PositiveInt = 1
    cp_comm_type: CpCommType = "p2p"
    ep: PositiveInt = 1
    etp: PositiveInt = 1
    dp: PositiveInt
    dp_replicate: PositiveInt
    dp_shard: PositiveInt
    zero_stage: Literal[0, 1, 2, 3]
    sequence_parallel: bool
    micro_batch_size: PositiveInt
    num_microbatches: PositiveInt
    global_batch_size: PositiveInt
    seq_len: PositiveInt
    devices_used: PositiveInt
    schedule: Schedule
    layers_per_stage: tuple[NonNegativeInt, ...]
    layers_per_chunk: tuple[tuple[NonNegativeInt, ...], ...] | None = None
    recompute: Recompute
    recompute_modules: tuple[str, ...] = ()
    recomputed_layers_per_stage: tuple[NonNegativeInt, ...]
    recompute_interval: PositiveInt = 1
    offload: Offload = "none"
    reshard_after: ReshardAfter = "forward"
    fsdp_prefetch: NonNegativeInt = 1
    gradient_sync: GradientSync = "step"
    zero_plus: tuple[ZeroPlus, ...] = ()
    tp_overlap: bool = True
    cp_a2a_degree: PositiveInt = 1
    cp_balanced: bool = True
    moe_dispatcher: MoeDispatcher = "deduplicated"
    ep_overlap: bool = False
    moe_capacity_factor: CapacityFactor | None = None
    precision: str
    optimizer: str
    gradient_dtype: str = "fp32"
    framework: str
    framework_version: str

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if len(self.layers_per_stage) != self.pp:
            raise ValueError(f"layers_per_stage has {len(self.layers_per_stage)} entries, pp is {self.pp}")
        if self.dp_replicate * self.dp_shard != self.dp:
            raise ValueError(f"dp_replicate {self.dp_replicate} * dp_shard {self.dp_shard} is not dp {self.dp}")
        used = self.tp * self.cp * self.dp * self.pp
        if used != self.devices_used:
            raise ValueError(f"tp * cp * dp * pp = {used}, devices_used says {self.devices_used}")
        if self.micro_batch_size * self.num_microbatches * self.dp != self.global_batch_size:
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} * num_microbatches {self.num_microbatches} * dp {self.dp} "
                f"is not global_batch_size {self.global_batch_size}"
            )
        return self

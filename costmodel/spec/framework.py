"""What one version of a training framework can express; its rules live in ``costmodel.rules``."""

from __future__ import annotations

import re
from typing import Literal

from costmodel.errors import UnknownName
from costmodel.spec.base import Frozen, FrozenMap, FrozenMapping, IsoDate, NonNegativeInt, PositiveInt
from costmodel.spec.plan import CpCommType, MoeDispatcher, Offload, ReshardAfter, Schedule, ZeroPlus
from costmodel.spec.recipes import GradientDtype

MemoryKind = Literal["first_stage", "allocated", "reserved", "device"]

# Around the version itself: a branch or a tag (core_r0.14, v0.14.1), a pre-release (0.16rc1), a local build (2.13+cpu).
_BEFORE = re.compile(r"^[a-z_\-\s]*")
_AFTER = re.compile(r"([.\-]\d+)*([.\-]?(a|b|rc|alpha|beta|dev|post)[.\d]*)*(\+[\w.]+)?")


class EarlierEra(Frozen):
    """Runs of a framework that are priced as another entry of the catalog, because they were made differently.

    Attributes:
        framework: that entry.
        names: what both eras call it; a text with more in it speaks of today.
        families: of accelerators that it ran on.
        precisions: recipes that tell such a run, when the run states them.
        without_sequence_parallel: whether tensor parallelism without it tells such a run.
        named: name -> the entry of such runs where the name tells more of them.
        sharded: name -> the entry of such runs that shard their optimizer's state, where that was another's doing.
    """

    framework: str
    names: tuple[str, ...]
    families: tuple[str, ...]
    precisions: tuple[str, ...] = ()
    without_sequence_parallel: bool = False
    named: FrozenMapping[str, str] = FrozenMap({})
    sharded: FrozenMapping[str, str] = FrozenMap({})


class GradientBuckets(Frozen):
    """How large a bucket of gradients is that is reduced at once: the largest of what is given.

    Attributes:
        bytes: on the wire.
        parameters: whatever they are reduced in.
        parameters_per_rank: the same, times the ranks that they are reduced over.
    """

    bytes: NonNegativeInt = 0
    parameters: NonNegativeInt = 0
    parameters_per_rank: NonNegativeInt = 0


class FrameworkSpec(Frozen):
    """A framework at one version.

    Attributes:
        aliases: what people call it, in lower case: exact names for ``load_framework``, parts of free text for
            ``recognise_framework``.
        fallback: whether it stands in where a text names no framework.
        rules: the rule set that it follows, often its own name; None where none of its own is known, so that only the
            rules that hold under every framework apply.
        version: the version in use, one of ``versions``.
        versions: the versions that rules tell apart, oldest first.
        features: feature name -> the first version that has it.
        vendors: makers of the accelerators that it runs on.
        schedules: pipeline schedules on offer; none where it has no pipelines.
        zero_stages: what data parallelism may shard: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters.
        cp_comm_types: how context parallelism may exchange keys and values; none where it has no context parallelism.
        gradient_bytes: precision recipe that it trains in -> bytes of one accumulated gradient, unless asked otherwise.
        precision_since, precision_until: the first, or the last, version with a recipe, where not all versions have it.
        gradient_copies: precision recipe -> bytes of each whole gradient's copy beside the accumulated one.
        copies_when_unsharded: whether these copies are there under stage 0 of several replicas alone (buckets of DDP).
        gradient_dtypes: what gradients may be accumulated and reduced in, where there is a choice.
        gradient_buckets: of unsharded gradients, as it sets them up; None where nobody looked: a layer each.
        quantised_parameters: recipes under which layers keep their parameters in 8 bits alone, as it usually does.
        usual_quantised_parameters: the same where a run doesn't say.
        quantised_gathers: recipes whose parameters it gathers in 8 bits, as its documentation sets them up.
        saves_quantised_inputs: whether the backward pass keeps the quantised input of a product, not the 16-bit one.
        tensor_parallel, expert_parallel: whether it is planned with them at all; for pipelines and context parallelism
            ``schedules`` and ``cp_comm_types`` say so.
        selective_modules: what ``recompute: selective`` recomputes; none where a layer is recomputed whole or not.
        selects_products: whether ``recompute: selective`` without modules of one's own keeps a layer's input, the
            output of attention and that of every second product, and runs the rest of the layer again.
        selective_since: the same by version, where versions differ: first version -> modules.
        recompute_modules: module that can be named for selective recompute -> the first version that knows it; empty
            where those of ``selective_modules`` are all.
        offloads: what may live in host memory -> the first version that can do so; None where nobody looked.
        moe_dispatchers: how tokens may reach their experts -> the first version that can do so, the usual one first;
            None where nobody looked.
        rule_sources: general rule -> where this framework asks the same.
        vocab_padding_multiple: the vocabulary is padded to this times tp.
        engine: the framework whose kernels it runs and whose calibration holds for it; None for its own.
        usual_zero_stage: what is sharded where a run doesn't say.
        experts_follow_tp: whether experts are cut over as many ranks as the rest where a run doesn't say.
        memory_kind: which figure its logs print as memory where a run doesn't say.
        fused_attention: whether attention scores stay on chip.
        fused_pointwise: whether a norm, a rotary embedding and a gated activation are one kernel each where a run
            doesn't say; None where the framework has such kernels of its own, so that no run is without them.
        expert_streams: streams on which it starts a product for each expert; None where one kernel multiplies all.
        reshard_after: when it can drop gathered parameters -> the first version that can; None where nobody looked.
        zero_plus: parts of ZeRO++ that it has.
        pipelines_reduce_once: whether its pipelines accumulate sharded gradients whole and reduce them once a step.
        stage_2_gathers: whether its stage 2 cuts parameters too and gathers them once a micro-batch, as PyTorch FSDP
            does that does not reshard after the forward pass.
        stage_1_deals_tensors: whether its stage 1 deals whole tensors to ranks: gradients are all-reduced as without
            it, each rank updates the tensors that it owns and, when all have, broadcasts them.
        lays_out_by_cost: whether it lays blocks over the stages of a pipeline by their parameters, the head among them,
            so that nobody can ask for a layout.
        fp32_parameters: whether the sharded parameters are the 32-bit master copy, cast when they are gathered.
        earlier: the era of it that runs in these ways belong to.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    fallback: bool = False
    rules: str | None
    version: str
    versions: tuple[str, ...]
    features: FrozenMapping[str, str]
    vendors: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    zero_stages: tuple[int, ...]
    cp_comm_types: tuple[CpCommType, ...]
    tensor_parallel: bool = True
    expert_parallel: bool = True
    gradient_bytes: FrozenMapping[str, PositiveInt]
    gradient_copies: FrozenMapping[str, PositiveInt] = FrozenMap({})
    copies_when_unsharded: bool = False
    precision_since: FrozenMapping[str, str] = FrozenMap({})
    precision_until: FrozenMapping[str, str] = FrozenMap({})
    gradient_dtypes: tuple[GradientDtype, ...] = ()
    gradient_buckets: GradientBuckets | None = None
    quantised_parameters: tuple[str, ...] = ()
    usual_quantised_parameters: tuple[str, ...] = ()
    quantised_gathers: tuple[str, ...] = ()
    saves_quantised_inputs: bool = False
    selective_modules: tuple[str, ...]
    selects_products: bool = False
    selective_since: FrozenMapping[str, tuple[str, ...]] = FrozenMap({})
    recompute_modules: FrozenMapping[str, str] = FrozenMap({})
    offloads: FrozenMapping[Offload, str] | None = None
    moe_dispatchers: FrozenMapping[MoeDispatcher, str] | None = None
    rule_sources: FrozenMapping[str, str] = FrozenMap({})
    vocab_padding_multiple: PositiveInt
    engine: str | None = None
    usual_zero_stage: NonNegativeInt = 0
    experts_follow_tp: bool = False
    memory_kind: MemoryKind = "allocated"
    fused_attention: bool = True
    fused_pointwise: bool | None = None
    expert_streams: PositiveInt | None = None
    reshard_after: FrozenMapping[ReshardAfter, str] | None = None
    zero_plus: tuple[ZeroPlus, ...] = ()
    pipelines_reduce_once: bool = False
    stage_2_gathers: bool = False
    stage_1_deals_tensors: bool = False
    lays_out_by_cost: bool = False
    fp32_parameters: bool = False
    earlier: EarlierEra | None = None
    source: str
    retrieved: IsoDate

    def at(self, version: str) -> FrameworkSpec:
        """The same framework at another version, however it is written.

        A patch, a pre-release, a tag or a release branch is the version that it belongs to.

        Raises:
            UnknownName: when no rule set knows ``version``.
        """
        asked = _BEFORE.sub("", version.strip().lower())
        for known in sorted(self.versions, key=len, reverse=True):
            if asked.startswith(known) and _AFTER.fullmatch(asked, len(known)):
                return self.model_copy(update={"version": known, "selective_modules": self._selective_at(known)})
        raise UnknownName("framework-version", version, self.versions)

    def has(self, feature: str) -> bool:
        """Whether this version has ``feature``; a feature that no version has is simply absent."""
        since = self.features.get(feature)
        return since is not None and self._is_at_least(since)

    def precisions(self) -> tuple[str, ...]:
        """The precision recipes that this version trains in."""
        return tuple(name for name in self.gradient_bytes if self._has_precision(name))

    def known_recompute_modules(self) -> tuple[str, ...]:
        """What this version can be told to recompute by name."""
        named = tuple(module for module, since in self.recompute_modules.items() if self._is_at_least(since))
        return named or self.selective_modules

    def known_offloads(self) -> tuple[Offload, ...] | None:
        """What this version can keep in host memory; None where nobody looked."""
        if self.offloads is None:
            return None
        return tuple(offload for offload, since in self.offloads.items() if self._is_at_least(since))

    def known_reshard_after(self) -> tuple[ReshardAfter, ...] | None:
        """When this version can drop the parameters that it gathered; None where nobody looked."""
        if self.reshard_after is None:
            return None
        return tuple(value for value, since in self.reshard_after.items() if self._is_at_least(since))

    def known_moe_dispatchers(self) -> tuple[MoeDispatcher, ...] | None:
        """How this version can bring tokens to their experts; None where nobody looked."""
        if self.moe_dispatchers is None:
            return None
        return tuple(kind for kind, since in self.moe_dispatchers.items() if self._is_at_least(since))

    def _has_precision(self, name: str) -> bool:
        since, until = self.precision_since.get(name), self.precision_until.get(name)
        ended = until is not None and self.version != until and self._is_at_least(until)
        return not ended and (since is None or self._is_at_least(since))

    def _is_at_least(self, since: str) -> bool:
        return self.versions.index(self.version) >= self.versions.index(since)

    def _selective_at(self, version: str) -> tuple[str, ...]:
        position = self.versions.index(version)
        found = self.selective_modules
        for since in sorted(self.selective_since, key=self.versions.index):
            if self.versions.index(since) <= position:
                found = self.selective_since[since]
        return found

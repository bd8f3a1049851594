"""What one version of a training framework can express; its rules live in ``costmodel.rules``."""

from __future__ import annotations

from typing import Literal

from costmodel.errors import UnknownName
from costmodel.spec.base import Frozen, FrozenMapping, IsoDate, NonNegativeInt, PositiveInt
from costmodel.spec.plan import CpCommType, Schedule

MemoryKind = Literal["first_stage", "allocated", "reserved", "device"]


class EarlierEra(Frozen):
    """Runs of a framework that are priced as another entry of the catalog, because they were made differently.

    Attributes:
        framework: that entry.
        names: what both eras call it; a text with more in it speaks of today.
        precisions: recipes that tell such a run.
        without_sequence_parallel: whether tensor parallelism without it tells such a run.
    """

    framework: str
    names: tuple[str, ...]
    precisions: tuple[str, ...] = ()
    without_sequence_parallel: bool = False


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
        gradient_bytes: precision recipe -> bytes of one accumulated gradient.
        selective_modules: what ``recompute: selective`` recomputes; none where a layer is recomputed whole or not.
        vocab_padding_multiple: the vocabulary is padded to this times tp.
        engine: the framework whose kernels it runs and whose calibration holds for it; None for its own.
        usual_zero_stage: what is sharded where a run doesn't say.
        experts_follow_tp: whether experts are cut over as many ranks as the rest where a run doesn't say.
        memory_kind: which figure its logs print as memory where a run doesn't say.
        fused_attention: whether attention scores stay on chip.
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
    gradient_bytes: FrozenMapping[str, PositiveInt]
    selective_modules: tuple[str, ...]
    vocab_padding_multiple: PositiveInt
    engine: str | None = None
    usual_zero_stage: NonNegativeInt = 0
    experts_follow_tp: bool = False
    memory_kind: MemoryKind = "allocated"
    fused_attention: bool = True
    fp32_parameters: bool = False
    earlier: EarlierEra | None = None
    source: str
    retrieved: IsoDate

    def at(self, version: str) -> FrameworkSpec:
        """The same framework at another version; a patch release is the version that it belongs to.

        Raises:
            UnknownName: when no rule set knows ``version``.
        """
        asked = version.strip().lower().removeprefix("v")
        for known in sorted(self.versions, key=len, reverse=True):
            if asked == known or asked.startswith(known + "."):
                return self.model_copy(update={"version": known})
        raise UnknownName("framework-version", version, self.versions)

    def has(self, feature: str) -> bool:
        """Whether this version has ``feature``; a feature that no version has is simply absent."""
        since = self.features.get(feature)
        return since is not None and self.versions.index(self.version) >= self.versions.index(since)

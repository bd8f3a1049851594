"""The flags or keys of a target, with the versions that have them: ``words.yaml`` in each target's package.

    versions: ["0.12", "0.13"]          # that are told apart, oldest first
    default: "0.13"
    words:
      tensor-model-parallel-size: {source: megatron/core/model_parallel_config.py:26}
      pipeline-model-parallel-layout: {since: "0.13", source: ...}
      old-name: {until: "0.12", source: ...}
    source: where and at which commit it was read
    retrieved: "2026-11-30"

A word whose spelling is not certain for a version has no business in the file: what it would say is refused instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from costmodel.catalog.documents import read_mapping
from costmodel.errors import UnknownName
from costmodel.spec.base import Frozen, FrozenMapping, IsoDate
from costmodel.spec.validation import build


class Word(Frozen):
    """One flag or key.

    Attributes:
        since, until: the first and the last version that has it, both included; None where all have it.
        source: where it was read, beyond what the file says.
    """

    since: str | None = None
    until: str | None = None
    source: str


class Words(Frozen):
    """All that is known of a target's spelling."""

    versions: tuple[str, ...] = ()
    default: str | None = None
    words: FrozenMapping[str, Word]
    source: str
    retrieved: IsoDate

    def version(self, asked: str | None) -> str | None:
        """The version to write for.

        Raises:
            UnknownName: it is none of those that are known.
        """
        if asked is None:
            return self.default
        if asked not in self.versions:
            raise UnknownName("target-version", asked, self.versions, because="known are")
        return asked

    def version_of(self, asked: str | None, of_plan: str) -> str | None:
        """The version to write a plan for: as asked, else the plan's where it is told apart, else the usual one."""
        return self.version(of_plan if asked is None and of_plan in self.versions else asked)

    def has(self, name: str, version: str | None) -> bool:
        """Whether a version has a word. A word that no version has is a mistake of the caller, a ``KeyError``."""
        word = self.words[name]
        if version is None:
            return True
        at = self.versions.index(version)
        after = word.since is None or at >= self.versions.index(word.since)
        return after and (word.until is None or at <= self.versions.index(word.until))

    def lacking(self, name: str, version: str | None) -> str:
        """Why ``has`` is false, in words."""
        word = self.words[name]
        if word.since is not None and not self._reached(word.since, version):
            return f"{name} is there from {word.since} on"
        return f"{name} is gone since {word.until}"

    def _reached(self, since: str, version: str | None) -> bool:
        return version is None or self.versions.index(version) >= self.versions.index(since)


@cache
def words_of(package: str) -> Words:
    """The words of a target's package (``planner.export.megatron_lm``)."""
    found: Mapping[str, object] = read_mapping(files(package) / "words.yaml", "words")
    return build(Words, found, where="words")

"""Frameworks, and the precision and optimizer recipes, by name."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path

from costmodel.catalog import folders
from costmodel.catalog.documents import read_mapping
from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.validation import build
from costmodel.spec.workload import OptimizerRecipe, PrecisionRecipe

# "NeMo 2.0", "megatron-lm core_r0.12", "torchtitan v0.2.2", "megatron-core==0.15"
_VERSION_BEHIND = r"[\s:=@(/_\-]*(?:core_)?[rv]?(?P<version>\d+[.\-]\d(?:[\w.\-]*\w)?)"


def framework_names() -> tuple[str, ...]:
    """Names of the frameworks in the catalog."""
    return folders.names("framework")


def load_framework(name: str, version: str | None = None) -> FrameworkSpec:
    """A framework by its name or one of its aliases, at ``version`` or at the version its file takes as current.

    Raises:
        UnknownName: no such framework, or no such version of it.
        UnreadableFile, InvalidInput: its file is broken (a user's own, in practice).
    """
    asked = name.strip().lower()
    if folders.find("framework", asked) is None:
        called = [spec.name for spec in _all_frameworks() if asked in spec.aliases]
        if not called:
            raise UnknownName("framework", name, framework_names())
        asked = called[0].lower()
    spec = _framework(asked, folders.user_dir())
    return spec if version is None else spec.at(version)


def framework_in_era(
    framework: FrameworkSpec, text: str, family: str, precision: str, sequence_parallel: bool | None, sharded: bool
) -> FrameworkSpec:
    """The framework, or its earlier era where that is what a run shows.

    Args:
        text: what the run calls it; only names that say nothing of a version or a product of today leave it open.
        family: of the accelerator.
        precision: the recipe that the run states.
        sequence_parallel: None when the run can't tell, having no tensor parallelism.
        sharded: whether the run states that its optimizer's state is.
    """
    era, called = framework.earlier, text.strip().lower()
    if era is None or called not in era.names or family not in era.families:
        return framework
    if precision not in era.precisions and not (era.without_sequence_parallel and sequence_parallel is False):
        return framework
    entry = era.named.get(called, era.framework)
    return load_framework(era.sharded.get(called, entry) if sharded else entry)


def recognise_framework(text: str) -> tuple[FrameworkSpec, bool]:
    """The framework that free text names, as people fill in a column of runs: ``torchtitan+torchao (FSDP2)``.

    The longest name or alias that occurs in the text decides, whatever the case of its letters.

    Returns:
        The framework, at the version that follows its name in the text (``NeMo 2.0``) where that is a known one and
        at its current version otherwise, and whether the text names it; else the one that stands in for the rest.

    Raises:
        InvalidInput: no framework of the catalog stands in.
    """
    return _recognised(text.lower(), folders.user_dir())


@lru_cache(maxsize=4096)
def _recognised(lowered: str, _: Path | None) -> tuple[FrameworkSpec, bool]:
    known = _all_frameworks()
    named = [(len(word), spec) for spec in known for word in (spec.name.lower(), *spec.aliases) if word in lowered]
    if named:
        # Between equally long words the first framework of the catalog, so that the answer is always the same.
        return _at_version_in(lowered, max(named, key=lambda pair: pair[0])[1]), True
    standing_in = [spec for spec in known if spec.fallback]
    if not standing_in:
        raise InvalidInput("framework", lowered, "it names none that is known, and none of them has `fallback: true`")
    return standing_in[0], False


def _at_version_in(lowered: str, framework: FrameworkSpec) -> FrameworkSpec:
    """The framework at the version that the text gives right behind any of its names."""
    for word in (framework.name.lower(), *framework.aliases):
        for said in re.finditer(re.escape(word) + _VERSION_BEHIND, lowered):
            # What follows may be another number, of parameters say.
            with suppress(UnknownName):
                return framework.at(said["version"])
    return framework


def _all_frameworks() -> list[FrameworkSpec]:
    return [_framework(name.lower(), folders.user_dir()) for name in framework_names()]


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=128)
def _framework(name: str, user_dir: Path | None) -> FrameworkSpec:
    entry = folders.find("framework", name)
    assert entry is not None, "load_framework looks before it asks"
    return build(FrameworkSpec, read_mapping(entry.file, "framework"), "framework")


@lru_cache(maxsize=1)
def _recipes() -> tuple[dict[str, PrecisionRecipe], dict[str, OptimizerRecipe]]:
    data = read_mapping(resources.files("costmodel.catalog") / "recipes.yaml", "recipes")
    precisions = [build(PrecisionRecipe, row, "precision") for row in data["precisions"]]
    optimizers = [build(OptimizerRecipe, row, "optimizer") for row in data["optimizers"]]
    return {recipe.name: recipe for recipe in precisions}, {recipe.name: recipe for recipe in optimizers}


def load_precision(name: str) -> PrecisionRecipe:
    """A precision recipe by name or alias.

    Raises:
        UnknownName: no such recipe.
    """
    recipes, _ = _recipes()
    called = {alias: recipe for recipe in recipes.values() for alias in (recipe.name, *recipe.aliases)}
    if name.lower() not in called:
        raise UnknownName("precision", name, recipes)
    return called[name.lower()]


def load_optimizer(name: str) -> OptimizerRecipe:
    """An optimizer recipe by name.

    Raises:
        UnknownName: no such recipe.
    """
    _, recipes = _recipes()
    if name.lower() not in recipes:
        raise UnknownName("optimizer", name, recipes)
    return recipes[name.lower()]


def optimizer_recipes() -> tuple[OptimizerRecipe, ...]:
    """All of them, in the order of the file."""
    return tuple(_recipes()[1].values())

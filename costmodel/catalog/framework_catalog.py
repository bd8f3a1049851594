"""Frameworks, and the precision and optimizer recipes, by name."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

from costmodel.catalog.documents import read_mapping
from costmodel.errors import UnknownName
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.validation import build
from costmodel.spec.workload import OptimizerRecipe, PrecisionRecipe


def _folder() -> Traversable:
    return resources.files("costmodel.catalog") / "frameworks"


def framework_names() -> tuple[str, ...]:
    """Names of the frameworks whose rules are known."""
    return tuple(
        sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if entry.name.endswith(".yaml"))
    )


@lru_cache(maxsize=32)
def load_framework(name: str, version: str | None = None) -> FrameworkSpec:
    """A framework at ``version``, or at the version its file takes as current.

    Raises:
        UnknownName: no such framework, or no such version of it.
    """
    known = {known.lower(): known for known in framework_names()}
    if name.lower() not in known:
        raise UnknownName("framework", name, known.values())
    file = _folder() / f"{known[name.lower()]}.yaml"
    spec = build(FrameworkSpec, read_mapping(file, "framework"), "framework")
    return spec if version is None else spec.at(version)


@lru_cache(maxsize=1)
def _recipes() -> tuple[dict[str, PrecisionRecipe], dict[str, OptimizerRecipe]]:
    data = read_mapping(resources.files("costmodel.catalog") / "recipes.yaml", "recipes")
    precisions = [build(PrecisionRecipe, row, "precision") for row in data["precisions"]]
    optimizers = [build(OptimizerRecipe, row, "optimizer") for row in data["optimizers"]]
    return {recipe.name: recipe for recipe in precisions}, {recipe.name: recipe for recipe in optimizers}


def load_precision(name: str) -> PrecisionRecipe:
    """A precision recipe by name.

    Raises:
        UnknownName: no such recipe.
    """
    recipes, _ = _recipes()
    if name.lower() not in recipes:
        raise UnknownName("precision", name, recipes)
    return recipes[name.lower()]


def load_optimizer(name: str) -> OptimizerRecipe:
    """An optimizer recipe by name.

    Raises:
        UnknownName: no such recipe.
    """
    _, recipes = _recipes()
    if name.lower() not in recipes:
        raise UnknownName("optimizer", name, recipes)
    return recipes[name.lower()]

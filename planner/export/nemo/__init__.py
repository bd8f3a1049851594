"""NeMo 2: overrides of a recipe on NeMo-Run's command line, out and in."""

from planner.export.nemo.target import TARGET

__all__ = ["TARGET"]

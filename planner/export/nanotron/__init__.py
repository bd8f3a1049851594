"""nanotron: its YAML file, which is the whole of a run."""

from planner.export.nanotron.target import TARGET

__all__ = ["TARGET"]

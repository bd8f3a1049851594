"""torchtitan: a TOML file up to 0.2, a Python recipe from 0.3 on."""

from planner.export.torchtitan.target import TARGET

__all__ = ["TARGET"]

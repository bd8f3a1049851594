"""MaxText: a YAML file over its base.yml, and the module that reads it."""

from planner.export.maxtext.target import TARGET

__all__ = ["TARGET"]

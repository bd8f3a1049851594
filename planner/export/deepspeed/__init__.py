"""DeepSpeed: its JSON file, and the line that starts a script with it."""

from planner.export.deepspeed.target import TARGET

__all__ = ["TARGET"]

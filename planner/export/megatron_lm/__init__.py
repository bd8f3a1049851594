"""Megatron-LM's command line: a launch script, its arguments alone, and back."""

from planner.export.megatron_lm.target import TARGET

__all__ = ["TARGET"]

"""Megatron-Bridge: overrides of a recipe's configuration, out and in."""

from planner.export.megatron_bridge.target import TARGET

__all__ = ["TARGET"]

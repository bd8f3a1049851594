"""Hugging Face Accelerate: a file for ``accelerate launch``, and arguments of a script of Transformers."""

from planner.export.accelerate.target import TARGET

__all__ = ["TARGET"]

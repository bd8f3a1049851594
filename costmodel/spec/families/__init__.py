"""Architectures of Hugging Face configs: a model_type is one small function that returns ModelSpec's fields.

Absent keys mean what the configuration class of that model_type in transformers makes of them.
"""

from __future__ import annotations

from collections.abc import Callable

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families import dense, experts, gpt, hybrid, latent
from costmodel.spec.families.common import Fields

FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    **dense.FAMILIES,
    **experts.FAMILIES,
    **gpt.FAMILIES,
    **hybrid.FAMILIES,
    **latent.FAMILIES,
}

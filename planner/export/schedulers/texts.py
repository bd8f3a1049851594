"""YAML as people write it: keys in the order in which they mean something, scripts as blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks; no anchors for what is there twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # Lists are indented under their keys.
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_of(documents: Sequence[Mapping[str, Any]], heading: str) -> str:
    """The documents, below a comment of one line."""
    texts = [
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120) for document in documents
    ]
    return f"# {heading}\n" + "---\n".join(texts)

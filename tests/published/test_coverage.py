"""docs/fidelity.md says of every accelerator what its predictions rest on."""

from __future__ import annotations

from pathlib import Path

from tests.published.coverage import table

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "fidelity.md"


def test_the_document_has_the_table_as_it_is_today() -> None:
    """``python -m tests.published.coverage`` prints it."""
    assert table() in DOCUMENT.read_text(encoding="utf-8")


def test_every_accelerator_of_the_runs_is_told() -> None:
    for name in ("h100-sxm5-80gb", "mi300x", "gaudi2", "tpu-v6e", "trainium1-neuroncore", "v100-sxm2-32gb"):
        (line,) = (line for line in table().splitlines() if line.startswith(f"| `{name}` |"))
        assert int(line.split("|")[3]) > 0

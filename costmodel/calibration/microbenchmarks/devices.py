"""Which accelerator a measurement is of, by what its file says or by what the user says."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.catalog.accelerator_catalog import load_accelerator
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.errors import InvalidInput
from costmodel.spec.cluster import AcceleratorSpec


@dataclass
class Devices:
    """Accelerators by the names that files have for them.

    Attributes:
        stated: what the user says the devices are of files that don't say; None for nothing.
        notes: what was taken where a name leaves something open.
    """

    stated: str | None = None
    notes: list[str] = field(default_factory=list)

    def named(self, text: str, where: str, option: str) -> AcceleratorSpec:
        """The accelerator that ``text`` names.

        Args:
            where: file and line, ``option``: that the file was given by; for errors.

        Raises:
            InvalidInput: it names none that the catalog has, and the user didn't say either.
            UnknownName: what the user says is no accelerator of the catalog.
        """
        found = recognise_accelerator(text)
        if found.how != "default":
            if found.note and found.note not in self.notes:
                self.notes.append(found.note)
            return found.accelerator
        if self.stated is not None:
            return load_accelerator(self.stated)
        said = f"its device {text!r} is none that the catalog knows" if text.strip() else "it names no device"
        raise InvalidInput(option, where, f"{said}: say which it is with --accelerator")

"""Which accelerator a measurement is of, by what its file says or by what the user says."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.catalog.accelerator_catalog import compact, load_accelerator
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.catalog.typical_clusters import typical_cluster
from costmodel.errors import InvalidInput
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec


@dataclass
class Devices:
    """Accelerators by the names that files have for them.

    Attributes:
        stated: what the user says the devices are of files that don't say; None for nothing.
        cluster: what the user says was measured, whose devices need not be in the catalog.
        notes: what was taken where a name leaves something open.
    """

    stated: str | None = None
    cluster: ClusterSpec | None = None
    notes: list[str] = field(default_factory=list)

    def named(self, text: str, where: str, option: str) -> AcceleratorSpec:
        """The accelerator that ``text`` names.

        Args:
            where: file and line, ``option``: that the file was given by; for errors.

        Raises:
            InvalidInput: it names none that the catalog has, and the user didn't say either.
            UnknownName: what the user says is no accelerator of the catalog.
        """
        if self.cluster is not None and compact(text) == compact(self.cluster.accelerator.name):
            return self.cluster.accelerator
        found = recognise_accelerator(text)
        if found.how != "default":
            if found.note and found.note not in self.notes:
                self.notes.append(found.note)
            return found.accelerator
        if self.stated is not None:
            return load_accelerator(self.stated)
        said = f"its device {text!r} is none that the catalog knows" if text.strip() else "it names no device"
        raise InvalidInput(option, where, f"{said}: say which it is with --accelerator")

    def place_of(self, accelerator: AcceleratorSpec) -> ClusterSpec:
        """The cluster that the devices sit in: the one that was measured, if it is of them, else the usual one."""
        if self.cluster is not None and self.cluster.accelerator == accelerator:
            return self.cluster
        return typical_cluster(accelerator)

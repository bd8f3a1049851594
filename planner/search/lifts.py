"""Which of a user's wishes have to be lifted, and which together, for some plan to be legal and to fit.

Every mesh, with some of the wishes on what varies inside it lifted, goes against a set of wishes. Sets are looked at
from the smallest on, and one of which some mesh holds a plan ends the search above it. So what is found are all the
smallest sets, and that each suffices was seen on a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.facts import Facts
from costmodel.table import mesh_size
from planner.search.constraints import Contradiction
from planner.search.eliminate import eliminate
from planner.search.may_fit import may_fit
from planner.search.request import SearchRequest
from planner.search.space import Columns
from planner.search.unfit import unfit_meshes
from planner.search.wishes import MIN_FREE, Wish, keeping, without_free_memory

_MOST_INNER = 4
_FIRST_MESHES = 500
_MESHES_AT_ONCE = 20_000

Late = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Lift:
    """Wishes that suffice to be lifted together, and a mesh of which then some plan is legal and fits."""

    wishes: frozenset[str]
    mesh: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Lifts:
    """All smallest sets of wishes to lift; ``complete`` unless the time was up before."""

    found: tuple[Lift, ...]
    complete: bool


def lifts_of(
    request: SearchRequest,
    facts: Facts,
    wishes: Sequence[Wish],
    meshes: Columns,
    heeded: dict[str, Bools],
    late: Late,
) -> Lifts:
    """The smallest sets of wishes to lift.

    Args:
        meshes, heeded: as of ``every_mesh``.
    """
    return _Lifting(request, facts, wishes, meshes, heeded, late).run()


class _Lifting:
    def __init__(
        self,
        request: SearchRequest,
        facts: Facts,
        wishes: Sequence[Wish],
        meshes: Columns,
        heeded: dict[str, Bools],
        late: Late,
    ) -> None:
        self.request, self.facts, self.meshes, self.late = request, facts, meshes, late
        self.wishes = {wish.name: wish for wish in wishes}
        inner = [wish.name for wish in wishes if wish.name not in heeded]
        # Beyond a few they are lifted together: each doubles what is to be looked at.
        self.inner = [frozenset([name]) for name in inner[: _MOST_INNER - 1]]
        if inner[_MOST_INNER - 1 :]:
            self.inner.append(frozenset(inner[_MOST_INNER - 1 :]))
        self.outer = list(heeded)
        self.against = np.zeros(len(meshes["tp"]), dtype=np.int64)
        for place, name in enumerate(self.outer):
            self.against |= np.where(heeded[name], 0, 1 << place)

    def run(self) -> Lifts:
        everything = frozenset(self.wishes)
        # What heeds every wish was searched already.
        any_lifted = np.arange(len(self.against)) if self.inner else np.flatnonzero(self.against)
        if not everything or self._plan_in(any_lifted, frozenset().union(*self.inner)) is None:
            return Lifts(found=(), complete=not self.late())
        found: list[Lift] = []
        for lifted, meshes in self._sets():
            if any(one.wishes <= lifted for one in found):
                continue
            if self.late():
                return Lifts(found=tuple(found), complete=False)
            mesh = self._plan_in(meshes, lifted & frozenset().union(*self.inner))
            if mesh is not None:
                found.append(Lift(wishes=lifted, mesh=mesh))
        return Lifts(found=tuple(found), complete=not self.late())

    def _sets(self) -> Iterator[tuple[frozenset[str], Ints]]:
        """Every set of wishes that some mesh goes against, smallest first, with its meshes."""
        codes, which = np.unique(self.against, return_inverse=True)
        of_code = [
            frozenset(name for place, name in enumerate(self.outer) if code >> place & 1) for code in codes.tolist()
        ]
        inside = [
            frozenset[str]().union(*some)
            for count in range(len(self.inner) + 1)
            for some in combinations(self.inner, count)
        ]
        pairs = sorted(
            product(range(len(of_code)), inside), key=lambda pair: (len(of_code[pair[0]] | pair[1]), pair[0])
        )
        for place, lifted in pairs:
            if of_code[place] | lifted:
                yield of_code[place] | lifted, np.flatnonzero(which == place)

    def _plan_in(self, meshes: Ints, lifted: frozenset[str]) -> dict[str, int] | None:
        """The first of some meshes that has a legal plan that fits, with these wishes on what is inside lifted."""
        kept = [wish for name, wish in self.wishes.items() if wish.inner and name not in lifted]
        request = keeping(self.request, kept)
        if MIN_FREE in {self.wishes[name].kind for name in lifted}:
            request = without_free_memory(request)
        # Most devices first, and of these what usually needs the least memory.
        cut, size_of = self.meshes["tp"] * self.meshes["pp"], mesh_size(self.meshes)
        order = meshes[np.lexsort((-cut[meshes], self.meshes["micro_batch_size"][meshes], -size_of[meshes]))]
        start, size = 0, _FIRST_MESHES
        while start < len(order):
            if self.late():
                return None
            some = {axis: column[order[start : start + size]] for axis, column in self.meshes.items()}
            try:
                found = first_with_a_plan(request, self.facts, some, self.late)
            except Contradiction:
                return None
            if found is not None:
                return {axis: int(column[found]) for axis, column in some.items()}
            start, size = start + size, min(4 * size, _MESHES_AT_ONCE)
        return None


def first_with_a_plan(request: SearchRequest, facts: Facts, meshes: Columns, late: Late) -> int | None:
    """The place of a mesh of which some plan is legal and fits; None where there is none.

    Raises:
        Contradiction: pins and forbids leave some axis without a value.
    """
    usable = float(request.scenario.usable_bytes)
    legal = np.flatnonzero(eliminate(request, meshes).legal)
    if not len(legal):
        return None
    columns = {axis: column[legal] for axis, column in meshes.items()}
    possible = may_fit(request, facts, columns, usable)
    start, size = 0, 50
    at = np.flatnonzero(possible)
    while start < len(at):
        some = at[start : start + size]
        taken = {axis: column[some] for axis, column in columns.items()}
        unfit = unfit_meshes(request, facts, taken, usable, late)
        if unfit is None:
            return None
        if not unfit.all():
            return int(legal[some[int(np.flatnonzero(~unfit)[0])]])
        start, size = start + size, 4 * size
    return None

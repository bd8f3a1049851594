"""All outputs of all terms for the plans of a table, each worked out once it is asked for.

A term is evaluated once per distinct tuple of the axes that it declares, and gathered to the rows. Who asks for memory
alone so pays for no collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from costmodel.arrays import Ints, Num, Ranks, distinct_ranks, is_constant, num, ranks
from costmodel.facts import Facts
from costmodel.table import PlanTable
from costmodel.terms.activations import ACTIVATIONS, AGAIN, COMMUNICATORS
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import CONTEXT_PARALLEL, PIPELINE_PARALLEL, TENSOR_PARALLEL
from costmodel.terms.data_parallel import DATA_PARALLEL, SHARDS
from costmodel.terms.ends import ENDS
from costmodel.terms.expert_parallel import EXPERT_PARALLEL
from costmodel.terms.host import HOST
from costmodel.terms.matrix_optimizer import MATRIX_OPTIMIZER
from costmodel.terms.mlp import DENSE_MLP, EXPERTS
from costmodel.terms.quantisation import QUANTISATION_PASSES
from costmodel.terms.state import PARAMETERS
from costmodel.terms.term import Axes, Outputs, Term

TERMS: tuple[Term, ...] = (
    ATTENTION,
    DENSE_MLP,
    EXPERTS,
    ENDS,
    HOST,
    TENSOR_PARALLEL,
    CONTEXT_PARALLEL,
    EXPERT_PARALLEL,
    PIPELINE_PARALLEL,
    DATA_PARALLEL,
    SHARDS,
    PARAMETERS,
    ACTIVATIONS,
    AGAIN,
    COMMUNICATORS,
    QUANTISATION_PASSES,
    MATRIX_OPTIMIZER,
)

_TERM_OF: Mapping[str, Term] = {name: term for term in TERMS for name in term.gives}


def evaluate_terms(f: Facts, table: PlanTable) -> Outputs:
    """All outputs of all terms as columns of the table."""
    return _TermOutputs(f, table)


class _TermOutputs(Mapping[str, Num]):
    """What is asked for, by name."""

    def __init__(self, f: Facts, table: PlanTable) -> None:
        self._f, self._table = f, table
        # Facts are columns: every row is a case of its own.
        self._row_by_row = f.work.seq_len.ndim > 0
        self._columns: dict[str, Num] = {}
        self._outputs: dict[str, Outputs] = {}
        self._ranks: dict[str, Ranks] = {}
        self._tuples: dict[tuple[str, ...], tuple[Ints, Ints]] = {}
        self._tuples_of: dict[str, tuple[Ints, Ints]] = {}

    def __getitem__(self, name: str) -> Num:
        column = self._columns.get(name)
        if column is None:
            term = _TERM_OF[name]
            column = self._of(term)[name]
            if not self._row_by_row:
                first, inverse = self._distinct(term)
                column = (column if column.shape == first.shape else np.broadcast_to(column, first.shape))[inverse]
            self._columns[name] = column
        return column

    def __iter__(self) -> Iterator[str]:
        for term in TERMS:
            yield from self._of(term)

    def __len__(self) -> int:
        return sum(len(self._of(term)) for term in TERMS)

    def _of(self, term: Term) -> Outputs:
        """The outputs of one term on its distinct tuples."""
        found = self._outputs.get(term.name)
        if found is None:
            columns = {axis: self._table[axis] for axis in term.axes}
            if not self._row_by_row:
                first, _ = self._distinct(term)
                columns = {axis: column[first] for axis, column in columns.items()}
            found = term.evaluate(self._f, Axes({axis: num(column) for axis, column in columns.items()}))
            self._outputs[term.name] = found
        return found

    def _distinct(self, term: Term) -> tuple[Ints, Ints]:
        """The first row of each distinct tuple of the term's axes, and the tuple of every row."""
        found = self._tuples_of.get(term.name)
        if found is None:
            found = self._tuples_of[term.name] = self._distinct_in(term)
        return found

    def _distinct_in(self, term: Term) -> tuple[Ints, Ints]:
        # A constant column tells no rows apart.
        axes = tuple(axis for axis in term.axes if not is_constant(self._table[axis])) or term.axes[:1]
        if axes not in self._tuples:
            for axis in axes:
                if axis not in self._ranks:
                    self._ranks[axis] = ranks(self._table[axis])
            self._tuples[axes] = distinct_ranks([self._ranks[axis] for axis in axes])
        return self._tuples[axes]

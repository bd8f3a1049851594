"""Options of plans in a search: which combinations are tried, and what they are in the columns of rows.

Options are the usual ones unless a pin or a forbid speaks of them, or the framework's plans differ in them by default.
All that are not usual form one axis, ``options``, so that neither rows nor the solver carry a column for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.rules import Rule
from costmodel.spec.options import BY_NAME, OPTION_NAMES, OPTIONS, Option
from planner.search.request import SearchRequest
from planner.search.space import recompute_policies

USUAL = -1
"""In a combination: the option is the usual one of its row."""


def _domain(request: SearchRequest, option: Option) -> tuple[int, ...]:
    also = tuple(code for name, code in request.also if name == option.name)
    if request.constraints.touches(option.name):
        return request.constraints.needed(option.name, (*option.codes, *also))
    return tuple(dict.fromkeys((USUAL, *also)))


@lru_cache(maxsize=256)
def option_choices(request: SearchRequest) -> tuple[tuple[int, ...], ...]:
    """The combinations that are tried: a code, or ``USUAL``, for each of ``OPTIONS``."""
    return tuple(product(*(_domain(request, option) for option in OPTIONS)))


@lru_cache(maxsize=256)
def policies(request: SearchRequest) -> tuple[tuple[int, int], ...]:
    """Every recompute policy with every combination of options, the policies that recompute least first."""
    return tuple(product(recompute_policies(request), range(len(option_choices(request)))))


def policy_columns(request: SearchRequest, places: Ints) -> tuple[Ints, Ints]:
    """(recompute, options) of places among ``policies``."""
    pairs = np.array(policies(request), dtype=np.int64).reshape(-1, 2)
    return pairs[places, 0], pairs[places, 1]


def option_columns(
    request: SearchRequest, columns: Mapping[str, Ints], names: tuple[str, ...] = OPTION_NAMES
) -> dict[str, Ints]:
    """The named options of rows that have ``options`` and whatever the usual ones follow from."""
    choices = option_choices(request)
    found: dict[str, Ints] = {}
    for name in names:
        place = OPTION_NAMES.index(name)
        codes = [choice[place] for choice in choices]
        usual = BY_NAME[name].usual_of(columns)
        if set(codes) == {USUAL}:
            found[name] = usual
        else:
            own = np.array(codes, dtype=np.int64)[columns["options"]]
            found[name] = np.asarray(np.where(own == USUAL, usual, own), dtype=np.int64)
    return found


def axes_read(rule: Rule) -> tuple[str, ...]:
    """The axes of the search that decide about a rule: options stand as one axis, with what they follow from."""
    found: list[str] = []
    for axis in rule.axes:
        found += ["options", *BY_NAME[axis].reads] if axis in BY_NAME else [axis]
    return tuple(dict.fromkeys(found))


def holds(request: SearchRequest, rule: Rule, columns: Mapping[str, Ints]) -> Bools:
    """Whether a rule holds on columns of the axes that ``axes_read`` names."""
    named = tuple(axis for axis in rule.axes if axis in BY_NAME)
    known = {**columns, **option_columns(request, columns, named)} if named else columns
    return rule.holds(request.scenario, known)

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
from costmodel.spec.options import BY_NAME, CHOICE_NAMES, CHOICES, Option
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE
from costmodel.usual_options import tried_options_in, usual_codes, usual_options_in
from planner.search.constraints import Contradiction
from planner.search.request import SearchRequest
from planner.search.space import recompute_policies

USUAL = -1
"""In a combination: the option is the usual one of its row."""


def _domain(request: SearchRequest, option: Option) -> tuple[int, ...]:
    also = tuple(code for name, code in request.also if name == option.name)
    if request.constraints.touches(option.name):
        return request.constraints.needed(option.name, (*option.codes, *also))
    usual = usual_options_in(request.scenario).get(option.name, USUAL)
    return tuple(dict.fromkeys((usual, *also, *_offered(request, option))))


def _offered(request: SearchRequest, option: Option) -> tuple[int, ...]:
    """What the framework's plans differ in by default.

    Parameters that stay to the end of the step; those that stay to the backward pass are stage 2 where FSDP has both.
    Gradients that its pipelines reduce once a step.
    """
    framework = request.scenario.framework
    if option.name == "reshard_after" and "step" in (framework.known_reshard_after() or ()):
        return (option.encode("step"),)
    if option.name == "gradient_sync" and framework.pipelines_reduce_once:
        return (option.encode("step"),)
    return tried_options_in(request.scenario).get(option.name, ())


@lru_cache(maxsize=256)
def option_choices(request: SearchRequest) -> tuple[tuple[int, ...], ...]:
    """The combinations that are tried: a code, or ``USUAL``, for each of ``CHOICES``."""
    return tuple(product(*(_domain(request, option) for option in CHOICES)))


def offloads(request: SearchRequest) -> tuple[int, ...]:
    """Codes of what plans of the search may keep with the hosts, ``none`` among them where they need not."""
    place, usual = CHOICE_NAMES.index("offload"), int(BY_NAME["offload"].encode("none"))
    codes = (choice[place] for choice in option_choices(request))
    return tuple(dict.fromkeys(usual if code == USUAL else code for code in codes))


@lru_cache(maxsize=256)
def policies(request: SearchRequest) -> tuple[tuple[int, int], ...]:
    """Every recompute policy with every combination of options, the policies that recompute least first.

    Modules are named under ``selective`` only, and only whole layers are recomputed several at once.

    Raises:
        Contradiction: pins leave none.
    """
    choices, found = option_choices(request), list[tuple[int, int]]()
    modules, interval = CHOICE_NAMES.index("recompute_modules"), CHOICE_NAMES.index("recompute_interval")
    for policy, place in product(recompute_policies(request), range(len(choices))):
        names = choices[place][modules] not in (USUAL, 0)
        several = choices[place][interval] not in (USUAL, 1)
        if (policy == RECOMPUTE_SELECTIVE or not names) and (policy == RECOMPUTE_FULL or not several):
            found.append((policy, place))
    if not found:
        said = "recompute_modules go with recompute=selective, recompute_interval with recompute=full"
        raise Contradiction("pin", request.constraints.describe(), said)
    return tuple(found)


def policy_columns(request: SearchRequest, places: Ints) -> tuple[Ints, Ints]:
    """(recompute, options) of places among ``policies``."""
    pairs = np.array(policies(request), dtype=np.int64).reshape(-1, 2)
    return pairs[places, 0], pairs[places, 1]


def option_columns(
    request: SearchRequest, columns: Mapping[str, Ints], names: tuple[str, ...] = CHOICE_NAMES
) -> dict[str, Ints]:
    """The named options of rows that have ``options`` and whatever the usual ones follow from."""
    choices, alike, shape = option_choices(request), _alike(request), _shape(columns)
    found: dict[str, Ints] = {}
    for name in names:
        place = CHOICE_NAMES.index(name)
        if name in alike:
            found[name] = np.broadcast_to(np.int64(alike[name]), shape)
        elif all(choice[place] == USUAL for choice in choices):
            found[name] = usual_codes(request.scenario, columns, (name,))[name]
        else:
            codes = [choice[place] for choice in choices]
            own = np.array(codes, dtype=np.int64)[columns["options"]]
            # What the usual one follows from is there only where some plan has it.
            usual = usual_codes(request.scenario, columns, (name,))[name] if USUAL in codes else own
            found[name] = np.asarray(np.where(own == USUAL, usual, own), dtype=np.int64)
    return found


@lru_cache(maxsize=256)
def _alike(request: SearchRequest) -> Mapping[str, int]:
    """The options that all plans of the search have alike, whatever else these are, with their codes."""
    found: dict[str, int] = {}
    usual = usual_options_in(request.scenario)
    for place, option in enumerate(CHOICES):
        codes = {choice[place] for choice in option_choices(request)}
        if len(codes) == 1 and codes != {USUAL}:
            found[option.name] = codes.pop()
        elif codes == {USUAL} and not callable(option.usual):
            found[option.name] = usual.get(option.name, option.usual)
    return found


def _shape(columns: Mapping[str, Ints]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(column) for column in columns.values()))


def axes_read(request: SearchRequest, rule: Rule) -> tuple[str, ...]:
    """The axes of the search that decide about a rule.

    Options stand as one axis, with what the usual ones follow from; one that all plans have alike decides nothing.
    """
    found: list[str] = []
    for axis in rule.axes:
        if axis not in BY_NAME:
            found.append(axis)
            continue
        codes = {choice[CHOICE_NAMES.index(axis)] for choice in option_choices(request)}
        found += ["options"] if len(codes) > 1 else []
        found += BY_NAME[axis].reads if USUAL in codes else ()
    return tuple(dict.fromkeys(found))


def is_asked(request: SearchRequest, rule: Rule) -> bool:
    """Whether a rule on some option can fail at all: not where no plan of the search has another than the usual one."""
    if rule.asked_for is None:
        return True
    place = CHOICE_NAMES.index(rule.asked_for)
    return any(choice[place] != USUAL for choice in option_choices(request))


def holds(request: SearchRequest, rule: Rule, columns: Mapping[str, Ints]) -> Bools:
    """Whether a rule holds on columns of the axes that ``axes_read`` names."""
    named = tuple(axis for axis in rule.axes if axis in BY_NAME)
    known = {**columns, **option_columns(request, columns, named)} if named else columns
    return rule.holds(request.scenario, known)

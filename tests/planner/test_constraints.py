"""Pins and forbids as people type them: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import pytest

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.options import BY_NAME
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES
from planner.search.constraints import ALIASES, KEYS, NUMBERS, Constraints, Contradiction


def allowed(axis: str, *, pins: tuple[str, ...] = (), forbids: tuple[str, ...] = (), upto: int = 20) -> set[int]:
    parsed = Constraints.parse(pins, forbids)
    return {value for value in range(upto + 1) if parsed.allows(axis, value)}


def refused(*, pins: tuple[str, ...] = (), forbids: tuple[str, ...] = ()) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        Constraints.parse(pins, forbids)
    return caught.value


# -- what a condition means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("tp=8", {8}),
        ("tp=1,2,8", {1, 2, 8}),
        ("tp=8,8", {8}),
        ("tp=4..7", {4, 5, 6, 7}),
        ("tp=7..7", {7}),
        ("tp=18..", {18, 19, 20}),
        ("tp=1,18..", {1, 18, 19, 20}),
        (" TP = 3 , 5..6 ", {3, 5, 6}),
    ],
)
def test_a_pin_leaves_what_it_names_and_a_forbid_everything_else(text: str, values: set[int]) -> None:
    assert allowed("tp", pins=(text,)) == values
    assert allowed("tp", forbids=(text,)) == set(range(21)) - values


def test_a_range_without_a_low_end_starts_at_the_smallest_value() -> None:
    assert allowed("pp", pins=("pp=..3",)) - {0} == {1, 2, 3}


def test_an_axis_without_conditions_is_free() -> None:
    parsed = Constraints.parse(["tp=8"], ["pp=4"])
    assert all(parsed.allows("cp", value) for value in range(1, 100))
    assert not parsed.touches("cp")
    assert parsed.touches("tp")
    assert parsed.touches("pp")
    assert Constraints.parse([], []).domain("tp", [1, 2, 4]) == (1, 2, 4)


def test_conditions_on_one_axis_hold_together() -> None:
    assert allowed("pp", pins=("pp=2,4,8", "pp=4..")) == {4, 8}
    assert allowed("pp", pins=("pp=2,4,8", "pp=4,8,16")) == {4, 8}
    assert allowed("pp", pins=("pp=2..10",), forbids=("pp=3..9",)) == {2, 10}


@pytest.mark.parametrize(
    ("axis", "words"), [("recompute", RECOMPUTES), ("schedule", SCHEDULES), ("cp_comm_type", CP_COMM_TYPES)]
)
def test_axes_of_words_take_every_word_of_theirs_in_any_case(axis: str, words: tuple[str, ...]) -> None:
    for code, word in enumerate(words):
        assert allowed(axis, pins=(f"{axis}={word.upper()}",), upto=len(words) - 1) == {code}
    both = f"{axis}={words[0]},{words[1]}"
    assert allowed(axis, forbids=(both,), upto=len(words) - 1) == set(range(2, len(words)))


def test_every_axis_of_numbers_can_be_pinned() -> None:
    for axis in NUMBERS:
        assert allowed(axis, pins=(f"{axis}=2",)) == {2}


@pytest.mark.parametrize(
    ("alias", "axis"),
    [
        ("mbs", "micro_batch_size"),
        ("micro-batch-size", "micro_batch_size"),
        ("micro_batch", "micro_batch_size"),
        ("microbatches", "num_microbatches"),
        ("zero", "zero_stage"),
        ("Zero-Stage", "zero_stage"),
        ("devices", "devices_used"),
    ],
)
def test_other_spellings_of_an_axis(alias: str, axis: str) -> None:
    assert allowed(axis, pins=(f"{alias}=2",)) == {2}


def test_an_alias_of_an_axis_of_words() -> None:
    assert allowed("cp_comm_type", pins=("cp-comm=a2a",), upto=2) == {CP_COMM_TYPES.index("a2a")}


def test_every_alias_leads_to_an_axis() -> None:
    assert set(ALIASES.values()) <= set(KEYS)


def test_zero_stage_zero_means_nothing_is_sharded() -> None:
    assert allowed("zero_stage", pins=("zero_stage=0",), upto=3) == {0}


def test_pins_may_name_values_outside_the_default_space_and_ranges_do_not_add_any() -> None:
    assert Constraints.parse(["tp=3,4"], []).domain("tp", [1, 2, 4, 8]) == (3, 4)
    assert Constraints.parse(["tp=3..5"], []).domain("tp", [1, 2, 4, 8]) == (4,)
    assert Constraints.parse(["tp=3,4"], ["tp=3"]).domain("tp", [1, 2, 4, 8]) == (4,)


def test_the_texts_about_an_axis_are_kept_as_given() -> None:
    parsed = Constraints.parse(["tp=2,4", "pp=1"], ["tp=4"])
    assert parsed.describe("tp") == "--pin tp=2,4 --forbid tp=4"
    assert parsed.describe("cp") == ""


# -- contradictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pins", "forbids"),
    [
        (("tp=2", "tp=4"), ()),
        (("tp=2",), ("tp=2",)),
        (("tp=2,4",), ("tp=1..4",)),
        (("tp=4..8", "tp=2"), ()),
        (("tp=9..", "tp=..8"), ()),
    ],
)
def test_conditions_that_leave_nothing_are_read_and_told_where_a_value_is_needed(
    pins: tuple[str, ...], forbids: tuple[str, ...]
) -> None:
    parsed = Constraints.parse(pins, forbids)
    assert parsed.domain("tp", [1, 2, 4, 8]) == ()
    with pytest.raises(Contradiction) as caught:
        parsed.needed("tp", [1, 2, 4, 8])
    for text in (*pins, *forbids, "leaves tp without a value", "1, 2, 4, 8"):
        assert text in str(caught.value)


@pytest.mark.parametrize("axis", ["recompute", "schedule", "cp_comm_type"])
def test_forbidding_every_word_of_an_axis_is_told_with_the_words(axis: str) -> None:
    words = {"recompute": RECOMPUTES, "schedule": SCHEDULES, "cp_comm_type": CP_COMM_TYPES}[axis]
    parsed = Constraints.parse((), tuple(f"{axis}={word}" for word in words))
    with pytest.raises(Contradiction) as caught:
        parsed.needed(axis, range(len(words)))
    error = caught.value
    assert error.field == "forbid"
    assert f"leaves {axis} without a value" in str(error)
    assert all(word in str(error) for word in words)


@pytest.mark.parametrize(
    ("condition", "searched"),
    [
        ("zero_plus=none", "searched are none; others are searched when a pin lists them"),
        ("recompute_modules=usual", "searched are usual; others are searched when a pin lists them"),
        ("moe_capacity_factor=none", "searched are none; others are searched when a pin lists them"),
        ("cp_balanced=true,false", "searched are false, true"),
        ("cp_a2a_degree=2", "plans have what follows from their other axes"),
    ],
)
def test_forbidding_all_values_of_an_option_is_refused_in_words(condition: str, searched: str) -> None:
    axis = condition.partition("=")[0]
    with pytest.raises(InvalidInput) as caught:
        Constraints.parse([], [condition]).needed(axis, BY_NAME[axis].codes)
    assert f"it leaves {axis} without a value; {searched}" in str(caught.value)
    assert not set(caught.value.expected) & set("()")


@pytest.mark.parametrize(
    ("pins", "forbids", "left"),
    [
        (("pp=1..2,8..16",), (), {1, 2, 8, 16}),
        (("pp=3,8..16",), ("pp=3",), {8, 16}),
        (("pp=2,8..16", "pp=4,8..16"), (), {8, 16}),
    ],
)
def test_a_pin_may_join_ranges_and_values(pins: tuple[str, ...], forbids: tuple[str, ...], left: set[int]) -> None:
    assert allowed("pp", pins=pins, forbids=forbids) & {1, 2, 3, 4, 8, 16} == left


# -- texts that say nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pin", "forbid"])
@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("", "KEY=VALUE"),
        ("tp", "KEY=VALUE"),
        ("tp=", "KEY=VALUE"),
        ("tp= ", "KEY=VALUE"),
        ("tp 8", "KEY=VALUE"),
        ("tp:8", "KEY=VALUE"),
        ("tp==8", "whole number"),
        ("tp=eight", "whole number"),
        ("tp=1.5", "whole number"),
        ("tp=-1", "whole number"),
        ("tp=+1", "whole number"),
        ("tp=1e3", "whole number"),
        ("tp=²", "whole number"),
        ("tp=٣", "whole number"),
        ("tp=2,", "whole number"),
        ("tp=,2", "whole number"),
        ("tp=2 4", "whole number"),
        ("tp=4...8", "whole number"),
        ("tp=4..x", "whole number"),
        ("tp=1..2..3", "whole number"),
        ("tp=full", "whole number"),
        ("tp=0", "at least 1"),
        ("pp=0,4", "at least 1"),
        ("mbs=0", "at least 1"),
        ("tp=..", "4.. or 2..8"),
        ("tp=8..4", "4..8"),
    ],
)
def test_malformed_texts_are_refused_with_what_would_be_right(kind: str, text: str, right: str) -> None:
    error = refused(pins=(text,)) if kind == "pin" else refused(forbids=(text,))
    assert error.field == kind
    assert error.value == text
    assert repr(text) in str(error)
    assert right in error.expected


@pytest.mark.parametrize(
    ("text", "value", "nearest"),
    [
        ("recomputation=full", "recomputation", "recompute"),
        ("shedule=1f1b", "shedule", "schedule"),
        ("micro_batchsize=2", "micro_batchsize", "micro_batch_size"),
        ("zero_stge=1", "zero_stge", "zero_stage"),
        ("dp_shards=4", "dp_shards", "dp_shard"),
        ("num_micro_batches=4", "num_micro_batches", "num_microbatches"),
    ],
)
def test_a_misspelt_axis_brings_the_nearest_names(text: str, value: str, nearest: str) -> None:
    error = refused(pins=(text,))
    assert isinstance(error, UnknownName)
    assert error.field == "pin"
    assert error.value == value
    assert nearest in error.nearest
    assert f"did you mean {error.nearest[0]}" in str(error)


def test_a_key_that_is_like_no_axis_brings_the_axes_there_are() -> None:
    error = refused(forbids=("qqqqqq=1",))
    assert error.field == "forbid"
    assert "known: " in error.expected
    assert "micro_batch_size" in error.expected


@pytest.mark.parametrize(
    ("text", "field", "value", "nearest"),
    [
        ("recompute=ful", "pin recompute", "ful", "full"),
        ("recompute=selectiv,none", "pin recompute", "selectiv", "selective"),
        ("schedule=interleaved", "pin schedule", "interleaved", "interleaved_1f1b"),
        ("schedule=1f1b,gpip", "pin schedule", "gpip", "gpipe"),
        ("cp_comm=all-gather", "pin cp_comm_type", "all-gather", "all_gather"),
        ("offload=optimiser", "pin offload", "optimiser", "optimizer"),
        ("zero_plus=qwz+qgs", "pin zero_plus", "qgs", "qgz"),
    ],
)
def test_a_misspelt_word_brings_the_nearest_words(text: str, field: str, value: str, nearest: str) -> None:
    error = refused(pins=(text,))
    assert isinstance(error, UnknownName)
    assert (error.field, error.value) == (field, value)
    assert nearest in error.nearest


@pytest.mark.parametrize("text", ["recompute=3", "recompute=none..full", "schedule=", "recompute=full,"])
def test_axes_of_words_take_no_numbers_ranges_or_blanks(text: str) -> None:
    assert refused(pins=(text,)).field.startswith("pin")


def test_the_first_wrong_text_is_named_though_others_are_right() -> None:
    error = refused(pins=("tp=8", "pp=four", "cp=2"))
    assert error.value == "pp=four"


def test_a_number_beyond_all_reason_is_refused_as_any_other_wrong_text() -> None:
    assert refused(pins=("tp=" + "9" * 5000,)).field == "pin"

"""What a server keeps in memory: bodies that never change, no more of them than there is room for."""

from __future__ import annotations

from api.state import Kind, Recent


def test_ids_of_different_kinds_are_different_things() -> None:
    recent = Recent()

    recent.put(Kind.PLAN, "1", b"a plan")

    assert recent.get(Kind.PLAN, "1") == b"a plan"
    assert recent.get(Kind.SEARCH, "1") is None


def test_what_was_not_used_for_longest_makes_room() -> None:
    recent = Recent(most_bytes=100, largest=60)
    for name in "abc":
        recent.put(Kind.PLAN, name, name.encode() * 30)
    assert recent.get(Kind.PLAN, "a") is not None

    recent.put(Kind.PLAN, "d", b"d" * 30)

    assert [name for name in "abcd" if recent.get(Kind.PLAN, name) is not None] == ["a", "c", "d"]


def test_what_is_put_again_counts_once() -> None:
    recent = Recent(most_bytes=100, largest=60)

    for size in (50, 60, 40):
        recent.put(Kind.PLAN, "a", b"a" * size)
    recent.put(Kind.PLAN, "b", b"b" * 60)

    assert recent.get(Kind.PLAN, "a") == b"a" * 40
    assert recent.get(Kind.PLAN, "b") == b"b" * 60


def test_one_large_body_does_not_push_out_the_others() -> None:
    recent = Recent(most_bytes=100, largest=60)
    recent.put(Kind.PLAN, "a", b"a" * 50)

    recent.put(Kind.SEARCH, "b", b"b" * 61)

    assert recent.get(Kind.PLAN, "a") is not None
    assert recent.get(Kind.SEARCH, "b") is None

"""Of several ranks that fail, the first is told."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from planner.profiling.probe.lines import Lines


def test_one_failure_is_told_however_many_ranks_fail_at_once(tmp_path: Path) -> None:
    lines = Lines(str(tmp_path))
    lines.begin()
    with ThreadPoolExecutor(8) as ranks:
        list(ranks.map(lambda rank: Lines(str(tmp_path)).fail("out_of_memory", rank, "x" * 4000), range(8)))
    (line,) = [json.loads(text) for text in lines.path.read_text().splitlines()]
    assert line["failed"] == "out_of_memory"


def test_a_folder_that_is_used_again_begins_anew(tmp_path: Path) -> None:
    lines = Lines(str(tmp_path))
    for why in ("crash", "out_of_memory"):
        lines.begin()
        lines.fail(why, 0, "")
        (line,) = [json.loads(text) for text in lines.path.read_text().splitlines()]
        assert line["failed"] == why

"""What holds for a whole process: the same answer whatever order sets have in it, and bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_ANSWER = (
    "import json; from tests.planner.test_search import *\n"
    "print(json.dumps(without_clock(answered(request_of(small('tight'), top=20)))))"
)
_LARGEST = (
    "from pathlib import Path\n"
    "from planner.search.answer import answer_of; from planner.search.solve import Search\n"
    "from tests.scenarios import scenario_of; from tests.searches import request_of\n"
    "request = request_of(scenario_of('deepseek-v3', 'dgx-h100', 2**20, 2**14, 4096), max_seconds=8.0)\n"
    "search = Search(request); answer = answer_of(request, search.facts, search.run())\n"
    # The high-water mark of this program alone: ru_maxrss also counts the process that it was forked from.
    "peak = next(line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM'))\n"
    "print(answer['status'], len(answer['plans']), peak.split()[1])"
)


def printed(program: str, root: object, **environment: str) -> str:
    """What a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=str(root),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.strip()


def test_the_order_of_sets_in_a_process_is_no_part_of_the_answer(pytestconfig: pytest.Config) -> None:
    one, other = (printed(_ANSWER, pytestconfig.rootpath, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert '"status": "optimal"' in one
    assert one == other


def test_the_largest_request_stays_below_2_gib(pytestconfig: pytest.Config) -> None:
    status, plans, peak_kib = printed(_LARGEST, pytestconfig.rootpath).split()
    assert status in {"optimal", "feasible"}
    assert int(plans) == 10
    assert int(peak_kib) < 2 * 2**20

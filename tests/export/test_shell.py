"""What a real bash makes of words that were quoted for it, and what schedulers may be told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

from costmodel.errors import InvalidInput
from planner.export.job import SchedulerOptions, time_limit_of
from planner.export.launch import Program
from planner.export.shell import array, comment, exports, plain_name, torchrun, words_of
from tests.export.hostile import HOSTILE

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('NAME')]))"


def read_back(folder: Path, *lines: str) -> list[str]:
    """The words of ARGS, and NAME, as a program gets them from bash."""
    script = "\n".join(["set -euo pipefail", *lines, f'"{sys.executable}" -c "$SHOW" "${{ARGS[@]}}"'])
    done = subprocess.run(["bash", "-c", script], cwd=folder, env={"SHOW": SHOW}, capture_output=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_bash_reads_every_word_back_as_it_was(tmp_path: Path) -> None:
    lines = [*array("ARGS", ["--name", *HOSTILE]), *exports({"NAME": HOSTILE[3]})]
    assert read_back(tmp_path, *lines) == [["--name", *HOSTILE], HOSTILE[3]]
    assert not list(tmp_path.iterdir()), "something was executed"


def test_a_flag_stands_on_a_line_with_its_values_and_other_words_alone() -> None:
    assert array("ARGS", ["--tp", "8", "--swiglu"]) == ["ARGS=(", "    --tp 8", "    --swiglu", ")"]
    assert array("ARGS", ["base.yml", "a=1", "b=x y"]) == ["ARGS=(", "    base.yml", "    a=1", "    'b=x y'", ")"]


@pytest.mark.parametrize("name", HOSTILE)
def test_plain_names_and_comments_hold_nothing_that_means_anything(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*", plain_name(name))
    assert "\n" not in comment(name)


def test_plain_names_are_short_and_do_not_end_in_a_mark() -> None:
    assert plain_name("x" * 59 + "--y") == "x" * 59
    assert plain_name("a...b___c--d") == "a-b-c-d"
    assert plain_name("???", otherwise="job") == "job"


WHERE = {"nodes": '"$NODES"', "rank": '"$RANK"', "address": '"$ADDRESS"', "port": "29500"}


def test_nodes_keep_the_ranks_that_their_scheduler_gave_them() -> None:
    lines = torchrun(Program(launcher="torchrun", script="my script.py"), per_node=8, **WHERE)
    text = " ".join(line.strip(" \\") for line in lines)
    assert '--node-rank "$RANK" --rdzv-backend static --rdzv-endpoint "$ADDRESS":29500' in text
    assert text.endswith("""'my script.py' "${ARGS[@]}" "$@\"""")


def test_torchrun_gets_its_own_marks_as_it_reads_them_back() -> None:
    """What it does to words: distributed/elastic/utils/api.py of torch 2.13."""
    words = ("$$", "$", "$(x)", "$local_rank", "${local_rank}", "$local_ranks", "$$local_rank", "a$$$b")
    told = words_of(Program(launcher="torchrun", script="x.py", arguments=words))
    assert [Template(word).safe_substitute(local_rank="7") for word in told] == ["x.py", *words]
    assert words_of(Program(launcher="python", script="x.py", arguments=words)) == ["x.py", *words]


def test_one_process_a_node_is_told_where_to_meet() -> None:
    lines = torchrun(Program(launcher="python", script="train.py"), per_node=8, **WHERE)
    text = " ".join(line.strip(" \\") for line in lines)
    assert 'JAX_COORDINATOR_IP="$ADDRESS" JAX_COORDINATOR_PORT=29500 NNODES="$NODES" NODE_RANK="$RANK"' in text
    assert "nproc" not in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("36h", 129600),
        ("90m", 5400),
        ("1.5d", 129600),
        ("12:00:00", 43200),
        ("1-12:00:00", 129600),
        ("1-12:30", 131400),
    ],
)
def test_time_limits(text: str, seconds: int) -> None:
    assert time_limit_of(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "soon", "1-", "12:0:0", "-5m", "9" * 400 + "h", "9" * 400 + ":00", "²h"])
def test_time_limits_that_could_mean_anything_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="D-HH:MM:SS"):
        time_limit_of(text)


@pytest.mark.parametrize("field", ["partition", "account", "image", "queue", "topology", "domain_topology"])
@pytest.mark.parametrize("name", [*HOSTILE, "a" * 600])
def test_names_for_schedulers_hold_nothing_that_means_anything(field: str, name: str) -> None:
    with pytest.raises(InvalidInput, match=field.replace("_", "-")):
        SchedulerOptions(**{field: name})


@pytest.mark.parametrize("name", ["a..b", "a.-b", "a-.b", ".a", "a" * 64])
def test_names_for_kubernetes_are_names_of_dns(name: str) -> None:
    """No label of theirs is empty or ends in a dash."""
    SchedulerOptions(queue="a.b-c.d", topology="a.b-c.d/x..y")
    with pytest.raises(InvalidInput, match="queue"):
        SchedulerOptions(queue=name)
    with pytest.raises(InvalidInput, match="topology"):
        SchedulerOptions(topology=f"{name if len(name) < 64 else '-' + name}/x")


def test_usual_names_for_schedulers() -> None:
    SchedulerOptions(
        partition="h100-long,h100",
        account="team_a@lab",
        image="nvcr.io/nvidia/nemo:25.11@sha256:0af",
        queue="user-queue",
        topology="cloud.provider.com/topology-rack",
        domain_topology="nvidia.com/gpu.clique",
        time_limit_s=60,
        restarts=0,
    )


@pytest.mark.parametrize(
    "options", [{"time_limit_s": 59}, {"time_limit_s": 367 * 86400}, {"restarts": -1}, {"restarts": 10**6}]
)
def test_numbers_for_schedulers_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        SchedulerOptions(**options)

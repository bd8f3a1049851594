"""A user's launch command with a plan put in: text for text, no shell, and no name that means nothing."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from costmodel.errors import InvalidInput
from planner.profiling.command_runner import CommandRunner
from planner.profiling.template import Template
from planner.profiling.watching import watch
from tests.export.standing_in import job_of
from tests.profiling.jobs import job_of_two, trial
from tests.scenarios import scenario_of


def test_names_are_replaced_by_text_and_everything_else_is_left(tmp_path: Path) -> None:
    words = ("run", "--tp={tp}x{dp}", "{devices}", "{total_steps}", "{}", "{A}", "a b; $(rm)", "{sequence_parallel}")
    template = Template(argv=(*words, "{folder}/x", "{key}"))
    one = trial(tmp_path)
    template.check(one.job)
    found = template.words(one)
    assert found[:8] == ["run", "--tp=1x2", "2", "3", "{}", "{A}", "a b; $(rm)", "false"]
    assert found[8:] == [f"{one.folder}/x", one.key]


def test_what_the_words_mean_reaches_the_program_as_it_is(tmp_path: Path) -> None:
    script = "import sys; print(sys.argv[1:]); print('step: 1')"
    runner = CommandRunner(Template(argv=(sys.executable, "-c", script, "$(date)", "'{tp} \"", "*"), env={"A": "1"}))
    one = trial(tmp_path)
    watch(runner, one, runner.start(one), hopeless=lambda _: False)
    assert one.log.read_text().splitlines()[0] == str(["$(date)", "'1 \"", "*"])


@pytest.mark.parametrize("word", ["{no_such_axis}", "--x={arguments}"])
def test_names_that_mean_nothing_are_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match=r"command\.argv") as caught:
        Template(argv=("run", word)).check(job_of_two())
    assert "{micro_batch_size}" in str(caught.value)


def test_arguments_of_a_megatron_plan_with_its_environment(tmp_path: Path) -> None:
    job = job_of(scenario_of("llama-3-8b", devices=8, global_batch_size=16), axes={"tp": 2, "dp": 4})
    one = dataclasses.replace(trial(tmp_path), job=job)
    template = Template(argv=("torchrun", "pretrain_gpt.py", "{arguments}", "--mock-data"), env={"NCCL_DEBUG": "WARN"})
    template.check(job)
    words = template.words(one)
    assert words[:2] == ["torchrun", "pretrain_gpt.py"]
    assert words[-1] == "--mock-data"
    assert words[words.index("--tensor-model-parallel-size") + 1] == "2"
    environment = template.environment(one)
    assert environment["NCCL_DEBUG"] == "WARN"
    assert environment["PLANNER_TRIAL_FOLDER"] == str(one.folder)

"""What a study is asked beside its question, checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from costmodel.errors import InvalidInput

RunnerName = Literal["local", "command", "slurm"]
RUNNERS: tuple[RunnerName, ...] = get_args(RunnerName)
END_WITH_THEIR_WORKER = ("local", "command")
"""Runners whose trials don't outlive the worker that started them."""
MOST_TRIALS = 1000
MOST_STEPS = 10_000
MOST_MINUTES = 60 * 24 * 30
LONGEST_STUDY_NAME = 100


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """How trials are run.

    Attributes:
        runner: where: ``local``, ``command`` or ``slurm``.
        trials: how many may be run at most, failed ones included.
        max_minutes: after which the study ends; None for no limit.
        steps, warm_up: of each trial.
        step_timeout_s: a step that takes longer hangs.

    Raises:
        InvalidInput: a value is out of range; the message names its flag.
    """

    runner: str = "local"
    trials: int = 10
    max_minutes: float | None = None
    steps: int = 10
    warm_up: int = 3
    step_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        if self.runner not in RUNNERS:
            raise InvalidInput("runner", self.runner, f"{', '.join(RUNNERS)} are known")
        for field, most, least in (("trials", MOST_TRIALS, 1), ("steps", MOST_STEPS, 1), ("warm_up", MOST_STEPS, 0)):
            if not least <= getattr(self, field) <= most:
                raise InvalidInput(field.replace("_", "-"), getattr(self, field), f"{least} to {most} are expected")
        if self.max_minutes is not None and not 0.0 < self.max_minutes <= MOST_MINUTES:
            raise InvalidInput("max-minutes", self.max_minutes, f"more than 0 and at most {MOST_MINUTES} are expected")
        if not 0.0 < self.step_timeout_s <= 86_400.0:
            raise InvalidInput("step-timeout", self.step_timeout_s, "more than 0 and at most a day of seconds")

    def stored(self) -> dict[str, Any]:
        """As a study's row has it."""
        return asdict(self)

    @classmethod
    def of_stored(cls, given: dict[str, Any]) -> Self:
        """What ``stored`` gave."""
        return cls(**given)


def check_name(name: str) -> str:
    """The name of a study.

    Raises:
        InvalidInput: it is empty, long, or has characters that nobody could type again.
    """
    if not name.strip() or len(name) > LONGEST_STUDY_NAME or not name.isprintable():
        raise InvalidInput("study", name, f"a name of 1 to {LONGEST_STUDY_NAME} printable characters is expected")
    return name

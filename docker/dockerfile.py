"""A Dockerfile read as far as ours needs it: stages of instructions; whatever else it says is an error."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

_KNOWN = frozenset(
    {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "RUN", "USER", "WORKDIR"}
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Broken(Exception):
    """Something that would keep the image from being built, or from working."""


@dataclass(kw_only=True)
class Stage:
    """A ``FROM`` and what follows it: instructions in order, each a word and its text."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, word: str) -> str:
        """The instruction that counts where a later one replaces an earlier one."""
        found = [text for known, text in self.instructions if known == word]
        if not found:
            raise Broken(f"the last stage has no {word}")
        return found[-1]


def stages(path: Path) -> list[Stage]:
    """All stages of a Dockerfile, in order."""
    found: list[Stage] = []
    for line in _logical_lines(path.read_text(encoding="utf-8")):
        word, _, text = line.partition(" ")
        word, text = word.upper(), text.strip()
        if word == "FROM":
            base, *alias = text.split()
            if ":" not in base or base.endswith(":latest"):
                raise Broken(f"FROM {base}: the base has to be pinned by a tag")
            found.append(Stage(base=base, name=alias[1] if len(alias) == 2 and alias[0].upper() == "AS" else ""))
        elif word not in _KNOWN:
            raise Broken(f"{word}: an instruction that this check does not know")
        elif not found:
            raise Broken(f"{word} before the first FROM")
        else:
            found[-1].instructions.append((word, text))
    if not found:
        raise Broken("there is no FROM")
    return found


def pairs(text: str, environment: dict[str, str]) -> dict[str, str]:
    """The names and values of ENV and LABEL, with variables filled in."""
    found: dict[str, str] = {}
    for part in shlex.split(text):
        name, equals, value = part.partition("=")
        if not equals:
            raise Broken(f"{part!r} has no value")
        found[name] = _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], ""), value)
    return found


def command(text: str) -> list[str]:
    """The words of ENTRYPOINT, CMD and a health check, which have to be a JSON list: a shell would swallow signals."""
    try:
        words = json.loads(text)
    except json.JSONDecodeError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Broken(f"{text[:80]}: a JSON list of words is expected")
    return words


def health_check(text: str) -> tuple[list[str], dict[str, float]]:
    """The command of a HEALTHCHECK and its options in seconds."""
    options = {name: float(seconds) for name, seconds in re.findall(r"--([a-z-]+)=(\d+)s?\b", text)}
    _, cmd, words = text.partition(" CMD ")
    if not cmd:
        raise Broken("the health check has no CMD")
    return command(words.strip()), options


def _logical_lines(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()

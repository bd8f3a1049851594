"""Megatron arguments out of a launch script (``--num-layers 80 --swiglu ...``), with its plain variables put in.

Nothing is run: assignments of plain values, ``${NAME:-default}`` and sums or products of whole numbers are read, and
what is left of a variable stays for the reader of the arguments to refuse.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from costmodel.errors import InvalidInput

_ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s(`;]*)\s*(?:[;#].*)?$", re.M
)
_ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)")
_START_OF_ARRAY = re.compile(r"^\w+\+?=\((?=--)")
_END_OF_VALUES = re.compile(r"^[)|&;<>]|^\($|^\w+\+?=\(")
_END_OF_COMMAND = re.compile(r"[;&]")
_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_QUOTED = re.compile(r"^(?:[ \t]*(?:export\s+|local\s+)?([A-Za-z_]\w*)=)(\"[^\"]*\"|'[^']*')[ \t]*$", re.M)
_MOST_DIGITS = 20
# Of a text and of a variable: each doubling of a variable by itself could double it.
_LONGEST = 2**20


@dataclass(frozen=True, kw_only=True)
class Script:
    """Arguments of a launch script.

    Attributes:
        arguments: ``--name`` -> its values with blanks between them, ``True`` without any.
        defaults: ``--name`` -> the variables whose defaults its value stands on.
    """

    arguments: dict[str, str | bool]
    defaults: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


def script_of(text: str, source: str) -> Script:
    """The arguments, and which of them a caller's environment may change.

    Raises:
        InvalidInput: quotes don't match, or there is no argument at all.
    """
    arguments = _read(text, source, with_defaults=True)
    found: dict[str, tuple[str, ...]] = {}
    if ":-" in text or re.search(r"\$\{\w+-", text):
        bare = _read(text, source, with_defaults=False)
        for name, value in arguments.items():
            left = bare.get(name, value)
            if left != value and isinstance(left, str):
                found[name] = tuple(match[1] for match in _VARIABLE.finditer(left) if match[2] is not None)
    return Script(arguments=arguments, defaults={name: names for name, names in found.items() if names})


def arguments_of(text: str, source: str) -> dict[str, str | bool]:
    """Every ``--name value`` of the script; ``True`` for those without a value, the last one where given twice.

    Raises:
        InvalidInput: quotes don't match, or there is no argument at all.
    """
    return script_of(text, source).arguments


def _read(text: str, source: str, *, with_defaults: bool) -> dict[str, str | bool]:
    variables: dict[str, str] = {}
    for name, value in _ASSIGNMENT.findall(text):  # in order: a variable may be made of those before it
        plain = " ".join(re.sub(r"\\\r?\n", " ", value.strip("\"'")).splitlines())
        variables[name] = _filled(plain, variables, with_defaults=with_defaults)
        if len(variables[name]) > _LONGEST:
            raise InvalidInput("model", source, f"its variable {name} grows beyond {_LONGEST} characters")
    arguments: dict[str, str | bool] = {}
    for number, line in _lines(_without_quoted_flags(text)):
        filled = _filled(line, variables, with_defaults=with_defaults)
        if "--" not in filled:
            continue
        if len(filled) > _LONGEST:
            raise InvalidInput("model", source, f"its line {number} grows beyond {_LONGEST} characters")
        try:
            words = shlex.split(filled, comments=True)
        except ValueError as error:
            expected = f"its arguments can't be read: {error}, in what begins on line {number}"
            raise InvalidInput("model", source, expected) from None
        _collect(words, arguments)
    if not arguments:
        raise InvalidInput("model", source, "no --arguments are in it; a file of Megatron arguments is expected")
    _with_leading_dense_layers(arguments, variables)
    return arguments


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash continues, and the number of their first."""
    first, joined = 1, ""
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        yield first, joined + line
        joined = ""
    yield first, joined


def _without_quoted_flags(text: str) -> str:
    """Flags that a variable holds come in where it is used, else they stand for themselves; no line moves."""

    def plain(found: re.Match[str]) -> str:
        name, value = found.groups()
        if "--" not in value:
            return found[0]
        used = re.search(rf"\$\{{?{name}\b", text)
        flags = "" if used else " ".join(re.sub(r"\\\r?\n", " ", value[1:-1]).splitlines())
        return flags + "\n" * found[0].count("\n")

    return _QUOTED.sub(plain, text)


def _collect(words: list[str], arguments: dict[str, str | bool]) -> None:
    name = ""
    values: list[str] = []
    for word in (_START_OF_ARRAY.sub("", word) for word in [*words, "--"]):
        starts, ends = word.startswith("--"), False
        if (starts or _END_OF_VALUES.match(word)) and name:
            arguments[name] = " ".join(values) if values else True
            name, values = "", []
        if starts and len(word) > len("--"):
            flag = _FLAG.match(word)
            name, rest = (flag[0], word[flag.end() :]) if flag else (word, "")
            # What else follows a name at once ends its array or its command: --bf16) and --bf16; are --bf16.
            ends = bool(rest) and not rest.startswith("=")
            values = [rest[1:]] if rest.startswith("=") else []
        elif name:
            values.append(word)
        if values and name:
            value = _END_OF_COMMAND.split(_within_array(values[-1]))[0]
            ends = value != values[-1]
            values[-1] = _within_array(value)
        if ends and name:
            arguments[name] = " ".join(values) if values else True
            name, values = "", []


def _within_array(word: str) -> str:
    """Without the brackets that end an array behind it."""
    while word.endswith(")") and word.count(")") > word.count("("):
        word = word[:-1]
    return word


def _filled(text: str, variables: dict[str, str], *, with_defaults: bool) -> str:
    """The text with variables and then arithmetic put in, as far as they are known."""
    named = _VARIABLE.sub(lambda found: _value(found, variables, with_defaults=with_defaults), text)
    return _ARITHMETIC.sub(lambda found: _computed(found.group(1), variables), named)


def _value(found: re.Match[str], variables: dict[str, str], *, with_defaults: bool) -> str:
    name = found.group(1) or found.group(3)
    default = found.group(2) if with_defaults else None
    return variables.get(name) or (default if default is not None else found.group(0))


def _computed(expression: str, variables: dict[str, str]) -> str:
    """A sum or product of whole numbers and variables, else the expression as it stands."""
    terms = 0
    for term in expression.split("+"):
        product = 1
        for factor in term.split("*"):
            word = factor.strip().lstrip("$").strip("{}")
            value = variables.get(word, word)
            if not _is_count(value):
                named = re.sub(
                    r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda found: variables.get(found[1], found[0]), expression
                )
                return f"$(({named}))"
            product *= int(value)
        terms += product
    return str(terms)


def _is_count(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


def _with_leading_dense_layers(arguments: dict[str, str | bool], variables: dict[str, str]) -> None:
    """A pattern that a script builds in a loop from FIRST_K_DENSE_REPLACE, as DeepSeek's config calls it."""
    pattern, dense = arguments.get("--moe-layer-freq"), variables.get("FIRST_K_DENSE_REPLACE", "")
    layers = arguments.get("--num-layers")
    if (
        isinstance(pattern, str)
        and "$" in pattern
        and _is_count(dense)
        and isinstance(layers, str)
        and _is_count(layers)
    ):
        arguments["--moe-layer-freq"] = f"[0]*{dense}+[1]*{max(0, int(layers) - int(dense))}"

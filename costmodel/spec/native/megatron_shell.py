"""Megatron arguments out of a launch script (``--num-layers 80 --swiglu ...``), with its plain variables put in.

Nothing is run: assignments of plain values, ``${NAME:-default}`` and sums or products of whole numbers are read, and
what is left of a variable stays for the reader of the arguments to refuse.
"""

from __future__ import annotations

import re
import shlex

from costmodel.errors import InvalidInput

_ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s(`;]*)\s*(?:[;#].*)?$", re.M
)
_ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)")
_START_OF_ARRAY = re.compile(r"^\w+\+?=\((?=--)")
_END_OF_VALUES = re.compile(r"^[)|&;<>]|^\($|^\w+\+?=\(")


def arguments_of(text: str, source: str) -> dict[str, str | bool]:
    """Every ``--name value`` of the script; ``True`` for those without a value, the last one where given twice.

    Raises:
        InvalidInput: quotes don't match, or there is no argument at all.
    """
    variables: dict[str, str] = {}
    for name, value in _ASSIGNMENT.findall(text):  # in order: a variable may be made of those before it
        variables[name] = _filled(value.strip("\"'"), variables)
    joined = _filled(re.sub(r"\\\r?\n", " ", text), variables)
    arguments: dict[str, str | bool] = {}
    for line in joined.splitlines():
        if "--" not in line:
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise InvalidInput("model", source, f"its arguments can't be read: {error}") from None
        _collect(words, arguments)
    if not arguments:
        raise InvalidInput("model", source, "no --arguments are in it; a file of Megatron arguments is expected")
    _with_leading_dense_layers(arguments, variables)
    return arguments


def _collect(words: list[str], arguments: dict[str, str | bool]) -> None:
    name = ""
    values: list[str] = []
    for word in (_START_OF_ARRAY.sub("", word) for word in [*words, "--"]):
        starts = word.startswith("--")
        if (starts or _END_OF_VALUES.match(word)) and name:
            arguments[name] = " ".join(values) if values else True
            name, values = "", []
        if starts and len(word) > len("--"):
            name, has_value, value = word.partition("=")
            values = [value] if has_value else []
        elif name:
            values.append(_within_array(word))


def _within_array(word: str) -> str:
    """Without the brackets that end an array behind it."""
    while word.endswith(")") and word.count(")") > word.count("("):
        word = word[:-1]
    return word


def _filled(text: str, variables: dict[str, str]) -> str:
    """The text with variables and then arithmetic put in, as far as they are known."""
    named = _VARIABLE.sub(lambda found: _value(found, variables), text)
    return _ARITHMETIC.sub(lambda found: _computed(found.group(1), variables), named)


def _value(found: re.Match[str], variables: dict[str, str]) -> str:
    name = found.group(1) or found.group(3)
    default = found.group(2)
    return variables.get(name) or (default if default is not None else found.group(0))


def _computed(expression: str, variables: dict[str, str]) -> str:
    """A sum or product of whole numbers and variables, else the expression as it stands."""
    terms = 0
    for term in expression.split("+"):
        product = 1
        for factor in term.split("*"):
            word = factor.strip().lstrip("$").strip("{}")
            value = variables.get(word, word)
            if not value.isdigit():
                return f"$(({expression}))"
            product *= int(value)
        terms += product
    return str(terms)


def _with_leading_dense_layers(arguments: dict[str, str | bool], variables: dict[str, str]) -> None:
    """A pattern that a script builds in a loop from FIRST_K_DENSE_REPLACE, as DeepSeek's config calls it."""
    pattern, dense = arguments.get("--moe-layer-freq"), variables.get("FIRST_K_DENSE_REPLACE", "")
    layers = arguments.get("--num-layers")
    if isinstance(pattern, str) and "$" in pattern and dense.isdigit() and isinstance(layers, str) and layers.isdigit():
        arguments["--moe-layer-freq"] = f"[0]*{dense}+[1]*{max(0, int(layers) - int(dense))}"

"""Settings by their dotted names out of what people have: a TOML file, a Python recipe, or a command line."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from costmodel.catalog.documents import check_extent
from costmodel.errors import InvalidInput, UnreadableFile
from planner.export.dotted import dotted
from planner.export.numbers import whole_number

_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*:?-([^}]*)\}")
# Not in a comment: of Python, of a shell and of TOML alike.
_ARGUMENT = re.compile(r"^(?:[^#\n]*\s)?--[a-z_-]+(?:\.\w|[ =]\w)", re.M)
_PYTHON = re.compile(r"^\s*(?:def |from |import |config\.)", re.M)
_NUMBER = re.compile(r"[+-]?\d+")
_POLICIES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
_SECTIONS = {"ParallelismConfig": "parallelism", "TrainingConfig": "training", "CompileConfig": "compile"}
_LISTS = ("module_fqns_per_model_part",)


@dataclass
class Source:
    """What a text holds.

    Attributes:
        settings: dotted name -> value; ``activation_checkpoint`` is a word, as is every converter.
        is_toml: whether it is of the times of TOML files.
        module, recipe: the model's module and the registered function that a recipe or a command line names.
        constants: whole numbers that a recipe gives a name of its own.
        unread: what could not be understood, each with the reason.
    """

    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    is_toml: bool = False
    module: str | None = None
    recipe: str | None = None
    unread: dict[str, str] = field(default_factory=dict[str, str])
    constants: dict[str, int] = field(default_factory=dict[str, int])


def source_of(text: str) -> Source:
    """What the text holds.

    Raises:
        UnreadableFile: it is none of the three.
    """
    if _ARGUMENT.search(text):
        found = _of_arguments(text)
    elif _PYTHON.search(text):
        found = _of_python(text)
    else:
        found = _of_toml(text)
    if not found.settings and not found.unread:
        expected = "no settings of torchtitan are in it: a TOML file, a recipe or its arguments are expected"
        raise UnreadableFile("from", "torchtitan", expected)
    return found


def _of_toml(text: str) -> Source:
    try:
        data = tomllib.loads(text)
        check_extent(data, len(text))
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFile("from", "torchtitan", f"it is no TOML: {error}") from None
    except RecursionError:
        raise UnreadableFile("from", "torchtitan", "it is nested too deeply") from None
    except ValueError as error:  # a date such as 2026-13-01, a number of too many digits
        raise UnreadableFile("from", "torchtitan", f"it holds an unusable value: {error}") from None
    return Source(settings=dotted(data), is_toml=True)


def _of_arguments(text: str) -> Source:
    """A command line of either time; sections that only one of them has tell which."""
    joined = _VARIABLE.sub(lambda found: found.group(1), re.sub(r"\\\r?\n", " ", text))
    try:
        words = shlex.split(joined, comments=True)
    except ValueError as error:
        raise InvalidInput("from", "torchtitan", f"its arguments can't be read: {error}") from None
    found = Source()
    for name, values in _pairs(words):
        path = name.replace("-", "_")
        if path in ("module", "config"):
            value = values[0] if values else None
            found.module, found.recipe = (value, found.recipe) if path == "module" else (found.module, value)
        elif "." not in path:
            continue  # the launcher's
        elif "$" in "".join(values):
            found.unread[path] = "it has a variable whose value is not in the text"
        else:
            section, _, key = path.rpartition(".")
            negated = key.startswith("no_") and not values
            name = f"{section}.{key.removeprefix('no_')}" if negated else path
            found.settings[name] = False if negated else _argument(key, values)
    for word in words:
        policy = word.removeprefix("activation-checkpoint:")
        if policy != word:
            found.settings["activation_checkpoint"] = policy.replace("-", "_")
    found.is_toml = any(name.startswith(("model.", "job.", "activation_checkpoint.mode")) for name in found.settings)
    return found


def _pairs(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    name: str | None = None
    values: list[str] = []
    for word in [*words, "--"]:
        if word.startswith("--") or word.startswith("activation-checkpoint:"):
            if name is not None:
                yield name, values
            name, values = None, []
            if len(word) > len("--") and word.startswith("--"):
                name, has_value, value = word.removeprefix("--").partition("=")
                values = [value] if has_value else []
        elif name is not None:
            values.append(word)


def _argument(key: str, values: list[str]) -> Any:
    if key in _LISTS:
        return [value.split(",") for value in values]
    if not values:
        return True
    return _scalar(values[0])


def _scalar(value: str) -> Any:
    if _NUMBER.fullmatch(value) and (number := whole_number(value)) is not None:
        return number
    return {"True": True, "true": True, "False": False, "false": False, "None": "none"}.get(value, value)


def _of_python(text: str) -> Source:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFile("from", "torchtitan", f"it is no Python: {error}") from None
    found = Source()
    loops: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchtitan.models."):
            _note_import(node, found)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            loops[node.target.id] = _path(node.iter, {}) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and (number := _number(node.value, found.constants)) is not None:
                found.constants[target.id] = number
            path = _path(target, loops)
            if path:
                _put(found, path, node.value)
        elif isinstance(node, ast.Call) and _callee(node) == "Config" and _path(node.func, {}) == "Config":
            for keyword in node.keywords:  # Trainer.Config(parallelism=ParallelismConfig(...))
                if keyword.arg and _owner(node) == "Trainer":
                    _put(found, keyword.arg, keyword.value)
    return found


def _note_import(node: ast.ImportFrom, found: Source) -> None:
    parts = (node.module or "").split(".")
    if parts[2] != "common":
        found.module = parts[2]
    if parts[-1] == "config_registry" and node.names:
        found.recipe = node.names[0].name


def _path(node: ast.expr, loops: dict[str, str]) -> str | None:
    """The dotted name behind the object that it starts from: ``config.a.b`` is ``a.b``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not parts or not isinstance(node, ast.Name):
        return None
    return ".".join([loops[node.id], *parts] if node.id in loops else parts)


def _put(found: Source, path: str, value: ast.expr) -> None:
    if isinstance(value, ast.Call):
        _put_call(found, path, value)
        return
    try:
        literal = _plain(value, found.constants)
        check_extent(literal, 0)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        found.unread[path] = f"{_shown(value)} is no plain value"
        return
    # A word, as null is nothing to readers, and here it switches something off.
    found.settings[path] = "none" if literal is None else literal


def _plain(value: ast.expr, constants: Mapping[str, int]) -> Any:
    """A literal, or whole numbers and their names reckoned with.

    Raises:
        ValueError: it is neither.
    """
    number = _number(value, constants)
    return ast.literal_eval(value) if number is None else number


def _number(value: ast.expr, constants: Mapping[str, int]) -> int | None:
    """Sums, products and quotients of whole numbers."""
    if isinstance(value, ast.Name):
        return constants.get(value.id)
    if isinstance(value, ast.Constant):
        return whole_number(value.value) if isinstance(value.value, int) else None
    if not isinstance(value, ast.BinOp):
        return None
    left, right = _number(value.left, constants), _number(value.right, constants)
    if left is None or right is None:
        return None
    if isinstance(value.op, ast.Mult):
        return whole_number(left * right)
    if isinstance(value.op, ast.Add | ast.Sub):
        return whole_number(left + right if isinstance(value.op, ast.Add) else left - right)
    return left // right if isinstance(value.op, ast.FloorDiv) and right else None


def _put_call(found: Source, path: str, call: ast.Call) -> None:
    name = _callee(call)
    if path == "activation_checkpoint" and _owner(call) in _POLICIES:
        found.settings[path] = _POLICIES[_owner(call)]
    elif path == "model_spec" and name == "model_registry":
        if call.args:
            _put(found, "model_registry.flavor", call.args[0])
        for keyword in call.keywords:
            if keyword.arg == "converters" and isinstance(keyword.value, ast.List):
                _put_converters(found, keyword.value)
            elif keyword.arg:
                _put(found, f"model_registry.{keyword.arg}", keyword.value)
    elif name in _SECTIONS:
        for keyword in call.keywords:
            if keyword.arg:
                _put(found, f"{_SECTIONS[name]}.{keyword.arg}", keyword.value)
    # Anything else (loss, optimizer, data) says nothing of a plan; an unknown policy of recompute would.
    elif path == "activation_checkpoint":
        found.unread[path] = f"{_shown(call)} is no policy that is known"


def _put_converters(found: Source, listed: ast.List) -> None:
    kinds = []
    for entry in listed.elts:
        if isinstance(entry, ast.Call):
            kinds.append(_owner(entry))
            for keyword in entry.keywords:
                if keyword.arg == "recipe_name" and _owner(entry) == "Float8LinearConverter":
                    _put(found, "quantize.linear.float8.recipe_name", keyword.value)
    found.settings["model.converters"] = kinds


def _shown(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:60]
    except (RecursionError, ValueError):  # nested too deeply, a number of too many digits
        return "what it is set to"


def _callee(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _owner(call: ast.Call) -> str:
    """``Kind`` of ``Kind.Config(...)``."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return inner.id if isinstance(inner, ast.Name) else ""

"""Frameworks of the catalog: what a version can express, and the rules that it follows."""

from __future__ import annotations

from collections.abc import Iterable

from api.dashboard.catalog.entry import Cell, Column, Entry, Table, figure, text
from api.dashboard.words import EXCHANGES
from costmodel.catalog.framework_catalog import load_framework
from costmodel.rules import rules_for
from costmodel.rules.rule import OWN
from costmodel.spec.framework import FrameworkSpec
from planner.meanings import meaning_of

COLUMNS = (
    Column(name="Framework"),
    Column(name="Name"),
    Column(name="Version"),
    Column(name="Runs on"),
    Column(name="Pipelines"),
    Column(name="Context parallel"),
    Column(name="ZeRO"),
    Column(name="Precisions", figure=True),
    Column(name="Rules", figure=True),
    Column(name="Source"),
)
_NOT_KNOWN = "nobody looked"
_NONE = "none"
_NO_RULES = "None of its own rules are known: only those that hold under every framework apply."


def row_of(name: str) -> tuple[Cell, ...]:
    """The entry in the list."""
    found = load_framework(name)
    return (
        text(found.title, f"/catalog/frameworks/{name}"),
        Cell(text=found.name, code=True),
        text(found.version),
        text(", ".join(found.vendors)),
        text(_listed(found.schedules)),
        text(_listed(EXCHANGES.get(kind, kind) for kind in found.cp_comm_types)),
        text(", ".join(str(stage) for stage in found.zero_stages)),
        figure(len(found.precisions())),
        figure(len(rules_for(found))),
        text(found.source),
    )


def entry_of(name: str, version: str | None) -> Entry:
    """The entry's page, at its current version unless another is asked for.

    Raises:
        UnknownName: the catalog has no such framework, or rules know no such version of it.
    """
    found = load_framework(name, version)
    rules = rules_for(found)
    return Entry(
        kind="frameworks",
        name=found.title,
        about=f"{found.name} {found.version}: {len(rules)} rules of what it can run, {_vendors(found)}.",
        facts=_facts(found),
        source=found.source,
        retrieved=found.retrieved,
        tables=[_rules(found), *_features(found)],
        caveats=[] if found.rules else [_NO_RULES],
        aliases=found.aliases,
        versions=found.versions,
        version=found.version,
    )


def rules_in_words(found: FrameworkSpec) -> list[dict[str, object]]:
    """For JSON: ``[{name, axes, meaning, policy, source}]``."""
    return [
        {
            "name": rule.name,
            "axes": list(rule.axes),
            "meaning": meaning_of(rule.name),
            "policy": rule.is_policy_under(found),
            "source": rule.source,
        }
        for rule in rules_for(found)
    ]


def _vendors(found: FrameworkSpec) -> str:
    return f"on accelerators of {', '.join(found.vendors)}" if found.vendors else "on any accelerator"


def _facts(found: FrameworkSpec) -> list[tuple[str, str]]:
    sharded = {0: "nothing", 1: "optimizer", 2: "and gradients", 3: "and parameters"}
    facts = [
        ("Tensor parallel", "yes" if found.tensor_parallel else "no"),
        ("Pipelines", _listed(found.schedules)),
        ("Context parallel", _listed(EXCHANGES.get(kind, kind) for kind in found.cp_comm_types)),
        ("Expert parallel", "yes" if found.expert_parallel else "no"),
        ("ZeRO", ", ".join(f"{stage} ({sharded.get(stage, '')})" for stage in found.zero_stages)),
        ("Precisions", _listed(found.precisions())),
        ("Selective recompute", _listed(found.known_recompute_modules())),
        ("Offload", _known(found.known_offloads())),
        ("Tokens to experts", _known(found.known_moe_dispatchers())),
        ("Drops gathered parameters", _known(found.known_reshard_after())),
        ("Its logs print", f"{found.memory_kind.replace('_', ' ')} memory"),
    ]
    if found.zero_plus:
        facts.append(("ZeRO++", ", ".join(found.zero_plus)))
    if found.engine:
        facts.append(("Priced as", found.engine))
    return facts


def _rules(found: FrameworkSpec) -> Table:
    return Table(
        id="rules",
        title="Rules",
        columns=(
            Column(name="Rule"),
            Column(name="What it asks"),
            Column(name="Axes"),
            Column(name="Whose"),
            Column(name="Source"),
        ),
        rows=[
            (
                Cell(text=rule.name, code=True),
                text(meaning_of(rule.name)),
                text(", ".join(rule.axes)),
                text("planner" if rule.is_policy_under(found) or rule.source.startswith(OWN) else "framework"),
                text(rule.source.removeprefix(OWN)),
            )
            for rule in rules_for(found)
        ],
        note="What breaks a rule of the planner would run all the same, or is priced no differently; it is not listed.",
        prose=True,
    )


def _features(found: FrameworkSpec) -> list[Table]:
    if not found.features:
        return []
    rows = [
        (
            Cell(text=name, code=True),
            text(since),
            text("yes" if found.has(name) else "not yet"),
        )
        for name, since in found.features.items()
    ]
    columns = (Column(name="Feature"), Column(name="Since"), Column(name=f"In {found.version}"))
    return [Table(id="features", title="Features that rules depend on", columns=columns, rows=rows)]


def _listed(found: Iterable[str]) -> str:
    return ", ".join(found) or _NONE


def _known(found: Iterable[str] | None) -> str:
    return _NOT_KNOWN if found is None else _listed(found)

"""``planner calibrate``: a calibration from measured runs, kernels and collectives, and what they moved."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.exits import tell_problems

if TYPE_CHECKING:
    from planner.stored.measured_runs import StoredRuns


def calibrate(
    out: Annotated[str, typer.Option(help="The calibration file to write, JSON.")],
    runs: Annotated[
        str | None,
        typer.Option(help="CSV file of measured runs; with nothing else given, by default those that ship."),
    ] = None,
    from_db: Annotated[
        bool,
        typer.Option("--from-db", help="Learn from the measurements of the database: trials, and what jobs told."),
    ] = False,
    collectives: Annotated[
        list[str] | None, typer.Option(help="Log of nccl-tests or rccl-tests, as printed. Repeat it for more.")
    ] = None,
    gemm: Annotated[
        list[str] | None, typer.Option(help="CSV file of measured GEMMs or attention cores. Repeat it for more.")
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(help="Folder with what the probe has measured or run (docs/tuning.md). Repeat it for more."),
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="The device, for logs and tables that don't name one of the catalog.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="The cluster that collectives ran on, a name or a file; by default the device's usual one."),
    ] = None,
    cluster_out: Annotated[
        str | None, typer.Option(help="A cluster file to write, JSON: that cluster with the sweeps of the logs.")
    ] = None,
    base: Annotated[
        Literal["shipped", "none"],
        typer.Option(help="Where to begin: the shipped calibration, or the priors it began at itself."),
    ] = "shipped",
    name: Annotated[str | None, typer.Option(help="Name of the calibration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="What moved as JSON on stdout.")] = False,
    config: Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")] = None,
) -> None:
    """Fit the cost model's parameters to what was measured, and print what moved, by how much and how sure that is.

    Exit codes: 0 written, 2 bad input, 5 failed.
    """
    from costmodel.errors import InvalidInput, Missing
    from costmodel.whole_files import write_whole
    from planner.calibrating import calibrate, calibration_text, cluster_text
    from planner.cli.calibration_report import print_calibrated

    for option, file in (("out", out), ("cluster-out", cluster_out)):
        if file is not None and not file.lower().endswith(".json"):
            raise InvalidInput(option, file, "a file whose name ends in .json is expected, as it is read again")
    if runs is None and base == "shipped" and not (collectives or gemm or probe or from_db):
        raise Missing(
            "runs",
            "the shipped calibration knows the runs that ship already: name a file of runs, a log with --collectives, "
            "a table with --gemm or a folder with --probe, or what the database has with --from-db; or --base none",
        )
    for option, value in (("accelerator", accelerator), ("cluster", cluster), ("cluster-out", cluster_out)):
        if value is not None and not (collectives or probe or (gemm and option == "accelerator")):
            raise InvalidInput(option, value, "it is about --collectives, and none are given")
    found = calibrate(
        runs=runs,
        base=base,
        collectives=collectives or (),
        gemm=gemm or (),
        accelerator=accelerator,
        cluster=cluster,
        name=name,
        probe=probe or (),
        stored=_stored() if from_db else None,
    )
    network = cluster_text(found.alone, "cluster-out") if found.alone and cluster_out else None
    write_whole(out, calibration_text(found.calibration), "out")
    if cluster_out is not None and network is not None:
        write_whole(cluster_out, network, "cluster-out")
    tell_problems(found.problems)
    if as_json:
        sys.stdout.write(json.dumps(found.as_dict() | {"out": out, "cluster_out": cluster_out}, allow_nan=False) + "\n")
    else:
        print_calibrated(found, out, cluster_out)


def _stored() -> StoredRuns:
    from costmodel.errors import InvalidInput
    from db.store import Store
    from planner.stored.measured_runs import stored_runs

    with Store.open() as store, store.reading() as repos:
        found = stored_runs(repos)
        if not found.runs:
            expected = "measurements of time or memory are expected: planner tune makes some"
            why = f" ({found.left_out[0]})" if found.left_out else ""
            raise InvalidInput("from-db", store.shown_url, f"{expected}{why}")
    return found

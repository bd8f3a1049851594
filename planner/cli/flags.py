"""The flags that ``suggest``, ``sweep`` and ``check`` share, each with its help."""

from __future__ import annotations

from typing import Annotated

import typer

from costmodel.errors import InvalidInput

Model = Annotated[str, typer.Option(help="Catalog name, or a Hugging Face config.json.")]
Cluster = Annotated[str, typer.Option(help="Catalog name, or a YAML file.")]
Precision = Annotated[str, typer.Option(help="Precision recipe: bf16, fp8, mxfp8, fp32, ...")]
Optimizer = Annotated[str, typer.Option(help="Optimizer recipe: adamw, adamw-8bit, muon, sgd, ...")]
GradientDtype = Annotated[
    str | None, typer.Option(help="What gradients are kept and reduced in: fp32 or bf16; the framework's own.")
]
Framework = Annotated[str, typer.Option(help="Training framework whose rules apply.")]
FrameworkVersion = Annotated[str | None, typer.Option(help="Its version; the current one by default.")]
Calibration = Annotated[
    str | None, typer.Option(help="Catalog name, or a file of planner calibrate; the shipped one by default.")
]
Objective = Annotated[str, typer.Option(help="step_time, cost or fewest_devices.")]
Price = Annotated[float | None, typer.Option(help="For the cost objective, and to show what tokens cost.")]
Pin = Annotated[list[str] | None, typer.Option(help="Fix an axis: tp=8, pp=4,8,16, dp=4.., recompute=full.")]
Forbid = Annotated[list[str] | None, typer.Option(help="Rule values out, as in recompute=full.")]
Allow = Annotated[list[str] | None, typer.Option(help="Let plans use more: offload.")]
MinFreeGib = Annotated[float | None, typer.Option(help="Memory to keep free on every device.")]
MinUsed = Annotated[float, typer.Option(help="Share of the devices that a plan must use.")]
MaxStepTime = Annotated[float | None, typer.Option(help="Seconds that a step may take at most.")]
BatchTolerance = Annotated[float, typer.Option(help="Share by which plans may change the global batch, as 0.05.")]
Seed = Annotated[int, typer.Option(help="Seed of the solver.")]
AsJson = Annotated[bool, typer.Option("--json", help="The answer as JSON on stdout.")]
Config = Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")]
NoStore = Annotated[bool, typer.Option("--no-store", help="Search anew, and store nothing; needs no database.")]
Server = Annotated[
    str | None, typer.Option(help="URL of a planner that is to search; its API key is read from PLANNER_API_KEY.")
]


def check_store(*, server: str | None, no_store: bool) -> None:
    """Refuse ``--no-store`` with ``--server``.

    Raises:
        InvalidInput: both are given.
    """
    if server and no_store:
        raise InvalidInput("no-store", True, "a server stores what it answers; leave out --no-store, or --server")


def check_one_of(devices: str | None, nodes: str | None) -> None:
    """Refuse ``--devices`` together with ``--nodes``.

    Raises:
        InvalidInput: both are given.
    """
    if devices is not None and nodes is not None:
        raise InvalidInput("nodes", nodes, "give --devices or --nodes, not both")

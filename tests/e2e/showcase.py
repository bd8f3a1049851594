"""A server with something to show on every page: searches, measured plans, a study, awkward names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from db.store import Store
from tests.e2e.servers import Server
from tests.studying.lab import check_study, lab_in, opened

Json = dict[str, Any]

DENSE: Json = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 64,
    "global_batch_size": 256,
    "seq_len": 8192,
    "top": 8,
}
NOTHING: Json = {
    "model": "llama-3.1-405b",
    "cluster": "dgx-h100",
    "devices": 16,
    "global_batch_size": 64,
    "seq_len": 4096,
}
UNSAFE = "<script>alert('x')</script> & \"quoted\""
_TRIALS = (
    (("recompute=selective",), "out_of_memory"),
    (("recompute=full",), "crash"),
    (("micro_batch_size=1",), "ok:0.7"),
)


@dataclass(frozen=True, kw_only=True)
class Showcase:
    """What there is to see.

    Attributes:
        paths: a name for every page, and where it is.
        answer: the dense search as the API gives it.
    """

    paths: Mapping[str, str]
    answer: Json


def furnished(server: Server, url: str, folder: Path, question: Mapping[str, Any] = DENSE) -> Showcase:
    """Ask, measure and tune, so that no page is empty.

    Args:
        url: of the database behind the server.
        question: the search that most pages are about.
    """
    answer = server.ask(question, wait=60).json()
    nothing = server.ask(NOTHING, wait=60).json()
    unsafe = server.ask(
        dict(question) | {"model": _named(UNSAFE), "devices": 8, "global_batch_size": 32, "top": 2}, wait=60
    )
    counts = [question["devices"] // part for part in (4, 2, 1)]
    for devices in counts:
        server.ask(dict(question) | {"devices": devices}, wait=60)
    plans = [entry["id"] for entry in answer["plans"]]
    predicted = answer["plans"][0]["prediction"]
    for measured in (
        {"plan_id": plans[0], "step_time_s": 1.07 * predicted["step_time_s"], "job_id": "1204", "steps": 50},
        {"plan_id": plans[0], "step_time_s": 1.04 * predicted["step_time_s"], "job_id": "1311", "steps": 50},
        {"plan_id": plans[1], "status": "out_of_memory", "note": "at step 3", "log_tail": "CUDA out of memory"},
    ):
        server.client.post("/v1/measurements", json=measured).raise_for_status()
    compared = "&".join(f"plan={plan}" for plan in plans[:3])
    scaling = "&".join(f"{name}={value}" for name, value in question.items() if name != "devices")
    paths = {
        "searches": "/searches",
        "ask-again": f"/searches?from={answer['id']}",
        "search": f"/searches/{answer['id']}",
        "infeasible": f"/searches/{nothing['id']}",
        "unsafe": f"/searches/{unsafe.json()['id']}",
        "plan": f"/plans/{plans[0]}",
        "launch": f"/plans/{plans[0]}?target=megatron-lm",
        "compare": f"/compare?{compared}",
        "compare-empty": "/compare",
        "scaling": f"/scaling?{scaling}&devices={','.join(map(str, counts))}",
        "scaling-empty": "/scaling",
        "studies": "/studies",
        "study": f"/studies/{_study(url, folder)}",
        "fidelity": "/fidelity",
        "catalog": "/catalog",
        "model": "/catalog/models/deepseek-v3",
        "accelerator": "/catalog/accelerators/h100-sxm5-80gb",
        "cluster": "/catalog/clusters/dgx-h100",
        "framework": "/catalog/frameworks/megatron-core",
        "api": "/docs",
        "missing": "/plans/00000000000000000000000000000000",
    }
    return Showcase(paths=paths, answer=answer)


def _named(name: str) -> Json:
    text = (resources.files("costmodel.catalog") / "models" / "llama-3.2-1b.json").read_text(encoding="utf-8")
    found: Json = json.loads(text)
    return found | {"name": name}


def _study(url: str, folder: Path) -> str:
    lab = lab_in(folder, _TRIALS)
    with Store.open(url) as store:
        study = opened(store, name="8B on a box", trials=7)
        lab.worker(store).run(study.id)
        check_study(store, study, lab)
    return study.id

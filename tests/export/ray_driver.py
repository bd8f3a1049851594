"""Runs a script for Ray on two nodes of two devices: a real Ray where it is installed, else what stands in for it here.

    python ray_driver.py SCRIPT ARGUMENTS...

What stands in takes the same calls, refuses others, and runs tasks as threads. Run by itself, in the script's folder.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import ModuleType, SimpleNamespace
from typing import Any

NODES = 2
DEVICES = 2


class Group:
    """A placement group that is there at once, of bundles that fit."""

    def __init__(self, bundles: Sequence[dict[str, float]], strategy: str = "PACK", name: str = "") -> None:
        assert strategy == "STRICT_SPREAD"
        assert len(bundles) <= NODES
        assert all(bundle == {"CPU": DEVICES, "GPU": DEVICES} for bundle in bundles)
        self.bundles = bundles

    def ready(self) -> Future[None]:
        done = Future[None]()
        done.set_result(None)
        return done


class Strategy:
    """Where a task runs."""

    def __init__(self, placement_group: Group, placement_group_bundle_index: int = -1) -> None:
        assert 0 <= placement_group_bundle_index < len(placement_group.bundles)


class Ray:
    """The calls that the script makes."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=NODES)
        self.util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

    def init(self) -> None:
        pass

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(*, num_cpus: int, num_gpus: int, max_retries: int, scheduling_strategy: Strategy) -> Any:
            assert (num_cpus, num_gpus, max_retries) == (DEVICES, DEVICES, 0)
            return SimpleNamespace(remote=lambda *args: self._pool.submit(function, *args))

        return SimpleNamespace(options=options)

    def get(self, what: Any) -> Any:
        return [one.result() for one in what] if isinstance(what, list) else what.result()

    def wait(self, what: list[Any], num_returns: int = 1, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        done, _ = wait(what, timeout=timeout, return_when=FIRST_COMPLETED)
        first = [one for one in what if one in done][:num_returns]
        return first, [one for one in what if one not in first]

    def cancel(self, what: Future[Any]) -> None:
        what.cancel()


def stand_in() -> None:
    """Let the script import this as Ray."""
    ray = Ray()
    modules = {
        "ray": {name: getattr(ray, name) for name in ("init", "remote", "get", "wait", "cancel", "util")},
        "ray.util": {},
        "ray.util.placement_group": {"placement_group": Group},
        "ray.util.scheduling_strategies": {"PlacementGroupSchedulingStrategy": Strategy},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        module.__path__ = []
        for member, value in members.items():
            setattr(module, member, value)
        sys.modules[name] = module
    sys.modules["ray"].util = ray.util  # type: ignore[attr-defined]


def main() -> None:
    """Run the script."""
    sys.argv = sys.argv[1:]
    if importlib.util.find_spec("ray") is None:
        stand_in()
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": DEVICES, "num_gpus": DEVICES}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(NODES - 1):
        cluster.add_node(**node)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()

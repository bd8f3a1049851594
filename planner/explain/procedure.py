"""The primer's six steps, walked for one case: each asks whether the plan so far will do, and else adds a dimension.

"How to choose a parallelism strategy" (after the Ultra-Scale Playbook, Hugging Face 2025) names the order and the
questions and leaves open when communication counts as exposed and a sequence as long; the limits here are ours:
``EXPOSED_SHARE`` of a step, ``LONG_SEQUENCE`` tokens. The procedure is greedy: it never takes a step back but for
pipeline stages that a later step makes needless, which is where a search can be better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from costmodel.table import mesh_size
from planner.explain import told
from planner.explain.replica import one_replica
from planner.explain.shapes import Found, Pricer, Shape
from planner.explain.step import Step, step
from planner.search.space import Domains, domains, legal_zero_stages

EXPOSED_SHARE = 0.10
"""Share of a step from which exposed data-parallel communication calls for another dimension."""
LONG_SEQUENCE = 32_768
"""Tokens from which a sequence counts as long."""
_LARGER_MICRO_BATCH = 4
_MOST_AGAIN = 8
_LEAST_GAIN = 0.0005
"""A smaller gain would be printed as none."""


@dataclass(kw_only=True)
class Procedure:
    """The walk: ``steps`` so far and the plan that they lead to.

    Attributes:
        late: whether the deadline has passed; steps that it leaves no time for are listed as such.
    """

    pricer: Pricer
    late: Callable[[], bool]
    steps: list[Step] = field(default_factory=list)
    shape: Shape = field(default_factory=Shape)
    found: Found | None = None

    def walk(self) -> None:
        """All six steps."""
        self.domains: Domains = domains(self.pricer.request)
        for number, walk in enumerate(
            (self._replica, self._shard, self._tensor, self._pipeline, self._context_and_experts, self._tune), start=1
        ):
            if self.late():
                self.steps += [step(later, "not_reached", "The deadline left no time.") for later in range(number, 7)]
                return
            self.steps.append(walk(number))

    # -- what the steps share ------------------------------------------------------------------------------------------

    def _wrong(self, found: Found | None) -> str | None:
        """Why a plan will not do, as a verdict; None when it will."""
        if found is None:
            return "no_plan"
        if not found.fits:
            return "does_not_fit"
        return "exposed" if found.share("dp_comm") > EXPOSED_SHARE else None

    def _priced(self, shapes: list[Shape]) -> list[Found | None]:
        """At the smallest micro-batch or a larger one, which hides communication better where it fits."""
        return self.pricer.best_of(shapes, largest=_LARGER_MICRO_BATCH)

    def _take(self, shape: Shape, found: Found | None) -> None:
        self.shape, self.found = shape, found

    def _numbers(self) -> dict[str, int | float]:
        return told.numbers(self.found, self.pricer.request.scenario.usable_bytes, EXPOSED_SHARE)

    def _sentence(self, shape: Shape, found: Found | None) -> str:
        if found is None:
            return f"{told.mesh(shape)}: no plan ({self.pricer.why_none(shape)})"
        return told.plan(found, self.pricer.request.scenario.usable_bytes)

    def _pinned(self, axis: str) -> str:
        return told.pinned(self.pricer.request.constraints, axis)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _replica(self, number: int) -> Step:
        self.replica_fits = (found := one_replica(self.pricer)).verdict != "no"
        return found

    def _shard(self, number: int) -> Step:
        stages = legal_zero_stages(self.pricer.request)
        # A replica that fits needs no sharded parameters; else the most that the framework can shard.
        wanted = tuple(stage for stage in stages if stage < 3) or stages if self.replica_fits else stages[-1:]
        shape = Shape(zero_stages=wanted)
        (found,) = self._priced([shape])
        if found is None and wanted != stages:
            # What is pinned, an offload of parameters say, may ask for more to be sharded than the room does.
            shape = Shape(zero_stages=stages)
            (found,) = self._priced([shape])
        self._take(shape, found)
        if found is None:
            return step(number, "no_plan", f"{self._sentence(shape, None)}.")
        wrong = self._wrong(found)
        kind = told.sharding(found)
        inside = found.row["dp_replicate"] > 1 and found.row["zero_stage"] > 0
        verdict = wrong or ("replicas" if self.replica_fits else "hsdp" if inside else "sharded")
        ends = {
            None: "it fits and is hidden well enough",
            "does_not_fit": found.need.verdict,
            "exposed": f"more than {EXPOSED_SHARE:.0%} of the step is exposed data-parallel communication",
        }
        return step(number, verdict, f"{kind}: {self._sentence(shape, found)}: {ends[wrong]}.", **self._numbers())

    def _tensor(self, number: int) -> Step:
        offered = [tp for tp in self.domains.tp if self._in_domain(tp)] or list(self.domains.tp)
        wrong = self._wrong(self.found)
        if wrong is None and 1 in offered:
            return step(number, "not_needed", "Not needed: the plan so far fits and is hidden." + self._pinned("tp"))
        if not self.pricer.request.scenario.framework.tensor_parallel and 1 in offered:
            return step(number, "not_offered", "The framework has no tensor parallelism.")
        shapes = [replace(self.shape, tp=tp, zero_stages=None) for tp in offered]
        found = self._priced(shapes)
        good = [place for place, one in enumerate(found) if self._wrong(one) is None]
        fitting = [place for place, one in enumerate(found) if one is not None and one.fits]
        if good:
            place, ends = good[0], "the smallest that fits and is hidden"
        elif fitting:
            place = min(fitting, key=lambda at: told.seconds(found[at]))
            ends = "the fastest that fits, and still exposed"
        else:
            # As much as there is legally, for the next step to build on.
            possible = [at for at, one in enumerate(found) if one is not None]
            place = possible[-1] if possible else len(shapes) - 1
            ends = f"the largest, and {told.verdict(found[place])}"
        self._take(shapes[place], found[place])
        verdict = "added" if shapes[place].tp > 1 else "kept"
        text = f"{self._sentence(self.shape, self.found)}: {ends}.{self._pinned('tp')}"
        return step(number, verdict, text, tp=self.shape.tp, **self._numbers())

    def _in_domain(self, tp: int) -> bool:
        cluster = self.pricer.request.scenario.cluster
        return tp <= max(cluster.scale_up_devices, cluster.devices_per_node)

    def _pipeline(self, number: int) -> Step:
        wrong, depths = self._wrong(self.found), self.domains.pp
        if wrong is None and 1 in depths:
            return step(number, "not_needed", "Not needed: the plan so far fits and is hidden." + self._pinned("pp"))
        if max(depths) == 1:
            none = self.pricer.request.scenario.framework.schedules == ()
            text = "The framework has no pipelines." if none else "There is nothing to cut into stages."
            return step(number, "not_offered", text + self._pinned("pp"))
        tps = [tp for tp in self.domains.tp if tp <= self.shape.tp] or [self.shape.tp]
        # The tensor-parallel degree of the step before, or where it has no legal pipeline the next smaller one.
        for tp in reversed(tps):
            shapes = [replace(self.shape, tp=tp, pp=pp) for pp in depths]
            found = self._priced(shapes)
            if any(one is not None for one in found):
                break
        good = [place for place, one in enumerate(found) if self._wrong(one) is None]
        fitting = [place for place, one in enumerate(found) if one is not None and one.fits]
        if good:
            # Nobody leaves a node idle for a stage less.
            used = {place: mesh_size(one.row) for place in good if (one := found[place]) is not None}
            place = next(at for at in good if used[at] == max(used.values()))
            fewer = "" if place == good[0] else ", of those that use the most devices"
            ends = f"the fewest stages that fit with communication hidden{fewer}"
        elif fitting:
            place = min(fitting, key=lambda at: told.seconds(found[at]))
            ends = "the fastest that fits; communication stays exposed"
        else:
            possible = [at for at, one in enumerate(found) if one is not None]
            place = min(possible, key=lambda at: told.lack(found[at])) if possible else len(shapes) - 1
            ends = f"the least memory, and {told.verdict(found[place])}"
        self._take(shapes[place], found[place])
        verdict = "added" if self.shape.pp > 1 else "kept"
        if self._wrong(self.found) in ("no_plan", "does_not_fit"):
            verdict = str(self._wrong(self.found))
        text = f"{self._sentence(self.shape, self.found)}: {ends}.{self._pinned('pp')}"
        return step(number, verdict, text, tp=self.shape.tp, pp=self.shape.pp, **self._numbers())

    def _context_and_experts(self, number: int) -> Step:
        before, sentences = self.shape, []
        sentences.append(self._context())
        sentences.append(self._experts())
        changed = self.shape != before
        numbers = {"cp": self.shape.cp, "ep": self.shape.ep, "etp": self.shape.etp, "pp": self.shape.pp}
        return step(
            number, "added" if changed else "not_needed", " ".join(sentences), **(numbers | dict(self._numbers()))
        )

    def _context(self) -> str:
        seq_len, values = self.pricer.request.scenario.workload.seq_len, self.domains.cp
        wrong = self._wrong(self.found)
        if values == (1,):
            offered = self.pricer.request.scenario.framework.cp_comm_types
            return ("" if offered else "The framework has no context parallelism.") + self._pinned("cp").strip()
        if seq_len < LONG_SEQUENCE and wrong in (None, "exposed") and 1 in values:
            return f"{seq_len} tokens are not long (from {LONG_SEQUENCE} on): no context parallelism."
        before = self.shape.pp
        if not self._take_fastest([replace(self.shape, cp=cp, pp=pp) for cp in values for pp in self._depths()]):
            return f"No context parallelism makes {seq_len} tokens fit."
        return f"{seq_len} tokens: {self._sentence(self.shape, self.found)}{self._fewer(before)}.{self._pinned('cp')}"

    def _experts(self) -> str:
        model, framework = self.pricer.request.scenario.model, self.pricer.request.scenario.framework
        if model.moe is None:
            return "No experts: no expert parallelism."
        if not framework.expert_parallel:
            return "The framework has no expert parallelism."
        shapes = [
            replace(self.shape, ep=ep, etp=etp, pp=pp)
            for ep in self.domains.ep
            for etp in self.domains.etp
            if etp in (1, self.shape.tp) or self.domains.etp == (etp,)
            for pp in self._depths()
        ]
        before = self.shape.pp
        if not self._take_fastest(shapes):
            return f"{model.moe.num_experts} experts: no expert parallelism makes them fit."
        if self.shape.ep == 1:
            return f"{model.moe.num_experts} experts: no expert parallelism is faster." + self._pinned("ep")
        text = f"{model.moe.num_experts} experts: {self._sentence(self.shape, self.found)}{self._fewer(before)}."
        return text + self._pinned("ep")

    def _depths(self) -> list[int]:
        """Pipelines no deeper than the one so far: what is cut elsewhere may need fewer stages."""
        return [pp for pp in self.domains.pp if pp <= max(self.shape.pp, min(self.domains.pp))]

    def _fewer(self, before: int) -> str:
        return f"; pp {self.shape.pp} does instead of {before}" if self.shape.pp < before else ""

    def _take_fastest(self, shapes: list[Shape]) -> bool:
        """Take the fastest plan that fits, the one so far included; False when there is none.

        Of many shapes the fastest at the smallest micro-batch are tried with a larger one.
        """
        plain = [one for one in self.pricer.best_of(shapes) if one is not None and one.fits]
        plain = sorted(plain, key=lambda one: one.step_time_s)[:_MOST_AGAIN]
        again = [one for one in self._priced([one.shape for one in plain]) if one is not None and one.fits]
        legal = self.found is not None and self.found.fits and self.found.shape in shapes
        best = min([*again, *([self.found] if legal else [])], key=told.seconds, default=None)
        if best is not None:
            self._take(best.shape, best)
        return best is not None

    def _tune(self, number: int) -> Step:
        before = self.found
        if before is None:
            return step(number, "no_plan", "There is no plan to tune.")
        tuned = self.pricer.best(replace(self.shape, zero_stages=None), tuned=True)
        if tuned is None or not tuned.fits:
            least = (tuned or before).need
            hosts = f", and {least.hosts}" if least.hosts else ""
            where = " into the memory of the hosts" if least.short_of == ("host",) else ""
            return step(
                number,
                "does_not_fit",
                f"Nothing on this mesh fits{where}: the leanest plan needs {told.gib(least.device_bytes)} of "
                f"{told.gib(least.usable_bytes)} GiB{hosts}.",
                least_bytes=round(least.device_bytes),
                usable_bytes=least.usable_bytes,
                **told.host_numbers(least),
            )
        self.found = tuned
        gain = 1 - tuned.step_time_s / before.step_time_s
        faster = f"{gain:.1%} faster than before tuning" if gain >= _LEAST_GAIN else "as before tuning"
        text = f"{told.tuned(tuned)}: {self._sentence(self.shape, tuned)}, {faster}."
        return step(number, "tuned", text, before_step_time_s=before.step_time_s, **self._numbers())

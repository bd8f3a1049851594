"""Reads what nccl-tests and rccl-tests print, as it was printed, launchers' prefixes and all.

A log may hold several tests one after the other. Lines that are none of theirs (NCCL's own messages, warnings of MPI)
are passed over. Sizes and times are as nccl-tests counts them, see ``MeasuredCollective``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isclose
from pathlib import PurePath

from costmodel.catalog.documents import read_text
from costmodel.catalog.folders import expanded
from costmodel.errors import InvalidInput
from costmodel.spec.collective import CollectiveOp

# As the programs are called, less ``_perf``; None is a test of an operation that no plan is priced by.
_OPS: Mapping[str, CollectiveOp | None] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
    "alltoallv": None,
    "all_reduce_bias": None,
    "broadcast": None,
    "reduce": None,
    "gather": None,
    "scatter": None,
    "hypercube": None,
}
_PROGRAM = re.compile(rf"\b({'|'.join(sorted(_OPS, key=len, reverse=True))})_perf")
_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:?|\[\d+\]|\d+:)\s?")
_RANK = re.compile(
    r"#\s*Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+\d+\s+\[[^\]]*\]\s*(?P<device>.*)$"
)
_FIRST_LINE = re.compile(r"#\s*nThread\s")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*(\s|$)")
_CLOSED = re.compile(r"#\s*(Out of bounds|Avg bus bandwidth)")
_SAME_FACTOR = 0.04  # two digits are printed of a rate above 1 GB/s at the least
_TELLING_RATE = 1.0


@dataclass(frozen=True, kw_only=True)
class LoggedSweep:
    """One table of a log.

    Attributes:
        file, line: where its header is, for messages.
        hosts: how many; ``ranks`` lie on them evenly.
        device: as the driver names it; empty where it doesn't.
        points: (bytes, microseconds), sizes ascending; out of place where both were measured.
    """

    file: str
    line: int
    op: CollectiveOp
    ranks: int
    hosts: int
    device: str
    points: tuple[tuple[int, float], ...]


def read_collective_log(path: str, field: str = "collectives") -> tuple[tuple[LoggedSweep, ...], tuple[str, ...]]:
    """(the sweeps of a log, what was passed over and why).

    Raises:
        UnreadableFile: the file is absent, larger than 16 MiB, or no text.
        InvalidInput: it is no such log, or is cut, or has a table that can't be: file and line are named.
    """
    reader = _Reader(path, field)
    for number, line in enumerate(read_text(expanded(path, field), field).splitlines(), start=1):
        reader.take(number, _PREFIX.sub("", line))
    return reader.finished()


@dataclass
class _Table:
    """A table on its way."""

    line: int
    columns: tuple[str, ...]
    rows: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    closed: bool = False


class _Reader:
    """Lines in, sweeps out; what a test says before its table holds for that table."""

    def __init__(self, path: str, field: str) -> None:
        self.path, self.field = path, field
        self.program: str | None = None
        self.ranks: dict[int, tuple[str, str]] = {}
        self.groups: set[str] = set()
        self.table: _Table | None = None
        self.any_table = False
        self.sweeps: list[LoggedSweep] = []
        self.passed_over: list[str] = []

    def take(self, number: int, line: str) -> None:
        if _FIRST_LINE.match(line):
            self._end()
            self.ranks, self.groups = {}, set()
        elif rank := _RANK.match(line):
            self._end()
            self.ranks[int(rank["rank"])] = rank["host"], rank["device"].strip()
            self.groups.add(rank["group"] or "0")
        elif columns := _columns(line):
            self._end()
            self.table, self.any_table = _Table(line=number, columns=columns), True
        elif self.table and not self.table.closed and _ROW.match(line):
            self.table.rows.append((number, tuple(line.split())))
        elif self.table and _CLOSED.match(line):
            self.table.closed = True
        if program := _PROGRAM.search(line):
            if self.table and self.table.closed:
                self._end()
            self.program = program[1] if not (self.table and self.table.rows) else self.program

    def finished(self) -> tuple[tuple[LoggedSweep, ...], tuple[str, ...]]:
        self._end()
        if not self.any_table:
            raise InvalidInput(
                self.field, self.path, "it is no log of nccl-tests or rccl-tests: no line has '# size count type ...'"
            )
        if not self.sweeps:
            raise InvalidInput(self.field, self.path, "no table of it can be used: " + "; ".join(self.passed_over))
        return tuple(self.sweeps), tuple(self.passed_over)

    def _wrong(self, line: int, expected: str) -> InvalidInput:
        return InvalidInput(self.field, f"{self.path}:{line}", expected)

    def _end(self) -> None:
        """What the table before comes to."""
        table, self.table = self.table, None
        if table is None:
            return
        where = f"{self.path}:{table.line}"
        if not table.rows:
            raise self._wrong(table.line, "the table has no rows: the test failed, or the log is cut")
        if not table.closed:
            self.passed_over.append(
                f"{where}: no '# Avg bus bandwidth' ends the table; the rows that are there are used"
            )
        timed = [self._row(table.columns, number, cells) for number, cells in table.rows]
        wrong = sum(row.wrong for row in timed)
        if wrong:
            self.passed_over.append(f"{where}: {wrong} rows had wrong results and are left out")
        sound = [row for row in timed if not row.wrong and row.size > 0]
        ranks, hosts, device = self._group(table.line)
        if len(self.groups) > 1:
            self.passed_over.append(f"{where}: {len(self.groups)} groups shared the links; the table is left out")
        elif ranks < 2:
            self.passed_over.append(f"{where}: one rank sends nothing; the table is left out")
        elif not sound:
            self.passed_over.append(f"{where}: no row can be used")
        else:
            op = self._op(table, sound, ranks)
            if op is None:
                self.passed_over.append(f"{where}: no plan is priced by {self.program}_perf; the table is left out")
                return
            self.sweeps.append(
                LoggedSweep(
                    file=self.path,
                    line=table.line,
                    op=op,
                    ranks=ranks,
                    hosts=hosts,
                    device=device,
                    points=_points(sound),
                )
            )

    def _row(self, columns: tuple[str, ...], number: int, cells: tuple[str, ...]) -> _Timed:
        measured = columns[columns.index("time") :]
        if len(cells) < 3 + len(measured):
            raise self._wrong(number, f"the row has {len(cells)} cells, the table {len(columns)}: the log is cut here")
        values = dict(zip(measured[:4], cells[-len(measured) :], strict=False))
        in_place = cells[-1] if len(measured) > 4 else ""
        try:
            size, microseconds = int(cells[0]), float(values["time"])
            rates = float(values["algbw"]), float(values["busbw"])
        except ValueError:
            raise self._wrong(number, "sizes, times and rates are expected to be numbers") from None
        if size > 0 and not 0 < microseconds < float("inf"):
            raise self._wrong(number, f"a time of {values['time']} us can't be: it has to be above 0")
        wrong = values.get("#wrong", "0")
        return _Timed(
            line=number,
            size=size,
            microseconds=microseconds,
            rates=rates,
            reduces="none" not in cells and "sum" in cells,
            not_in_place=in_place == "N/A" != wrong,
            wrong="#wrong" in values and wrong not in ("0", "N/A") and not _is_small(wrong),
        )

    def _group(self, line: int) -> tuple[int, int, str]:
        """Ranks, hosts and the device of the table that starts at ``line``."""
        if not self.ranks:
            raise self._wrong(
                line, "no '#  Rank  0 ... on HOST device ...' lines come before the table; give all of the log"
            )
        ranks = max(self.ranks) + 1
        if len(self.ranks) != ranks:
            raise self._wrong(
                line, f"of ranks 0 to {ranks - 1} the log names {len(self.ranks)}: it is cut before the table"
            )
        hosts = [host for host, _ in self.ranks.values()]
        on_each = {hosts.count(host) for host in hosts}
        if len(on_each) > 1:
            raise self._wrong(line, f"as many ranks on every host are expected, not {min(on_each)} to {max(on_each)}")
        devices = {device for _, device in self.ranks.values()}
        if len(devices) > 1:
            raise self._wrong(line, f"devices of one kind are expected, not {' and '.join(sorted(devices))}")
        return ranks, len(set(hosts)), devices.pop()

    def _op(self, table: _Table, rows: list[_Timed], ranks: int) -> CollectiveOp | None:
        """The operation, by the program that the log names, else by the file's name, else by what rates come to."""
        if self.program is not None and _OPS[self.program] is None:
            return None
        likely = _likely(rows, ranks)
        stated = _OPS[self.program] if self.program else _in_name(self.path)
        if stated is not None:
            if likely and stated not in likely:
                raise self._wrong(table.line, f"busbw over algbw is that of {' or '.join(likely)}, not of {stated}")
            return stated
        if len(likely) == 1:
            return likely[0]
        raise self._wrong(
            table.line, "the log doesn't say which operation it is; name the file after it, all_gather.log say"
        )


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """A row of a table.

    Attributes:
        rates: algbw and busbw, GB/s.
        reduces: whether it names a reduction.
        not_in_place: whether in place it alone can't be checked, as exchanges can't.
    """

    line: int
    size: int
    microseconds: float
    rates: tuple[float, float]
    reduces: bool
    not_in_place: bool
    wrong: bool


def _columns(line: str) -> tuple[str, ...] | None:
    """Names of the columns, where the line has them."""
    names = tuple(line.lstrip("# ").split()) if line.startswith("#") else ()
    return names if names[:3] == ("size", "count", "type") and "time" in names else None


def _is_small(text: str) -> bool:
    """Old versions print the largest error instead: 2e-07."""
    try:
        return "e-" in text.lower() and abs(float(text)) < 1e-2
    except ValueError:
        return False


def _in_name(path: str) -> CollectiveOp | None:
    name = PurePath(path).name.lower().replace("-", "_")
    found = {op for word, op in _OPS.items() if op is not None and word in name}
    return found.pop() if len(found) == 1 else None


def _likely(rows: Iterable[_Timed], ranks: int) -> tuple[CollectiveOp, ...]:
    """Operations whose busbw is that multiple of the algbw; none where rates are too small to tell."""
    last = max(rows, key=lambda row: row.rates[0])
    if last.rates[0] < _TELLING_RATE:
        return ()
    found, share = last.rates[1] / last.rates[0], (ranks - 1) / ranks
    near = [factor for factor in (2 * share, share, 1.0) if isclose(found, factor, rel_tol=_SAME_FACTOR)]
    ops: list[CollectiveOp] = []
    if 2 * share in near:
        ops.append("all_reduce")
    if share in near:
        ops += (
            ["reduce_scatter"]
            if last.reduces
            else ["all_to_all"]
            if last.not_in_place
            else ["all_gather", "all_to_all"]
        )
    if 1.0 in near:
        ops.append("send_recv")
    return tuple(ops)


def _points(rows: Iterable[_Timed]) -> tuple[tuple[int, float], ...]:
    """The median where a size was measured again (``-N``)."""
    by_size: dict[int, list[float]] = {}
    for row in rows:
        by_size.setdefault(row.size, []).append(row.microseconds)
    return tuple((size, sorted(times)[len(times) // 2]) for size, times in sorted(by_size.items()))

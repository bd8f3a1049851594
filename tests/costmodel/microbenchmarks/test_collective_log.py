"""Logs of nccl-tests and rccl-tests are read as they are printed; what is no log, or part of one, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.calibration.microbenchmarks.collective_log import LoggedSweep, read_collective_log
from costmodel.errors import InvalidInput, UnreadableFile
from tests.costmodel.microbenchmarks.logs import header, log, table, written

# NVIDIA/dgxc-benchmarking nccl/README.md @841f5466, 8 H100: bytes and microseconds.
DGX_H100 = ((1024, 16.94), (1048576, 27.37), (67108864, 324.7), (1073741824, 4029.4), (17179869184, 62648.0))
LARGE = ((2**30, 4029.4), (2**31, 8010.0))

# An rccl-tests log of two nodes (in file 44378813009 of public GitHub repositories), cut to two ranks a node and two
# sizes, with rates as of 4 ranks; without a check of the results.
RCCL = """\
# nThread 1 nGpus 1 minBytes 8388608 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 200
#
rccl-tests: Version develop:5b27b96
# Using devices
#  Rank  0 Group  0 Pid 2532785 on      node0 device  0 [0000:05:00] AMD Instinct MI300X
#  Rank  1 Group  0 Pid 2532786 on      node0 device  1 [0000:27:00] AMD Instinct MI300X
#  Rank  2 Group  0 Pid 2565224 on      node1 device  0 [0000:05:00] AMD Instinct MI300X
#  Rank  3 Group  0 Pid 2565226 on      node1 device  1 [0000:27:00] AMD Instinct MI300X
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1    235.4   35.64   53.46    N/A    220.6   38.02   57.03    N/A
  8589934592    2147483648     float     sum      -1    47159  182.15  273.23    N/A    47148  182.19  273.29    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 240.128
"""

# Older versions: no group, a short bus id, the largest error in the place of a count, no operation.
OLD = """\
#   Rank  0 Pid  13455 on ip-10-0-0-1 device  0 [0x53] Tesla V100-SXM2-32GB
#   Rank  1 Pid  13455 on ip-10-0-0-1 device  1 [0x64] Tesla V100-SXM2-32GB
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
   536870912     134217728   float     sum   4031.2  133.18  133.18  2e-07   4030.9  133.19  133.19  2e-07
# Out of bounds values : 0 OK
"""


def one(folder: Path, text: str, name: str = "test.log") -> LoggedSweep:
    """The only sweep of a log."""
    (sweep,), _ = read_collective_log(written(folder, text, name))
    return sweep


def test_a_sweep_has_its_operation_its_shape_its_device_and_its_points(tmp_path: Path) -> None:
    sweep = one(tmp_path, log("all_reduce", DGX_H100))
    assert (sweep.op, sweep.ranks, sweep.hosts, sweep.device) == ("all_reduce", 8, 1, "NVIDIA H100 80GB HBM3")
    assert sweep.points == DGX_H100
    assert sweep.line == 15


@pytest.mark.parametrize(
    ("program", "op"),
    [
        ("all_reduce", "all_reduce"),
        ("all_gather", "all_gather"),
        ("reduce_scatter", "reduce_scatter"),
        ("alltoall", "all_to_all"),
        ("sendrecv", "send_recv"),
    ],
)
def test_every_operation_of_a_plan_is_known_by_its_program(tmp_path: Path, program: str, op: str) -> None:
    assert one(tmp_path, log(program, LARGE, ranks=16, hosts=2)).op == op
    command = f"+ mpirun -np 16 --hostfile hosts ./build/{program}_perf -b 1G -e 2G -f 2 -g 1\n"
    unnamed = one(tmp_path, command + log(program, LARGE, ranks=16, hosts=2, named=False))
    assert (unnamed.op, unnamed.ranks, unnamed.hosts) == (op, 16, 2)


def test_an_unnamed_operation_is_told_by_its_rates_or_by_the_files_name(tmp_path: Path) -> None:
    for program, op in (("all_reduce", "all_reduce"), ("reduce_scatter", "reduce_scatter"), ("alltoall", "all_to_all")):
        assert one(tmp_path, log(program, LARGE, named=False)).op == op
    gathered = log("all_gather", LARGE, named=False)
    with pytest.raises(InvalidInput, match=r"name the file after it"):
        one(tmp_path, gathered)
    assert one(tmp_path, gathered, "node7-all-gather.txt").op == "all_gather"


def test_a_file_whose_name_contradicts_its_rates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"all_gather\.log:14.*all_reduce, not of all_gather"):
        one(tmp_path, log("all_reduce", LARGE, named=False), "all_gather.log")


def test_logs_of_rccl_tests_are_read(tmp_path: Path) -> None:
    sweep = one(tmp_path, RCCL)
    assert (sweep.op, sweep.ranks, sweep.hosts) == ("all_reduce", 4, 2)
    assert sweep.device == "AMD Instinct MI300X"
    assert sweep.points == ((8388608, 235.4), (8589934592, 47159.0))


def test_logs_of_old_versions_are_read(tmp_path: Path) -> None:
    sweep = one(tmp_path, OLD, "all_reduce.log")
    assert (sweep.op, sweep.ranks, sweep.device) == ("all_reduce", 2, "Tesla V100-SXM2-32GB")
    assert sweep.points == ((536870912, 4031.2),)


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: "])
def test_a_launchers_prefixes_and_other_peoples_lines_do_not_matter(tmp_path: Path, prefix: str) -> None:
    lines = log("all_reduce", DGX_H100).splitlines()
    lines.insert(4, "node0:4000:4100 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>")
    lines.insert(-4, "WARNING: No preset parameters were found for the device that Open MPI detected:")
    prefixed = "".join(f"{prefix}{line}\n" for line in lines)
    assert one(tmp_path, prefixed).points == DGX_H100


def test_a_log_may_hold_several_tests(tmp_path: Path) -> None:
    text = log("all_reduce", DGX_H100) + log("alltoall", LARGE, ranks=16, hosts=2) + log("broadcast", LARGE)
    sweeps, passed_over = read_collective_log(written(tmp_path, text))
    assert [(sweep.op, sweep.ranks) for sweep in sweeps] == [("all_reduce", 8), ("all_to_all", 16)]
    (why,) = passed_over
    assert "broadcast" in why


def test_a_table_out_of_place_only_and_sizes_measured_again_are_read(tmp_path: Path) -> None:
    rows = [
        "#  size  count  type  redop  root  time  algbw  busbw  #wrong",
        *(f"{2**30} {2**28} float sum -1 {time} 260.00 455.00 0" for time in (4100.0, 9000.0, 4200.0)),
        "# Avg bus bandwidth    : 455",
    ]
    assert one(tmp_path, "\n".join([*header(), *rows])).points == ((2**30, 4200.0),)


def test_rows_of_nothing_and_rows_with_wrong_results_are_left_out(tmp_path: Path) -> None:
    text = log("all_reduce", DGX_H100)
    wrong = text.replace("     0    27.37", "    12    27.37", 1)
    assert wrong != text
    (sweep,), passed_over = read_collective_log(written(tmp_path, wrong))
    assert [size for size, _ in sweep.points] == [size for size, _ in DGX_H100 if size != 1048576]
    assert "wrong results" in passed_over[0]
    empty = text.replace(f"{1024:12d}", f"{0:12d}")
    assert one(tmp_path, empty).points == DGX_H100[1:]


def test_a_table_that_nothing_ends_is_used_with_a_remark(tmp_path: Path) -> None:
    text = log("all_reduce", DGX_H100).partition("# Out of bounds")[0]
    (sweep,), passed_over = read_collective_log(written(tmp_path, text))
    assert sweep.points == DGX_H100
    assert "Avg bus bandwidth" in passed_over[0]


def test_groups_that_share_links_are_no_measure_of_one(tmp_path: Path) -> None:
    split = log("all_reduce", LARGE).replace("Rank  7 Group  0", "Rank  7 Group  1")
    with pytest.raises(InvalidInput, match="2 groups shared the links"):
        read_collective_log(written(tmp_path, split))


GOOD = log("all_reduce", DGX_H100)
BROKEN = {
    "no log": ("step 1, loss 10.3\n", r"test\.log' .*no log of nccl-tests"),
    "empty": ("", r"no log of nccl-tests"),
    "cut in a row": (GOOD[: GOOD.index("324.70") + 6], r"test\.log:19.*cut here"),
    "no rows": (GOOD[: GOOD.index("        1024")], r"test\.log:15.*no rows"),
    "no ranks": ("\n".join(table("all_reduce", LARGE)), r"test\.log:2.*Rank"),
    "a rank is missing": (GOOD.replace("#  Rank  3", "#  Rink  3"), r"of ranks 0 to 7 the log names 7"),
    "uneven hosts": (GOOD.replace("on node0 device  7", "on node1 device  7"), r"on every host.*1 to 7"),
    "unlike devices": (GOOD.replace("07:00] NVIDIA H100", "07:00] NVIDIA A100"), r"devices of one kind"),
    "a negative time": (GOOD.replace("  324.70", " -324.70"), r"test\.log:19.*-324\.70 us can't be"),
    "no number": (GOOD.replace("  324.70", "   three"), r"test\.log:19.*numbers"),
    "one rank": (log("all_reduce", LARGE, ranks=1), r"one rank sends nothing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_log_is_an_error_that_names_the_file_and_the_line(tmp_path: Path, case: str) -> None:
    text, expected = BROKEN[case]
    with pytest.raises(InvalidInput, match=expected):
        read_collective_log(written(tmp_path, text))


def test_a_file_that_is_absent_or_too_large_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="no such file"):
        read_collective_log(str(tmp_path / "none.log"))
    large = tmp_path / "large.log"
    with large.open("wb") as file:
        file.truncate(17 * 2**20)
    with pytest.raises(UnreadableFile, match="larger than 16 MiB"):
        read_collective_log(str(large))

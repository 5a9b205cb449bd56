"""What a terminal is told of ranks that do not get on."""

from typing import Any

import pytest

from fermi.jobs import causes
from fermi.runner import terminal_report

LINK = {"peer": "10.0.0.2", "port": 4711, "unacked": 512, "retries": 4, "seconds": 6.5}


def stalled(at: str = "data.py:88 in load_batch", *, still: bool = True, **also: Any) -> dict[str, Any]:
    about = {"since": 100.0, "looked_at": 112.0, "phase": "running", "in": "", "links": [], "stopped": None}
    return {**about, "at": at, "still": still, **also}


def report_stalls(*looks: list[dict[str, Any] | None]) -> list[str]:
    """By looks at all ranks."""
    lines: list[str] = []
    stalls = terminal_report.StallReporter(lines.append)
    for look in looks:
        ranks = [{"rank": rank, "state": "running", "stalled": one} for rank, one in enumerate(look)]
        stalls.save({"state": "running", "ranks": ranks})
    return lines


def test_stalled_ranks_are_reported_once_with_their_locations() -> None:
    waits = stalled("train.py:120 in main", **{"in": "all_reduce"})
    look = [waits, waits, stalled(), waits]
    later = [one | {"looked_at": 140.0} for one in look]
    assert report_stalls(look, later, [None] * 4, [None] * 4) == [
        "no progress for 12 s: ranks 0-1, 3 are in all_reduce (train.py:120 in main); "
        "rank 2 is at data.py:88 in load_batch",
        "the ranks go on",
    ]


def test_a_slow_rank_that_others_wait_for_is_reported_after_a_minute() -> None:
    works, waits = stalled("train.py:9 in evaluate", still=False), stalled("train.py:7 in main", **{"in": "barrier"})
    assert report_stalls([works, waits]) == []
    [line] = report_stalls([works | {"looked_at": 161.0}, waits])
    assert line == (
        "no progress for 61 s: rank 0 is at train.py:9 in evaluate, at work; rank 1 is in barrier (train.py:7 in main)"
    )


@pytest.mark.parametrize(
    ("one", "where"),
    [
        (stalled(""), "outside of the script"),
        (stalled("", phase="ending"), "in the teardown"),
        (stalled(stopped={"pid": 7, "signal": "SIGTSTP"}), "stopped by SIGTSTP: `kill -CONT 7` lets it go on"),
        (stalled("", **{"in": "all_reduce"}, links=[LINK]), "in all_reduce, where 10.0.0.2:4711 does not answer"),
    ],
)
def test_the_location_of_a_rank_is_rendered(one: dict[str, Any], where: str) -> None:
    assert terminal_report.describe_place(one) == where


def test_the_end_of_a_rank_is_rendered() -> None:
    error = {"type": "ValueError", "message": "bad shape\nmore", "file": "train.py", "line": 88, "function": "forward"}
    kill = {"by": "memory", "scope": "cgroup", "limit": 2 << 30, "used": None}
    assert (
        terminal_report.describe_failure({"error": error, "kill": None})
        == ": ValueError: bad shape (train.py:88 in forward)"
    )
    assert terminal_report.describe_failure({"error": None, "kill": kill}).endswith(
        "its limit has no more memory (2048 MiB)"
    )
    lost = {"by": "gpu", "gpu": 3, "xid": 79, "line": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."}
    assert terminal_report.describe_failure({"error": None, "kill": lost}) == f": GPU 3: {lost['line']}"
    assert terminal_report.describe_failure({"error": None, "kill": None}) == ""
    held = {"by": "port", "port": 29500, "holder": "pid 7 (python serve.py)"}
    assert (
        terminal_report.describe_failure({"error": None, "kill": held})
        == "; port 29500 is in use by pid 7 (python serve.py)"
    )
    assert terminal_report.describe_failure({"error": error, "kill": {**held, "holder": None}}).endswith(
        "forward); port 29500 is in use by another process"
    )


def test_an_exceeded_bound_is_reported_with_numbers_and_advice() -> None:
    figures = {
        "rank": 3, "processes": 100, "threads": 120, "processBound": 100, "threadBound": 800, "files": 700,
        "fileBound": 600, "used": "41.2 GiB", "size": "41 GiB", "bound": "40 GiB", "wrote": "3 GiB", "seconds": 9,
        "path": "/d", "freeMiB": 1, "totalMiB": 64, "reserveMiB": 3, "free": 5, "total": 64,
    }  # fmt: skip
    assert set(terminal_report.CAUSE_TEXTS) == {*causes.BOUND_CODES, "DISK_FULL"}
    said = [terminal_report.describe_cause({"code": code, **figures}) for code in terminal_report.CAUSE_TEXTS]
    assert "by rank –;" in terminal_report.describe_cause({"code": "PROCESS_BOUND_REACHED", **figures, "rank": None})
    assert terminal_report.describe_cause({"code": "NEW"}) == "NEW"
    assert said[1] == (
        "700 files were open, most of them by rank 3; the bound is 600: "
        "close files, connections and memory maps that are no longer used, or raise --open-files"
    )

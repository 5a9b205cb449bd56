"""Who failed first, from what ranks and hosts say: one rule for all engines, as a table."""

from typing import Any

import pytest

from fermi import messages
from fermi.engines.failure_cause import (
    MAX_IDLE_SECONDS,
    HostLoss,
    find_early_exit,
    find_failure_cause,
    list_hanging_ranks,
)
from fermi.jobs.spec import Cause, RankStatus
from fermi.runner import first_failure

LOST = Cause("WORKER_LOST", {"worker": "gn6-0"})


def rank(
    number: int, exit_code: int | None, ended_at: float | None = None, *, asked: bool = False, error: Any = None
) -> RankStatus:
    state = "running" if exit_code is None else "exited"
    return RankStatus(number, number, state, 100 + number, exit_code, ended_at, asked, error=error)


def error(at: float, kind: str = "ValueError", message: str = "bad shape (4, 7)") -> dict[str, Any]:
    return {"type": kind, "message": message, "file": "/x/train.py", "line": 88, "function": "forward", "at": at}


GONE = ("RuntimeError", "[../gloo/transport/tcp/pair.cc:535] Connection closed by peer [10.0.0.2]:4711")


def judged(*ranks: RankStatus) -> tuple[object, ...] | None:
    cause = find_failure_cause(ranks, lambda node_rank: f"n{node_rank}")
    return (cause.code, *(cause.params[name] for name in ("rank", "left") if name in cause.params)) if cause else None


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([rank(0, None), rank(1, 0, 10.0)], None),
        ([rank(0, 1, 10.1), rank(1, 1, 10.0)], ("RANK_FAILED", 1)),
        ([rank(0, 1, 10.0), rank(1, -9, 10.2)], ("RANK_KILLED", 1)),
        ([rank(0, 1, 10.0), rank(1, 137, 10.2)], ("RANK_KILLED", 1)),  # by a program around it
        ([rank(0, 1, 10.0), rank(1, 143, 10.2)], ("RANK_FAILED", 0)),
        ([rank(0, 1, 10.0), rank(1, -9, 60.0)], ("RANK_FAILED", 0)),
        # an abort is what gloo and NCCL do when a peer is gone
        ([rank(0, -6, 10.2), rank(1, 1, 10.0)], ("RANK_FAILED", 1)),
        ([rank(0, -6, 10.0), rank(1, 1, 10.2)], ("RANK_KILLED", 0)),
        # what was asked for blames nobody, however it ended
        ([rank(0, 1, 10.0), rank(1, -9, 10.5, asked=True), rank(2, 143, 10.1, asked=True)], ("RANK_FAILED", 0)),
        ([rank(0, 143, 10.0, asked=True), rank(1, 1, 12.0)], ("RANK_FAILED", 1)),
        # and where nobody failed before, somebody outside asked: it is no success either
        ([rank(0, 143, 10.0, asked=True)], ("RUNNER_TERMINATED",)),
        ([rank(0, 0, 10.0, asked=True), rank(1, -9, 40.0, asked=True)], ("RUNNER_TERMINATED",)),
        ([rank(0, 0, 10.0), rank(1, 0, 10.2)], None),
        # who left early is told beside its victim, and is not the culprit
        ([rank(0, 1, 10.4), rank(1, 0, 10.0)], ("RANK_FAILED", 0, "1")),
        ([rank(0, -6, 10.4), rank(1, 0, 10.0)], ("RANK_KILLED", 0)),
        ([rank(0, -11, 10.4), rank(1, 0, 10.0)], ("RANK_KILLED", 0)),
        ([rank(0, 1, 10.0), rank(1, 0, 10.4)], ("RANK_FAILED", 0)),
        ([rank(0, 1, 10.4), rank(1, 0, 10.0, asked=True)], ("RANK_FAILED", 0)),
        # the exception counts, and not how long the process took to go down after it
        ([rank(0, 1, 10.3, error=error(10.2)), rank(1, 1, 13.0, error=error(10.0))], ("RANK_FAILED", 1)),
        # whoever raised before it was asked, its runner has not marked as asked (tests/unit/runner/test_node.py)
        ([rank(0, 1, 10.3, error=error(10.2)), rank(1, 1, 18.0, asked=True, error=error(10.9))], ("RANK_FAILED", 0)),
        # a broken connection is what comes of a peer's failure, whatever the hosts' clocks say
        ([rank(0, 1, 10.0, error=error(9.9, *GONE)), rank(1, 1, 10.5, error=error(10.4))], ("RANK_FAILED", 1)),
        ([rank(0, 1, 10.0, error=error(9.9, *GONE)), rank(1, 1, 10.5, error=error(10.4, *GONE))], ("RANK_FAILED", 0)),
    ],
)  # fmt: skip
def test_the_rank_that_failed_first_is_found(ranks: list[RankStatus], expected: tuple[object, ...] | None) -> None:
    assert judged(*ranks) == expected
    assert judged(*reversed(ranks)) == expected, "the order in which they are listed says nothing"


@pytest.mark.parametrize(
    ("end", "heard_at", "expected"),
    [
        (rank(0, 1, 100.0), 99.0, "WORKER_LOST"),  # a connection that broke
        (rank(0, -6, 100.0), 99.0, "WORKER_LOST"),
        (rank(0, 1, 100.0), None, "WORKER_LOST"),
        (rank(0, 1, 100.0), 103.0, "WORKER_LOST"),  # clocks differ
        (rank(0, 1, 100.0), 160.0, "RANK_FAILED"),  # it spoke on after that failure
        (rank(0, -9, 100.0), 99.0, "RANK_KILLED"),
        (rank(0, None), 99.0, "WORKER_LOST"),
        (rank(0, 0, 100.0), 99.0, "WORKER_LOST"),
    ],
)
def test_a_lost_host_explains_errors_of_its_peers(end: RankStatus, heard_at: float | None, expected: str) -> None:
    cause = find_failure_cause([end, rank(1, None)], str, [HostLoss(LOST, heard_at)])
    assert cause is not None
    assert cause.code == expected


def hanging(number: int, still_since: float | None) -> RankStatus:
    return RankStatus(number, number, "running", 100 + number, still_since=still_since)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([rank(0, 0, 1000.0), hanging(1, 1000.0)], [1]),
        ([rank(0, 0, 1000.0), hanging(1, 900.0), hanging(2, 950.0)], [1, 2]),
        ([hanging(0, 1000.0), rank(1, 0, 1000.0)], [0]),
        ([rank(0, 0, 1000.0), hanging(1, 900.0), hanging(2, None)], []),  # one of them does something
        ([rank(0, 0, 1001.0), hanging(1, 900.0)], []),  # the others have not ended long ago
        ([rank(0, 0, 1000.0), hanging(1, 1001.0)], []),
        ([hanging(0, 900.0), hanging(1, 900.0)], []),  # it may be all of them that wait for something
        ([rank(0, 1, 1000.0), hanging(1, 900.0)], []),  # that is a failure
        ([rank(0, 0, 1000.0, asked=True), hanging(1, 900.0)], []),
        ([rank(0, 0, 1000.0), rank(1, 0, 1000.0)], []),
        ([rank(0, 0, 1000.0), RankStatus(1, 1, "waiting")], []),
    ],
)  # fmt: skip
def test_ranks_still_running_long_after_all_others_succeeded_hang(ranks: list[RankStatus], expected: list[int]) -> None:
    assert [one.rank for one in list_hanging_ranks(ranks, 1000.0 + MAX_IDLE_SECONDS)] == expected


def test_of_several_lost_hosts_the_first_silent_one_is_named() -> None:
    other = Cause("WORKER_LOST", {"worker": "gn7-0"})
    losses = [HostLoss(LOST, 20.0), HostLoss(other, 10.0)]
    assert find_failure_cause([rank(0, 1, 21.0)], str, losses) == other


def test_an_early_exit_is_named_with_its_time_ago() -> None:
    ranks = [rank(0, 1, 100.04), *(rank(n, 0, 90.0 + n) for n in range(1, 10))]
    cause = find_failure_cause(ranks, lambda node_rank: f"n{node_rank}")
    assert cause is not None
    assert cause.params == {
        "rank": 0, "nodeRank": 0, "node": "n0", "exitCode": 1, "left": "1, 2, 3, 4, 5, 6, 7, 8, …", "seconds": 9.0,
    }  # fmt: skip


def test_an_early_exit_explains_the_failure_of_the_remaining_ranks() -> None:
    leaver = RankStatus(2, 1, "exited", 102, 0, 10.0, last_step=17)
    failed = [rank(number, 1, 10.4, error=error(10.3, *GONE)) for number in (0, 1, 3)]
    cause = find_early_exit([*failed, leaver], 0, lambda node_rank: f"n{node_rank}")
    assert cause is not None
    assert messages.render_text(cause.code, "en", **cause.params)[0].startswith(
        "Rank 2 on n1 ended with exit code 0 at step 17 while 3 ranks were still running"
    )
    assert "第 17 步" in messages.render_text(cause.code, "zh", **cause.params)[0]
    second = rank(4, 0, 10.2)
    cause = find_early_exit([*failed, second, leaver], 0, lambda node_rank: f"n{node_rank}")
    assert cause is not None
    assert (cause.params["rank"], cause.params["others"], cause.params["count"]) == (2, "4", 3)


@pytest.mark.parametrize(
    "others",
    [
        [rank(1, None)],
        [rank(1, 0, 10.6)],  # it ended later
        [rank(1, 0, 10.0, asked=True)],  # it was told to
        [rank(1, 1, 10.0, error=error(9.9, *GONE))],
    ],
)
def test_no_early_exit_where_ranks_continued_were_stopped_or_failed(others: list[RankStatus]) -> None:
    assert find_early_exit([rank(0, 1, 10.4, error=error(10.3, *GONE)), *others], 0, str) is None


def test_a_runner_uses_the_same_rule() -> None:
    entries = [
        {"rank": 4, "state": "exited", "exit_code": 1, "ended_at": 10.0, "asked": False},
        {"rank": 5, "state": "exited", "exit_code": -9, "ended_at": 10.1, "asked": False},
        {"rank": 6, "state": "exited", "exit_code": -9, "ended_at": 10.0, "asked": True},
        {"rank": 7, "state": "running", "exit_code": None, "ended_at": None, "asked": False},
    ]
    found = first_failure.find_first_failure(first_failure.list_ends(entries))
    assert found is not None
    assert found.rank == 5


def test_a_cause_has_the_exception_and_the_users_line() -> None:
    cause = find_failure_cause([rank(3, 1, 10.0, error=error(9.9))], lambda node_rank: "env-003")
    assert cause is not None
    assert messages.render_text(cause.code, "en", **cause.params)[0] == (
        "Rank 3 on env-003: ValueError: bad shape (4, 7) — train.py:88 in forward"
    )
    assert (
        "ValueError: bad shape (4, 7) — train.py:88 in forward"
        in messages.render_text(cause.code, "zh", **cause.params)[0]
    )


def test_a_rank_with_an_exception_was_not_killed_by_the_signal_that_its_launcher_reports() -> None:
    cause = find_failure_cause([rank(0, 137, 10.0, error=error(9.0))], lambda _: "n0")
    assert cause is not None
    assert (cause.code, cause.params["exitCode"]) == ("RANK_FAILED", 137)


def test_an_unknown_signal_has_a_name() -> None:
    cause = find_failure_cause([rank(0, -64, 1.0), rank(1, -65, 2.0)], str)
    assert cause is not None
    assert cause.params["signal"] == "SIGRTMAX"
    cause = find_failure_cause([rank(1, -65, 2.0)], str)
    assert cause is not None
    assert cause.params["signal"] == "signal 65"

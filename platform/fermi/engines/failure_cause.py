"""Find why an attempt failed from the reports of its ranks and hosts; the same for every engine. The rule is the
runner's, too (`fermi.runner.first_failure`)."""

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fermi.engines import runner_reports
from fermi.jobs.causes import (
    BOUND_CODES,
    CODE_DELIVERY_CODES,
    CODE_PREPARING_CODES,
    RANK_LEFT_EARLY,
    RESUME_NOT_ON_NODE,
)
from fermi.jobs.spec import Cause, RankStatus
from fermi.runner import first_failure
from fermi.runner.activity import MAX_IDLE_SECONDS, will_never_end
from fermi.runner.exit_codes import to_process_code

MAX_NAMED = 8
RUNNER_CAUSES = frozenset(
    {"MASTER_PORT_TAKEN", "DISK_FULL", "OUT_OF_MEMORY", RESUME_NOT_ON_NODE, *BOUND_CODES, *CODE_DELIVERY_CODES}
)
"""Causes that a runner finds out itself: on its own machine, and at the time."""
RunnerCause = Mapping[str, Any]
"""Cause that a runner wrote: its `code`, and the parameters of its text."""


@dataclass(frozen=True, slots=True)
class HostLoss:
    """Host, or its agent or runner, that is gone. `heard_at`: its last sign of life, in unix seconds; None = not
    known."""

    cause: Cause
    heard_at: float | None = None


def find_failure_cause(
    ranks: Iterable[RankStatus],
    node_name: Callable[[int], str],
    losses: Sequence[HostLoss] = (),
    runner_causes: Iterable[tuple[int, RunnerCause | None]] = (),
) -> Cause | None:
    """Return what failed first; None when nothing did. `node_name`: name of a node rank. `runner_causes`: written by
    the runners of these node ranks."""
    for node_rank, words in runner_causes:
        if words and (cause := build_runner_cause(words, {"nodeRank": node_rank, "node": node_name(node_rank)})):
            return cause
    ranks = list(ranks)
    ends = _list_ends(ranks)
    culprit = first_failure.find_first_failure(ends)
    if losses and (culprit is None or culprit.stop_requested):
        return losses[0].cause
    if culprit and (
        explaining := [loss for loss in losses if first_failure.is_explained_by_host_loss(culprit, loss.heard_at)]
    ):
        return min(explaining, key=lambda loss: loss.heard_at or 0.0).cause
    if culprit is None or culprit.stop_requested:
        return _find_outside_stop(ranks, node_name)
    seen = next(rank for rank in ranks if rank.rank == culprit.rank)
    about = {
        "rank": culprit.rank,
        "nodeRank": seen.node_rank,
        "node": node_name(seen.node_rank),
        **first_failure.describe_exception(seen.error),
    }
    return build_rank_cause(culprit, about, first_failure.list_earlier_exits(culprit, ends))


def build_runner_cause(cause: RunnerCause, location: Mapping[str, object]) -> Cause | None:
    """Return a runner's cause with its location; None for what a program other than our runner may have written."""
    code = cause.get("code")
    params = {name: value for name, value in cause.items() if name != "code"}
    return Cause(code, {**params, **location}) if code in RUNNER_CAUSES else None


def find_preparation(reported: Iterable[tuple[str, RunnerCause | None]]) -> Cause | None:
    """Return what nodes do before their ranks start (`reported`: by node name): of several the step that takes longest,
    with all nodes that are at it. A node with a runner for each rank is named once."""
    found = [(name, words) for name, words in reported if words and words["code"] in CODE_PREPARING_CODES]
    if not found:
        return None
    code = max((words["code"] for _, words in found), key=CODE_PREPARING_CODES.index)
    at_it = [(name, words) for name, words in found if words["code"] == code]
    params = {key: value for key, value in at_it[0][1].items() if key != "code"}
    return Cause(code, {**params, "node": ", ".join(list(dict(at_it))[:MAX_NAMED])})


def list_hanging_ranks(ranks: Sequence[RankStatus], now: float) -> list[RankStatus]:
    """Return the ranks of a whole attempt that hang although all others ended with 0 long ago, on any node; none
    otherwise."""
    ended = [rank for rank in ranks if rank.state == "exited"]
    if not ended:
        return []
    left = [rank for rank in ranks if rank.state != "exited"]
    well = all(rank.exit_code == 0 and not rank.asked for rank in ended)
    still = [rank.still_since for rank in left]
    return (
        left if well and will_never_end([rank.ended_at or 0.0 for rank in ended], still, now, MAX_IDLE_SECONDS) else []
    )


def _find_outside_stop(ranks: Iterable[RankStatus], node_name: Callable[[int], str]) -> Cause | None:
    """Return the cause for ranks that were asked to end although none had failed: neither a failure of their own nor a
    success, whatever their exit code. (Where the platform asks, it has stored why before.)"""
    asked = [rank for rank in ranks if rank.asked and rank.state == "exited"]
    if not asked:
        return None
    node_rank = min(asked, key=lambda rank: rank.ended_at or 0.0).node_rank
    return Cause("RUNNER_TERMINATED", {"nodeRank": node_rank, "node": node_name(node_rank)})


def build_rank_cause(
    culprit: first_failure.RankEnd, location: dict[str, object], earlier_ends: Sequence[first_failure.RankEnd] = ()
) -> Cause:
    """Return the cause for the rank that failed first. `earlier_ends`: ranks that had ended with 0 before."""
    told = "exception" in location  # then the exit code of a launcher is another rank's
    if culprit.exit_code < 0 or (first_failure.was_killed(culprit.exit_code) and not told):
        return Cause("RANK_KILLED", {**location, "signal": get_signal_name(-to_process_code(culprit.exit_code))})
    location = {**location, "exitCode": culprit.exit_code}
    if not earlier_ends:
        return Cause("RANK_FAILED", location)
    seconds = round(culprit.ended_at - earlier_ends[0].ended_at, 1)
    return Cause("RANK_FAILED", {**location, "left": _format_ranks(earlier_ends), "seconds": seconds})


def _format_ranks(ends: Sequence[first_failure.RankEnd]) -> str:
    return ", ".join(str(end.rank) for end in ends[:MAX_NAMED]) + (", …" if len(ends) > MAX_NAMED else "")


def find_early_exit(ranks: Sequence[RankStatus], victim: int, node_name: Callable[[int], str]) -> Cause | None:
    """Return the cause that names the rank which ended with 0 while others went on, where the failure of the rank
    `victim` resulted from that: it reports a peer that is gone. None where no rank had ended before it failed."""
    seen = {rank.rank: rank for rank in ranks}
    ends = _list_ends(ranks)
    failed = next((end for end in ends if end.rank == victim), None)
    gone = first_failure.list_earlier_exits(failed, ends) if failed else []
    if not gone:
        return None
    first = seen[gone[0].rank]
    params: dict[str, Any] = {
        "rank": first.rank, "nodeRank": first.node_rank, "node": node_name(first.node_rank), "exitCode": 0,
        "count": len(seen) - len(gone), "victim": victim,
    }  # fmt: skip
    if first.last_step:
        params["step"] = first.last_step
    if len(gone) > 1:
        params["others"] = _format_ranks(gone[1:])
    return Cause(RANK_LEFT_EARLY.code, params)


def is_rank_killed(cause: Cause) -> bool:
    """Return whether a cause of `build_rank_cause` is a signal that explains its peers' errors."""
    requests = [get_signal_name(number) for number in first_failure.UNINFORMATIVE_SIGNALS]
    return cause.code == "RANK_KILLED" and cause.params.get("signal") not in requests


def get_signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def build_rank_status(entry: Mapping[str, Any], node_rank: int) -> RankStatus:
    """Return the status of a rank from its runner's entry."""
    return RankStatus(
        entry["rank"], node_rank, entry["state"], entry["pid"], entry["exit_code"], entry["ended_at"],
        bool(entry.get("asked")), entry.get("still_since"),
        entry.get("error"), entry.get("stalled"), entry.get("kill"), **runner_reports.parse_course(entry),
    )  # fmt: skip


def _list_ends(ranks: Iterable[RankStatus]) -> list[first_failure.RankEnd]:
    return [_build_end(rank) for rank in ranks if rank.state == "exited" and rank.exit_code is not None]


def _build_end(rank: RankStatus) -> first_failure.RankEnd:
    assert rank.exit_code is not None
    return first_failure.RankEnd(
        rank.rank, rank.exit_code, rank.ended_at or 0.0, rank.asked, *first_failure.classify_error(rank.error)
    )  # fmt: skip

"""Find why an attempt failed from the reports of its ranks and hosts; the same for every engine. The rule is the
runner's, too (`fermi.runner.first_failure`)."""

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fermi.engines import runner_reports
from fermi.jobs.causes import BOUNDS, CODE, RANK_LEFT_EARLY, READYING
from fermi.jobs.spec import Cause, RankSeen
from fermi.runner import first_failure
from fermi.runner.activity import LAST_SECONDS, never_end

MOST_NAMED = 8
BY_RUNNERS = frozenset({"MASTER_PORT_TAKEN", "DISK_FULL", "OUT_OF_MEMORY", *BOUNDS, *CODE})
"""Causes that a runner finds out itself: on its own machine, and at the time."""
Words = Mapping[str, Any]
"""Cause that a runner wrote: its `code`, and the parameters of its text."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Host, or its agent or runner, that is gone. `heard_at`: its last sign of life, in unix seconds; None = not
    known."""

    cause: Cause
    heard_at: float | None = None


def cause_of_failure(
    ranks: Iterable[RankSeen],
    node_name: Callable[[int], str],
    losses: Sequence[Loss] = (),
    said: Iterable[tuple[int, Words | None]] = (),
) -> Cause | None:
    """Return what failed first; None when nothing did. `node_name`: name of a node rank. `runner_causes`: written by
    the runners of these node ranks."""
    for node_rank, words in said:
        if words and (cause := by_runner(words, {"nodeRank": node_rank, "node": node_name(node_rank)})):
            return cause
    ranks = list(ranks)
    ends = _ends(ranks)
    culprit = first_failure.first_to_fail(ends)
    if losses and (culprit is None or culprit.asked):
        return losses[0].cause
    if culprit and (explaining := [loss for loss in losses if first_failure.loss_explains(culprit, loss.heard_at)]):
        return min(explaining, key=lambda loss: loss.heard_at or 0.0).cause
    if culprit is None or culprit.asked:
        return _asked_from_outside(ranks, node_name)
    seen = next(rank for rank in ranks if rank.rank == culprit.rank)
    about = {
        "rank": culprit.rank,
        "nodeRank": seen.node_rank,
        "node": node_name(seen.node_rank),
        **first_failure.erred(seen.error),
    }
    return told(culprit, about, first_failure.left_before(culprit, ends))


def by_runner(words: Words, about: Mapping[str, object]) -> Cause | None:
    """Return a runner's cause with its location; None for what a program other than our runner may have written."""
    code = words.get("code")
    params = {name: value for name, value in words.items() if name != "code"}
    return Cause(code, {**params, **about}) if code in BY_RUNNERS else None


def making_ready(said: Iterable[tuple[str, Words | None]]) -> Cause | None:
    """Return what nodes do before their ranks start (`reported`: by node name): of several the step that takes longest,
    with all nodes that are at it. A node with a runner for each rank is named once."""
    found = [(name, words) for name, words in said if words and words["code"] in READYING]
    if not found:
        return None
    code = max((words["code"] for _, words in found), key=READYING.index)
    at_it = [(name, words) for name, words in found if words["code"] == code]
    params = {key: value for key, value in at_it[0][1].items() if key != "code"}
    return Cause(code, {**params, "node": ", ".join(list(dict(at_it))[:MOST_NAMED])})


def never_ending(ranks: Sequence[RankSeen], moment: float) -> list[RankSeen]:
    """Return the ranks of a whole attempt that hang although all others ended with 0 long ago, on any node; none
    otherwise."""
    ended = [rank for rank in ranks if rank.state == "exited"]
    if not ended:
        return []
    left = [rank for rank in ranks if rank.state != "exited"]
    well = all(rank.exit_code == 0 and not rank.asked for rank in ended)
    still = [rank.still_since for rank in left]
    return left if well and never_end([rank.ended_at or 0.0 for rank in ended], still, moment, LAST_SECONDS) else []


def _asked_from_outside(ranks: Iterable[RankSeen], node_name: Callable[[int], str]) -> Cause | None:
    """Return the cause for ranks that were asked to end although none had failed: neither a failure of their own nor a
    success, whatever their exit code. (Where the platform asks, it has stored why before.)"""
    asked = [rank for rank in ranks if rank.asked and rank.state == "exited"]
    if not asked:
        return None
    node_rank = min(asked, key=lambda rank: rank.ended_at or 0.0).node_rank
    return Cause("RUNNER_TERMINATED", {"nodeRank": node_rank, "node": node_name(node_rank)})


def told(culprit: first_failure.End, about: dict[str, object], gone: Sequence[first_failure.End] = ()) -> Cause:
    """Return the cause for the rank that failed first. `earlier_ends`: ranks that had ended with 0 before."""
    if culprit.exit_code < 0:
        return Cause("RANK_KILLED", {**about, "signal": signal_name(-culprit.exit_code)})
    about = {**about, "exitCode": culprit.exit_code}
    if not gone:
        return Cause("RANK_FAILED", about)
    seconds = round(culprit.ended_at - gone[0].ended_at, 1)
    return Cause("RANK_FAILED", {**about, "left": _listed(gone), "seconds": seconds})


def _listed(found: Sequence[first_failure.End]) -> str:
    return ", ".join(str(end.rank) for end in found[:MOST_NAMED]) + (", …" if len(found) > MOST_NAMED else "")


def left_early(ranks: Sequence[RankSeen], victim: int, node_name: Callable[[int], str]) -> Cause | None:
    """Return the cause that names the rank which ended with 0 while others went on, where the failure of the rank
    `victim` resulted from that: it reports a peer that is gone. None where no rank had ended before it failed."""
    seen = {rank.rank: rank for rank in ranks}
    ends = _ends(ranks)
    failed = next((end for end in ends if end.rank == victim), None)
    gone = first_failure.left_before(failed, ends) if failed else []
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
        params["others"] = _listed(gone[1:])
    return Cause(RANK_LEFT_EARLY.code, params)


def was_killed(cause: Cause) -> bool:
    """Return whether a cause of `build_rank_cause` is a signal that explains its peers' errors."""
    requests = [signal_name(number) for number in first_failure.EXPLAIN_NOTHING]
    return cause.code == "RANK_KILLED" and cause.params.get("signal") not in requests


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def rank_seen(entry: Mapping[str, Any], node_rank: int) -> RankSeen:
    """Return the status of a rank from its runner's entry."""
    return RankSeen(
        entry["rank"], node_rank, entry["state"], entry["pid"], entry["exit_code"], entry["ended_at"],
        bool(entry.get("asked")), entry.get("still_since"),
        entry.get("error"), entry.get("stalled"), entry.get("kill"), **runner_reports.course(entry),
    )  # fmt: skip


def _ends(ranks: Iterable[RankSeen]) -> list[first_failure.End]:
    return [_end(rank) for rank in ranks if rank.state == "exited" and rank.exit_code is not None]


def _end(rank: RankSeen) -> first_failure.End:
    assert rank.exit_code is not None
    return first_failure.End(
        rank.rank, rank.exit_code, rank.ended_at or 0.0, rank.asked, *first_failure.of_error(rank.error)
    )  # fmt: skip

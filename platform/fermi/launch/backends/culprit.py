"""Which rank an attempt failed by."""

import signal
from collections.abc import Callable, Iterable

from fermi.launch.spec import Cause, RankSeen

TOGETHER_SECONDS = 5


def cause_of_failure(ranks: Iterable[RankSeen], node_name: Callable[[int], str]) -> Cause | None:
    """What failed first; None when no rank did. A rank that a signal killed explains its peers' errors, which follow it
    within moments. `node_name`: of a node rank."""
    failed = [rank for rank in ranks if rank.state == "exited" and rank.exit_code]
    if not failed:
        return None
    first_end = min(rank.ended_at or 0 for rank in failed)

    def guilt(rank: RankSeen) -> tuple[bool, float]:
        with_first = (rank.ended_at or 0) - first_end < TOGETHER_SECONDS
        killed = (rank.exit_code or 0) < 0 and rank.exit_code != -signal.SIGTERM
        return not (with_first and killed), rank.ended_at or 0

    culprit = min(failed, key=guilt)
    params = {"rank": culprit.rank, "nodeRank": culprit.node_rank, "node": node_name(culprit.node_rank)}
    assert culprit.exit_code is not None
    if culprit.exit_code < 0:
        return Cause("RANK_KILLED", {**params, "signal": signal.Signals(-culprit.exit_code).name})
    return Cause("RANK_FAILED", {**params, "exitCode": culprit.exit_code})

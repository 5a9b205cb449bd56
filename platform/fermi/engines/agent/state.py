"""Build an observation from what the workers of an attempt report. Pure."""

from fermi.engines import runner_reports
from fermi.engines.agent.store import Attempt, Report
from fermi.engines.failure_cause import Loss, cause_of_failure, making_ready
from fermi.jobs.spec import Cause, Observation, Phase, RankSeen

_SEEN = {"ordered": "waiting", "starting": "waiting", "running": "running", "exited": "exited"}


def observe(attempt: Attempt | None) -> Observation:
    """Return the observation of an attempt; None: it was never ordered."""
    if attempt is None or not attempt.reports:
        return Observation(Phase.ABSENT, False if attempt and attempt.stopped else None)
    reports = sorted(attempt.reports, key=lambda report: report.rank)
    ranks = tuple(_rank(report) for report in reports)
    left = _left([_of_one(report, attempt.stopped) for report in reports])
    if cause := _cause(reports, ranks, attempt.stopped):
        return Observation(Phase.FAILED, left, ranks, cause)
    phase = _phase(reports)
    at = ((report.node, report.doing) for report in reports)
    waiting = making_ready(at) if phase is Phase.STARTING and not attempt.stopped else None
    return Observation(phase, left, ranks, waiting=waiting)


def _rank(report: Report) -> RankSeen:
    return RankSeen(
        report.rank, report.node_rank, _SEEN[report.state],  # type: ignore[arg-type]
        report.pid, report.exit_code, report.ended_at, report.asked, report.still_since,
        report.error, report.stalled, report.kill, **runner_reports.course(report.course),
    )  # fmt: skip


def _of_one(report: Report, stopped: bool) -> bool | None:
    """Return whether anything of a worker's rank is left; None: not known. A lost worker reports nothing. Once its
    attempt is stopped it is fenced: whatever still runs there is ended by its agent before anything else starts, so
    nothing of the attempt can come back."""
    if report.left is False:
        return False
    if report.status == "lost":
        return False if stopped else None
    return True


def _left(each: list[bool | None]) -> bool | None:
    """Return whether anything is left of several: True beats None, None beats False."""
    return True if True in each else None if None in each else False


def _cause(reports: list[Report], ranks: tuple[RankSeen, ...], stopped: bool) -> Cause | None:
    """Return why the attempt failed; None: it has not. A rank that never started explains nothing where the attempt was
    stopped."""
    nodes = {report.node_rank: report.node for report in reports}
    losses = [
        Loss(Cause("WORKER_LOST", {"worker": one.worker, "node": one.node, "rank": one.rank}), one.heard_at)
        for one in reports
        if one.status == "lost" and one.state != "exited"
    ]
    if not stopped:
        losses += [
            Loss(Cause("RUNNER_LOST", {"nodeRank": one.node_rank, "node": one.node}))
            for one in reports
            if one.state == "exited" and one.exit_code is None
        ]
    said = ((report.node_rank, report.cause) for report in reports)
    return cause_of_failure(ranks, nodes.__getitem__, losses, said)


def _phase(reports: list[Report]) -> Phase:
    """Return the phase. The attempt has succeeded once nothing of it lives: a rank that ended may have left helpers,
    which are being ended."""
    if all(report.state == "exited" for report in reports):
        if any(report.exit_code != 0 for report in reports):
            return Phase.FAILED
        swept = all(report.left is False or report.status == "lost" for report in reports)
        return Phase.SUCCEEDED if swept else Phase.RUNNING
    began = all(report.state in ("running", "exited") for report in reports)
    return Phase.RUNNING if began else Phase.STARTING

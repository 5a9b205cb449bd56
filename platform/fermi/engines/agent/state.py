"""Build an observation from what the workers of an attempt report. Pure."""

from fermi.engines import runner_reports
from fermi.engines.agent.store import AttemptReports, RankReport
from fermi.engines.failure_cause import HostLoss, find_failure_cause, find_preparation
from fermi.jobs.spec import Cause, Observation, Phase, RankStatus

_RANK_STATES = {"ordered": "waiting", "starting": "waiting", "running": "running", "exited": "exited"}


def build_observation(attempt: AttemptReports | None) -> Observation:
    """Return the observation of an attempt; None: it was never ordered."""
    if attempt is None or not attempt.reports:
        return Observation(Phase.ABSENT, False if attempt and attempt.stopped else None)
    reports = sorted(attempt.reports, key=lambda report: report.rank)
    ranks = tuple(_build_rank_status(report) for report in reports)
    left = _combine_remains([_has_remains(report, attempt.stopped) for report in reports])
    if cause := _find_cause(reports, ranks, attempt.stopped):
        return Observation(Phase.FAILED, left, ranks, cause)
    phase = _find_phase(reports)
    at = ((report.node, report.doing) for report in reports)
    waiting = find_preparation(at) if phase is Phase.STARTING and not attempt.stopped else None
    return Observation(phase, left, ranks, waiting=waiting)


def _build_rank_status(report: RankReport) -> RankStatus:
    return RankStatus(
        report.rank, report.node_rank, _RANK_STATES[report.state],  # type: ignore[arg-type]
        report.pid, report.exit_code, report.ended_at, report.stop_requested, report.still_since,
        report.error, report.stalled, report.kill, **runner_reports.parse_course(report.course),
    )  # fmt: skip


def _has_remains(report: RankReport, stopped: bool) -> bool | None:
    """Return whether anything of a worker's rank is left; None: not known. A lost worker reports nothing. Once its
    attempt is stopped it is fenced: whatever still runs there is ended by its agent before anything else starts, so
    nothing of the attempt can come back."""
    if report.left is False:
        return False
    if report.status == "lost":
        return False if stopped else None
    return True


def _combine_remains(each: list[bool | None]) -> bool | None:
    """Return whether anything is left of several: True beats None, None beats False."""
    return True if True in each else None if None in each else False


def _find_cause(reports: list[RankReport], ranks: tuple[RankStatus, ...], stopped: bool) -> Cause | None:
    """Return why the attempt failed; None: it has not. A rank that never started explains nothing where the attempt was
    stopped."""
    nodes = {report.node_rank: report.node for report in reports}
    losses = [
        HostLoss(Cause("WORKER_LOST", {"worker": one.worker, "node": one.node, "rank": one.rank}), one.heard_at)
        for one in reports
        if one.status == "lost" and one.state != "exited"
    ]
    if not stopped:
        losses += [
            HostLoss(Cause("RUNNER_LOST", {"nodeRank": one.node_rank, "node": one.node}))
            for one in reports
            if one.state == "exited" and one.exit_code is None
        ]
    said = ((report.node_rank, report.cause) for report in reports)
    return find_failure_cause(ranks, nodes.__getitem__, losses, said)


def _find_phase(reports: list[RankReport]) -> Phase:
    """Return the phase. The attempt has succeeded once nothing of it lives: a rank that ended may have left helpers,
    which are being ended."""
    if all(report.state == "exited" for report in reports):
        if any(report.exit_code != 0 for report in reports):
            return Phase.FAILED
        swept = all(report.left is False or report.status == "lost" for report in reports)
        return Phase.SUCCEEDED if swept else Phase.RUNNING
    began = all(report.state in ("running", "exited") for report in reports)
    return Phase.RUNNING if began else Phase.STARTING

"""Decides what follows from an attempt's output and from ranks that do not advance: its end, whether another attempt
may follow, and where that one resumes."""

from itertools import pairwise
from math import inf
from typing import Any

from apps.common.clock import now
from apps.training.core import checkpoint_choice, findings
from apps.training.core.engine_access import build_cause
from apps.training.drills import runs
from apps.training.models import Attempt, Finding, Task
from apps.training.reconcile import crash_analysis
from apps.training.states import TaskKind
from apps.training.states.reasons import TaskReason
from fermi.diagnosis import Level, hangs, loss_anomalies
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import Cause, JobSpec, Observation, Phase

MAX_ROLLBACKS = 2
"""Most rollbacks to the same checkpoint: a loss that goes bad there a third time always does."""


def find_end_cause(task: Task, attempt: Attempt) -> Cause | None:
    """Return why a running attempt has to end, as its output shows; None if it goes on."""
    if task.kind == TaskKind.DRILL:
        return runs.find_end_cause(task, attempt)
    then = task.spec.get("on_bad_loss", "report")
    if then == "report":
        return None
    bad = Finding.objects.filter(
        task=task, attempt=attempt.number, code__in=loss_anomalies.CODES, level=Level.FAIL, until=None
    )
    if (row := bad.order_by("pk").first()) is None:
        return None
    return build_cause(task.cluster, TaskReason.BAD_LOSS, {**row.params, "how": row.code, "then": then})


def is_last_attempt(task: Task, attempt: Attempt) -> bool:
    """Return True if no attempt may follow this one, even if restarts are left."""
    if task.kind == TaskKind.DRILL:
        return runs.is_last_attempt(task, attempt)
    if attempt.outcome_params.get("then") == "stop" and attempt.outcome in (TaskReason.BAD_LOSS, *hangs.ENDING_CODES):
        return True
    if attempt.outcome == TaskReason.BAD_LOSS:
        return _has_rolled_back_enough(task)
    return bool(crash_analysis.detect_hang_loop(task, attempt) or crash_analysis.detect_crash_loop(task, attempt))


def describe_missing_steps(task: Task, attempt: Attempt) -> dict[str, Any]:
    """Return parameters for an attempt whose ranks all succeeded without an optimizer step that the probe saw. Empty if
    a user's script reported training of its own, or steps cannot be seen (JAX)."""
    ranks = attempt.seen.get("ranks", ())
    if task.kind != TaskKind.TRAINING or not task.spec.get("entrypoint") or task.framework == "jax":
        return {}
    if not ranks or any(rank.get("last_step") != 0 for rank in ranks):  # None: it has no pulse
        return {}
    if task.metrics.filter(attempt=attempt.number).exists() or task.checkpoints.filter(attempt=attempt.number).exists():
        return {}
    began = attempt.running_at or attempt.created_at
    ended = max((rank.get("ended_at") or 0.0 for rank in ranks), default=0.0)
    return {"seconds": max(1, round(ended - began.timestamp())), "count": len(ranks)}


def build_gang_layout(task: Task, observation: Observation) -> hangs.GangLayout:
    """Return the nodes' names and addresses, by which other nodes' connections may name them, and how long a likely
    hang has to last before it is certain. Past stalls are read only once that matters."""
    job = JobSpec.from_json(task.spec)
    placed = place_nodes(job.nodes, job.master)
    addresses = {
        address: at.node_rank
        for at in placed
        for address in (at.node.ip, at.node.host, at.node.address, at.node.hostname)
        if address
    }
    since = min((rank.stalled.get("since") or inf for rank in observation.ranks if rank.stalled), default=inf)
    past = findings.list_longest_stalls(task) if now().timestamp() - since >= hangs.MIN_CERTAIN_SECONDS else ()
    names = [at.node.name for at in placed]
    return hangs.GangLayout(
        names, addresses, patient=bool(job.hang_seconds), patience=hangs.compute_certain_seconds(past)
    )


def get_hang_policy(task: Task) -> str:
    """Return what to do if the attempt hangs for certain. A pre-flight test has its own time limits."""
    return "report" if task.kind == TaskKind.PREFLIGHT else str(task.spec.get("on_hang", "restart"))


def may_hang(attempt: Attempt, observation: Observation) -> bool:
    """Return True if a rank does not advance, or did not when last observed. Makes no query."""
    if attempt.outcome or observation.phase is Phase.UNKNOWN:
        return False
    before = attempt.seen.get("ranks", ())
    return any(rank.stalled for rank in observation.ranks) or any(rank.get("stalled") for rank in before)


def record_hang(task: Task, attempt: Attempt, verdict: hangs.HangVerdict | None) -> None:
    """Record the hang verdict as a finding, and resolve other hang findings of the attempt."""
    code = verdict.finding.code if verdict else ""
    if verdict:
        findings.record_findings(task.pk, attempt.number, [verdict.finding])
    for other in set(hangs.CODES) - {code}:
        findings.resolve_findings(task.pk, attempt.number, other)


def _has_rolled_back_enough(task: Task) -> bool:
    attempts = sorted(task.attempts.all(), key=lambda one: one.number)
    back = [after.resume_from for before, after in pairwise(attempts) if before.outcome == TaskReason.BAD_LOSS]
    return len(back) >= MAX_ROLLBACKS and back.count(checkpoint_choice.choose_resume_path(task)[0]) >= MAX_ROLLBACKS


def describe_step_back(task: Task, path: str, skipped: list[str]) -> tuple[str, dict[str, Any]] | None:
    """Return the event, as (code, params), for an attempt that resumes from an earlier checkpoint than the newest; None
    if it does not."""
    gone_bad = checkpoint_choice.list_diverged_attempts(task)
    newest = task.attempts.order_by("-number").first()
    if gone_bad and newest and (skipped or newest.outcome == TaskReason.BAD_LOSS):
        params = {"step": gone_bad[-1].step, **({"skipped": ", ".join(skipped)} if skipped else {})}
        return ("ROLLED_BACK", {"path": path, **params}) if path else ("ROLLED_BACK_TO_START", params)
    return ("RESUME_STEPPED_BACK", {"path": path, "skipped": ", ".join(skipped)}) if skipped else None

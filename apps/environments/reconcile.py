"""Brings environments to their desired state, one pass at a time.

    claim the due row ─▶ load ─▶ observe the engine (no transaction open) ─▶ decide (pure) ─▶ act (idempotent) ─▶ record

As with tasks: a pass needs nothing but the database and the engine, and acts before it records; a crash between the two
is repaired by the next pass, which does the same under the same name.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db import Error as AnyDatabaseError
from django.db.models import QuerySet

from apps.clusters.models import Cluster
from apps.clusters.services import record_reachable, record_unreachable
from apps.common import clock_jumps, pass_claims
from apps.common.clock import now
from apps.environments import actions, activity
from apps.environments.connection import get_environment_backend
from apps.environments.models import Hosted, Run
from apps.environments.states import STATES_AT_REST, STATES_WITH_RUN, DesiredState, EnvironmentState, idleness
from apps.environments.states.deadlines import CLAIM_SPAN, MAX_RETRIES, RECHECK_AFTER, compute_backoff
from apps.environments.states.decisions import Act, EnvironmentDecision, EnvironmentFacts, decide_act
from apps.environments.states.reasons import EnvironmentReason, make_cause
from apps.environments.transitions import StaleStateError, wake_reconciler
from fermi.engines.environments import EnvironmentBackend, EnvironmentHandle, EnvironmentPhase, EnvironmentStatus
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import Cause
from fermi.planning import plugins

log = logging.getLogger(__name__)

MAX_PER_PASS = 20
"""Environments that one pass claims, so that others may take the next ones meanwhile."""
MAX_STEPS_PER_PASS = 12
"""More steps than the longest way through the states; only a bug could need more."""


@dataclass(slots=True)
class RunsSnapshot:
    """What one observation of a cluster showed of its runs, and which environments are in use."""

    hosting: EnvironmentBackend | None
    statuses: dict[str, EnvironmentStatus]
    in_use: Collection[str] = ()
    busy: Collection[str] = ()


def reconcile_environment(environment_id: str) -> None:
    """Reconcile one environment, if it is due and no pass has it."""
    _run_pass([environment_id])


def reconcile_due(limit: int = MAX_PER_PASS) -> int:
    """Reconcile the environments that have been due longest; one observation for each cluster serves all its
    environments. Returns how many there were."""
    clock_jumps.handle_jump()
    rows = pass_claims.filter_due(Hosted.objects.all(), CLAIM_SPAN).order_by("due_at")
    ids = list(rows.values_list("pk", flat=True)[:limit])
    return _run_pass(ids) if ids else 0


def _run_pass(environment_ids: Sequence[str]) -> int:
    claim = pass_claims.PassClaim(Hosted.objects.filter(pk__in=environment_ids), CLAIM_SPAN)
    with claim.kept():
        rows = _load_claimed(claim)
        by_cluster: defaultdict[str, list[Hosted]] = defaultdict(list)
        for hosted in rows:
            by_cluster[hosted.environment.cluster_id].append(hosted)
        quiet: list[str] = []
        for members in by_cluster.values():
            scene = _take_snapshot(members)
            for hosted in members:
                try:
                    if _is_unchanged(hosted, scene):
                        quiet.append(hosted.pk)
                    else:
                        _reconcile_one(hosted, claim, scene)
                except Exception:  # one bad row never stops the rest
                    log.exception("environment %s: the pass failed; it is tried again in %s", hosted.pk, CLAIM_SPAN)
        if quiet:
            _release_rows(quiet, claim, RECHECK_AFTER[EnvironmentState.RUNNING])
    return len(rows)


def _release_rows(ids: Sequence[str], claim: pass_claims.PassClaim, wait: timedelta | None) -> None:
    """Release the rows; those that a wake-up has moved meanwhile are handled again at once."""
    at = None if wait is None else now() + wait
    if claim.release(Hosted.objects.filter(pk__in=ids), len(ids), at):
        wake_reconciler()


def _load_claimed(claim: pass_claims.PassClaim) -> list[Hosted]:
    rows = list(_join_environment(claim.held_rows))
    for hosted in rows:
        hosted.claim = claim
    return rows


def _join_environment(rows: QuerySet[Hosted]) -> QuerySet[Hosted]:
    return rows.select_related("environment__cluster", "environment__zone", "environment__owner")


def _take_snapshot(members: Sequence[Hosted]) -> RunsSnapshot:
    """Observe the runs of environments of one cluster."""
    cluster = members[0].environment.cluster
    hosting = _get_backend(cluster)
    handles = [EnvironmentHandle(one.pk, one.run) for one in members if one.state in STATES_WITH_RUN]
    running = [one.pk for one in members if one.state == EnvironmentState.RUNNING and one.idle_stop_minutes]
    held, busy = activity.find_used_environments(running) if running else (set(), set())
    return RunsSnapshot(hosting, _observe_runs(cluster, hosting, handles), held, busy)


def _get_backend(cluster: Cluster) -> EnvironmentBackend | None:
    try:
        return get_environment_backend(cluster)
    except (BackendError, UnknownNameError) as error:
        log.warning("cluster %s cannot be connected to: %s", cluster, error)
        return None


def _observe_runs(
    cluster: Cluster, hosting: EnvironmentBackend | None, handles: Sequence[EnvironmentHandle]
) -> dict[str, EnvironmentStatus]:
    """Return the status of each run by name; one that cannot be observed is UNKNOWN, with the reason. A run that makes
    the engine's client fail hides no other. Raises database errors only."""
    if not handles:
        return {}
    if hosting is None:
        why = Cause("ENVIRONMENTS_NOT_MADE_HERE", {"backend": cluster.backend})
        return {one.name: EnvironmentStatus(EnvironmentPhase.UNKNOWN, waiting=why) for one in handles}
    try:
        seen = hosting.observe(handles)
        record_reachable(cluster)
        unknown = EnvironmentStatus(EnvironmentPhase.UNKNOWN)
        return {one.name: _declare_causes(cluster, seen.get(one.name, unknown)) for one in handles}
    except AnyDatabaseError:
        raise
    except BackendError as error:
        log.warning("cluster %s cannot be asked: %s", cluster, error)
        record_unreachable(cluster, error)
        why = Cause(error.code, error.params)
    except Exception as error:
        if len(handles) > 1:
            half = len(handles) // 2
            return _observe_runs(cluster, hosting, handles[:half]) | _observe_runs(cluster, hosting, handles[half:])
        log.exception("what cluster %s has of %s cannot be understood", cluster, handles[0].name)
        why = Cause(EnvironmentReason.UNREADABLE, {"why": f"{type(error).__name__}: {error}"[:300]})
    return {one.name: EnvironmentStatus(EnvironmentPhase.UNKNOWN, waiting=why) for one in handles}


def _declare_causes(cluster: Cluster, status: EnvironmentStatus) -> EnvironmentStatus:
    known = plugins.get_causes(cluster.backend)
    ended, waits = status.cause, status.waiting
    return replace(
        status,
        cause=ended and make_cause(ended.code, ended.params, known),
        waiting=waits and make_cause(waits.code, waits.params, known),
    )


def _is_unchanged(hosted: Hosted, scene: RunsSnapshot) -> bool:
    """Return True if neither a query nor a write is needed, as for most running environments most of the time."""
    if hosted.state != EnvironmentState.RUNNING:
        return False
    seen = scene.statuses[EnvironmentHandle(hosted.pk, hosted.run).name]
    on_demand = scene.hosting is not None and scene.hosting.on_demand
    dormant = (
        on_demand and seen.phase is EnvironmentPhase.ABSENT and hosted.seen.get("phase") == EnvironmentPhase.ABSENT
    )
    if not (dormant or seen.phase is EnvironmentPhase.RUNNING) or hosted.reason or seen.waiting:
        return False
    if hosted.wanted != DesiredState.RUNNING or hosted.restart_run == hosted.run:
        return False
    used = activity.build_idle_facts(hosted, seen, hosted.pk in scene.in_use, hosted.pk in scene.busy)
    return idleness.judge_idle(used) is idleness.IdleVerdict.USED and not activity.has_changed(hosted, seen, used)


def _reconcile_one(hosted: Hosted, claim: pass_claims.PassClaim, scene: RunsSnapshot) -> None:
    """Go through the states until there is nothing to do but wait, then release the row until the next check. After an
    error it is due again after CLAIM_SPAN, or when a wake-up comes."""
    try:
        wait = _walk_states(hosted, claim, scene)
    except StaleStateError:
        wait = timedelta()
    except Exception:
        _release_rows([hosted.pk], claim, CLAIM_SPAN)
        raise
    _release_rows([hosted.pk], claim, wait)


def _walk_states(hosted: Hosted, claim: pass_claims.PassClaim, scene: RunsSnapshot) -> timedelta | None:
    name = EnvironmentHandle(hosted.pk, hosted.run).name
    seen = scene.statuses.get(name)
    for _ in range(MAX_STEPS_PER_PASS):
        handle = EnvironmentHandle(hosted.pk, hosted.run)
        if EnvironmentState(hosted.state) not in STATES_WITH_RUN:
            seen = None
        elif seen is None:
            seen = _observe_runs(hosted.environment.cluster, scene.hosting, [handle])[handle.name]
        used = activity.build_idle_facts(hosted, seen, hosted.pk in scene.in_use, hosted.pk in scene.busy)
        facts, run = _build_facts(hosted, scene.hosting, used)
        decision = decide_act(facts, seen)
        if seen is not None:
            activity.store_status(hosted, seen, used)
        try:
            wait = _apply_decision(hosted, run, scene.hosting, decision, used)
        except BackendError as error:
            log.warning("environment %s: %s cannot be done now: %s", hosted.pk, decision.act, error)
            why = Cause(error.code, error.params)
            wait = (
                actions.handle_refusal(hosted, decision, why) if error.permanent else actions.retry_later(hosted, why)
            )
        if decision.act is Act.REST:
            return None
        if wait is not None:
            return wait
        fresh = _join_environment(Hosted.objects.filter(pk=hosted.pk)).first()
        if fresh is None:
            return None
        if fresh.claimed_at != claim.at:
            raise StaleStateError(hosted.pk)
        hosted, seen = fresh, None
        hosted.claim = claim
    raise RuntimeError(f"environment {hosted.pk} does not come to rest in {hosted.state}")


def _build_facts(
    hosted: Hosted, hosting: EnvironmentBackend | None, idle_facts: idleness.IdleFacts
) -> tuple[EnvironmentFacts, Run | None]:
    state = EnvironmentState(hosted.state)
    known = plugins.get_causes(hosted.environment.cluster.backend)
    run = Run.objects.filter(environment=hosted.pk, number=hosted.run).first() if hosted.run else None
    outcome = make_cause(run.outcome, run.outcome_params, known) if run and run.outcome else None
    retries = hosted.run - hosted.asked_run
    rested = True
    if state in STATES_AT_REST and run and run.ended_at and hosted.run >= hosted.asked_run:
        rested = run.ended_at + compute_backoff(retries) <= now()
    return EnvironmentFacts(
        state=state,
        desired_state=DesiredState(hosted.wanted),
        desired_cause=make_cause(hosted.asked_code or EnvironmentReason.STOPPED, hosted.asked_params, known),
        sent=run is not None and run.sent_at is not None,
        outcome=outcome if state in STATES_WITH_RUN else None,
        restart=hosted.restart_run == hosted.run != 0,
        retries=MAX_RETRIES - max(retries, 0),
        rested=rested,
        overdue=hosted.deadline_at is not None and hosted.deadline_at <= now(),
        on_demand=hosting.on_demand if hosting else False,
        idle=idleness.judge_idle(idle_facts) if state is EnvironmentState.RUNNING else idleness.IdleVerdict.USED,
    ), run


def _apply_decision(
    hosted: Hosted,
    run: Run | None,
    hosting: EnvironmentBackend | None,
    decision: EnvironmentDecision,
    idle_facts: idleness.IdleFacts,
) -> timedelta | None:
    """Carry out the decision. Returns how long to wait before the next check, or None to go on at once."""
    match decision.act:
        case Act.WAIT:
            return actions.record_waiting(hosted, decision.cause)
        case Act.REST:
            return timedelta()
        case Act.MOVE:
            return actions.advance_state(hosted, decision)
        case Act.WARN:
            return actions.warn_owner(hosted, idle_facts)
        case Act.RECORD:
            return actions.record_end(hosted, decision)
    if hosting is None:
        backend = hosted.environment.cluster.backend
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=backend)
    match decision.act:
        case Act.BEGIN:
            return actions.create_run(hosted, hosting)
        case Act.REMOVE:
            return actions.delete_disk(hosted, hosting, decision)
    assert run is not None
    match decision.act:
        case Act.START:
            return actions.start_run(hosted, run, hosting, decision)
        case Act.STOP:
            return actions.stop_run(hosted, hosting, decision)
        case Act.CLOSE:
            return actions.close_run(hosted, run, decision)
    raise ValueError(decision.act)

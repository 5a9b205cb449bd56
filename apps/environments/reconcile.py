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

from apps.clusters import reachability
from apps.clusters.models import Cluster
from apps.common import clock_jumps, pass_claims
from apps.common.clock import now
from apps.environments import actions, activity, hints
from apps.environments.connection import hosting_of
from apps.environments.models import Hosted, Run
from apps.environments.states import AT_REST, WITH_RUN, State, Wanted, idling
from apps.environments.states.decisions import Act, Decision, Facts, decide
from apps.environments.states.limits import CLAIM, LOOK_AGAIN, MOST_RETRIES, backoff
from apps.environments.states.reasons import Reason, cause
from apps.environments.transitions import Stale
from fermi.engines.environments import HostedHandle, HostedPhase, HostedSeen, Hosting
from fermi.jobs.errors import BackendError, UnknownName
from fermi.jobs.spec import Cause
from fermi.planning import plugins

log = logging.getLogger(__name__)

AT_ONCE = 20
"""Environments that one pass claims, so that others may take the next ones meanwhile."""
STEPS_PER_PASS = 12
"""More steps than the longest way through the states; only a bug could need more."""


@dataclass(slots=True)
class Scene:
    """What one observation of a cluster showed of its runs, and which environments are in use."""

    hosting: Hosting | None
    seen: dict[str, HostedSeen]
    held: Collection[str] = ()
    busy: Collection[str] = ()


def reconcile(environment_id: str) -> None:
    """Reconcile one environment, if it is due and no pass has it."""
    _go([environment_id])


def sweep(limit: int = AT_ONCE) -> int:
    """Reconcile the environments that have been due longest; one observation for each cluster serves all its
    environments. Returns how many there were."""
    clock_jumps.settle()
    rows = pass_claims.waiting(Hosted.objects.all(), CLAIM).order_by("due_at")
    ids = list(rows.values_list("pk", flat=True)[:limit])
    return _go(ids) if ids else 0


def _go(ids: Sequence[str]) -> int:
    claim = pass_claims.Claim(Hosted.objects.filter(pk__in=ids), CLAIM)
    with claim.kept():
        rows = _load(claim)
        by_cluster: defaultdict[str, list[Hosted]] = defaultdict(list)
        for hosted in rows:
            by_cluster[hosted.environment.cluster_id].append(hosted)
        quiet: list[str] = []
        for members in by_cluster.values():
            scene = _scene(members)
            for hosted in members:
                try:
                    if _nothing_new(hosted, scene):
                        quiet.append(hosted.pk)
                    else:
                        _pass(hosted, claim, scene)
                except Exception:  # one bad row never stops the rest
                    log.exception("environment %s: the pass failed; it is tried again in %s", hosted.pk, CLAIM)
        if quiet:
            _let_go(quiet, claim, LOOK_AGAIN[State.RUNNING])
    return len(rows)


def _let_go(ids: Sequence[str], claim: pass_claims.Claim, wait: timedelta | None) -> None:
    """Release the rows; those that a wake-up has moved meanwhile are handled again at once."""
    at = None if wait is None else now() + wait
    if claim.let_go(Hosted.objects.filter(pk__in=ids), len(ids), at):
        hints.again()


def _load(claim: pass_claims.Claim) -> list[Hosted]:
    rows = list(_with_environment(claim.held))
    for hosted in rows:
        hosted.claim = claim
    return rows


def _with_environment(rows: QuerySet[Hosted]) -> QuerySet[Hosted]:
    return rows.select_related("environment__cluster", "environment__zone", "environment__owner")


def _scene(members: Sequence[Hosted]) -> Scene:
    """Observe the runs of environments of one cluster."""
    cluster = members[0].environment.cluster
    hosting = _hosting(cluster)
    handles = [HostedHandle(one.pk, one.run) for one in members if one.state in WITH_RUN]
    running = [one.pk for one in members if one.state == State.RUNNING and one.idle_stop_minutes]
    held, busy = activity.at_work(running) if running else (set(), set())
    return Scene(hosting, _observe(cluster, hosting, handles), held, busy)


def _hosting(cluster: Cluster) -> Hosting | None:
    try:
        return hosting_of(cluster)
    except (BackendError, UnknownName) as error:
        log.warning("cluster %s cannot be connected to: %s", cluster, error)
        return None


def _observe(cluster: Cluster, hosting: Hosting | None, handles: Sequence[HostedHandle]) -> dict[str, HostedSeen]:
    """Return the status of each run by name; one that cannot be observed is UNKNOWN, with the reason. A run that makes
    the engine's client fail hides no other. Raises database errors only."""
    if not handles:
        return {}
    if hosting is None:
        why = Cause("ENVIRONMENTS_NOT_MADE_HERE", {"backend": cluster.backend})
        return {one.name: HostedSeen(HostedPhase.UNKNOWN, waiting=why) for one in handles}
    try:
        seen = hosting.observe(handles)
        reachability.found(cluster)
        unknown = HostedSeen(HostedPhase.UNKNOWN)
        return {one.name: _declared(cluster, seen.get(one.name, unknown)) for one in handles}
    except AnyDatabaseError:
        raise
    except BackendError as error:
        log.warning("cluster %s cannot be asked: %s", cluster, error)
        reachability.lost(cluster, error)
        why = Cause(error.code, error.params)
    except Exception as error:
        if len(handles) > 1:
            half = len(handles) // 2
            return _observe(cluster, hosting, handles[:half]) | _observe(cluster, hosting, handles[half:])
        log.exception("what cluster %s has of %s cannot be understood", cluster, handles[0].name)
        why = Cause(Reason.UNREADABLE, {"why": f"{type(error).__name__}: {error}"[:300]})
    return {one.name: HostedSeen(HostedPhase.UNKNOWN, waiting=why) for one in handles}


def _declared(cluster: Cluster, seen: HostedSeen) -> HostedSeen:
    known = plugins.causes(cluster.backend)
    ended, waits = seen.cause, seen.waiting
    return replace(
        seen,
        cause=ended and cause(ended.code, ended.params, known),
        waiting=waits and cause(waits.code, waits.params, known),
    )


def _nothing_new(hosted: Hosted, scene: Scene) -> bool:
    """Return True if neither a query nor a write is needed, as for most running environments most of the time."""
    if hosted.state != State.RUNNING:
        return False
    seen = scene.seen[HostedHandle(hosted.pk, hosted.run).name]
    on_demand = scene.hosting is not None and scene.hosting.on_demand
    dormant = on_demand and seen.phase is HostedPhase.ABSENT and hosted.seen.get("phase") == HostedPhase.ABSENT
    if not (dormant or seen.phase is HostedPhase.RUNNING) or hosted.reason or seen.waiting:
        return False
    if hosted.wanted != Wanted.RUNNING or hosted.restart_run == hosted.run:
        return False
    used = activity.use(hosted, seen, hosted.pk in scene.held, hosted.pk in scene.busy)
    return idling.judge(used) is idling.Idle.USED and not activity.is_news(hosted, seen, used)


def _pass(hosted: Hosted, claim: pass_claims.Claim, scene: Scene) -> None:
    """Go through the states until there is nothing to do but wait, then release the row until the next check. After an
    error it is due again after CLAIM_SPAN, or when a wake-up comes."""
    try:
        wait = _walk(hosted, claim, scene)
    except Stale:
        wait = timedelta()
    except Exception:
        _let_go([hosted.pk], claim, CLAIM)
        raise
    _let_go([hosted.pk], claim, wait)


def _walk(hosted: Hosted, claim: pass_claims.Claim, scene: Scene) -> timedelta | None:
    name = HostedHandle(hosted.pk, hosted.run).name
    seen = scene.seen.get(name)
    for _ in range(STEPS_PER_PASS):
        handle = HostedHandle(hosted.pk, hosted.run)
        if State(hosted.state) not in WITH_RUN:
            seen = None
        elif seen is None:
            seen = _observe(hosted.environment.cluster, scene.hosting, [handle])[handle.name]
        used = activity.use(hosted, seen, hosted.pk in scene.held, hosted.pk in scene.busy)
        facts, run = _facts(hosted, scene.hosting, used)
        decision = decide(facts, seen)
        if seen is not None:
            activity.remember(hosted, seen, used)
        try:
            wait = _do(hosted, run, scene.hosting, decision, used)
        except BackendError as error:
            log.warning("environment %s: %s cannot be done now: %s", hosted.pk, decision.act, error)
            why = Cause(error.code, error.params)
            wait = actions.refused(hosted, decision, why) if error.permanent else actions.away(hosted, why)
        if decision.act is Act.REST:
            return None
        if wait is not None:
            return wait
        fresh = _with_environment(Hosted.objects.filter(pk=hosted.pk)).first()
        if fresh is None:
            return None
        if fresh.claimed_at != claim.at:
            raise Stale(hosted.pk)
        hosted, seen = fresh, None
        hosted.claim = claim
    raise RuntimeError(f"environment {hosted.pk} does not come to rest in {hosted.state}")


def _facts(hosted: Hosted, hosting: Hosting | None, used: idling.Use) -> tuple[Facts, Run | None]:
    state = State(hosted.state)
    known = plugins.causes(hosted.environment.cluster.backend)
    run = Run.objects.filter(environment=hosted.pk, number=hosted.run).first() if hosted.run else None
    outcome = cause(run.outcome, run.outcome_params, known) if run and run.outcome else None
    retries = hosted.run - hosted.asked_run
    rested = True
    if state in AT_REST and run and run.ended_at and hosted.run >= hosted.asked_run:
        rested = run.ended_at + backoff(retries) <= now()
    return Facts(
        state=state,
        wanted=Wanted(hosted.wanted),
        asked=cause(hosted.asked_code or Reason.STOPPED, hosted.asked_params, known),
        sent=run is not None and run.sent_at is not None,
        outcome=outcome if state in WITH_RUN else None,
        restart=hosted.restart_run == hosted.run != 0,
        retries=MOST_RETRIES - max(retries, 0),
        rested=rested,
        overdue=hosted.deadline_at is not None and hosted.deadline_at <= now(),
        on_demand=hosting.on_demand if hosting else False,
        idle=idling.judge(used) if state is State.RUNNING else idling.Idle.USED,
    ), run


def _do(
    hosted: Hosted, run: Run | None, hosting: Hosting | None, decision: Decision, used: idling.Use
) -> timedelta | None:
    """Carry out the decision. Returns how long to wait before the next check, or None to go on at once."""
    match decision.act:
        case Act.WAIT:
            return actions.wait(hosted, decision.cause)
        case Act.REST:
            return timedelta()
        case Act.MOVE:
            return actions.advance(hosted, decision)
        case Act.WARN:
            return actions.warn(hosted, used)
        case Act.RECORD:
            return actions.record(hosted, decision)
    if hosting is None:
        backend = hosted.environment.cluster.backend
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=backend)
    match decision.act:
        case Act.BEGIN:
            return actions.begin(hosted, hosting)
        case Act.REMOVE:
            return actions.remove(hosted, hosting, decision)
    assert run is not None
    match decision.act:
        case Act.START:
            return actions.start(hosted, run, hosting, decision)
        case Act.STOP:
            return actions.stop(hosted, hosting, decision)
        case Act.CLOSE:
            return actions.close(hosted, run, decision)
    raise ValueError(decision.act)

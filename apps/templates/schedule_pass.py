"""Creates the tasks of schedules whose moments have come.

    claim the due row ─▶ write a row for each moment, and the next moment ─▶ for each: create its task ─▶ store the task

All moments up to now become rows in one transaction with the next moment, so none is lost and none comes twice. A task
is created under the idempotency key of its moment, so a pass that dies between the task and its row leaves nothing to
repair: the next pass finds the task by its key. A pass that has lost its claim writes nothing more.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.accounts import access
from apps.accounts.models import User
from apps.common import pass_claims
from apps.common.claims import ClaimLostError
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.notices.services.incidents import open_incident, resolve_incidents
from apps.templates import cron, placeholders
from apps.templates.models import MissedPolicy, OverlapPolicy, RunOutcome, Schedule, ScheduleRun
from apps.templates.services import schedules, templates
from apps.training import public

log = logging.getLogger(__name__)

ON_TIME = timedelta(minutes=5)
"""A moment that a pass comes to within this time is not missed."""
MAX_CAUGHT_UP = 10
"""Most missed moments that are run, the newest ones."""
MAX_HISTORY = 100
"""Rows that are kept of a schedule, besides those that wait."""
MAX_PER_PASS = 200
"""Schedules that one pass handles; the next one, seconds later, handles the rest."""
CLAIM_TIMEOUT = timedelta(seconds=30)
WAIT_INTERVAL = timedelta(seconds=10)
"""How soon a moment that waits for an earlier task is looked at again."""
MAX_TRIES_FOR = timedelta(hours=1)
"""How long a task whose creation raises an unexpected error is tried again."""
FAILED_KIND = "schedule_failed"


def run_due_schedules() -> int:
    """Handle all schedules that are due, and return how many there were. One that fails does not stop the others."""
    due = pass_claims.filter_due(Schedule.objects.filter(enabled=True), CLAIM_TIMEOUT).order_by("due_at")
    keys = list(due.values_list("pk", flat=True)[:MAX_PER_PASS])
    for key in keys:
        try:
            _run_schedule(key)
        except Exception:
            log.exception("schedule %s: the pass failed; it is tried again in %s", key, CLAIM_TIMEOUT)
    return len(keys)


def _run_schedule(key: str) -> None:
    rows = Schedule.objects.filter(pk=key, enabled=True)
    claim = pass_claims.PassClaim(rows, CLAIM_TIMEOUT)
    if not claim.taken:
        return
    try:
        with claim.kept():
            due_at = _run_pass(key, claim)
    except ClaimLostError:
        due_at = now()
    except Exception:
        claim.release(rows, 1, now() + CLAIM_TIMEOUT)
        raise
    claim.release(Schedule.objects.filter(pk=key), 1, due_at)


@contextmanager
def _lock_schedule(key: str, claim: pass_claims.PassClaim) -> Iterator[Schedule]:
    """Open a transaction in which no other process changes the schedule. Raises ClaimLostError if the claim does not
    hold any more."""
    with transaction.atomic():
        held = Schedule.objects.filter(pk=key, enabled=True, claimed_at=claim.at)
        schedule = held.select_for_update(of=("self",)).select_related("owner", "template").first()
        if schedule is None:
            raise ClaimLostError(key)
        yield schedule


def _run_pass(key: str, claim: pass_claims.PassClaim) -> datetime | None:
    """Return when the schedule is due again; None: never."""
    with _lock_schedule(key, claim) as schedule:
        if reason := _find_stop_reason(schedule):
            _stop_schedule(schedule, *reason)
            return None
        _record_moments(schedule, now())
    pending = list(schedule.runs.filter(outcome=RunOutcome.PENDING).order_by("moment"))
    waits = False
    for run in pending:
        waits = not _handle_run(key, claim, run) or waits
    with _lock_schedule(key, claim) as schedule:
        _delete_old_runs(schedule)
    if not waits:
        return schedule.next_at
    again = now() + WAIT_INTERVAL
    return again if schedule.next_at is None else min(again, schedule.next_at)


def _find_stop_reason(schedule: Schedule) -> tuple[str, dict[str, Any]] | None:
    """Return why the schedule may no longer run; None: it may."""
    owner = schedule.owner
    if not owner.is_active:
        return "SCHEDULE_OWNER_INACTIVE", {"owner": owner.username}
    if not access.is_member(owner, schedule.project_id):
        return "SCHEDULE_OWNER_LEFT", {"owner": owner.username}
    return None


def _stop_schedule(schedule: Schedule, code: str, params: dict[str, Any]) -> None:
    """Disable the schedule in the current transaction, and notify its owner and the project's maintainers."""
    schedule.runs.filter(outcome=RunOutcome.PENDING).update(
        outcome=RunOutcome.SKIPPED, code=code, params=params, decided_at=now()
    )
    Schedule.objects.filter(pk=schedule.pk).update(
        enabled=False, next_at=None, due_at=None, stopped=code, stopped_params=params
    )
    why = {"code": code, "params": params}
    open_incident(
        schedules.STOPPED_KIND, schedule.pk, "NOTICE_SCHEDULE_STOPPED", {"name": schedule.name, "why": why},
        project=schedule.project_id, owner=schedule.owner_id, link=f"/schedules/{schedule.pk}",
    )  # fmt: skip


def _record_moments(schedule: Schedule, moment: datetime) -> None:
    """Write a row for each moment that has come and is to be run, one row for all that are left out, and the next
    moment."""
    first = schedule.next_at
    if first is None or first > moment:
        return
    past = cron.list_past(schedule.cron, schedule.zone, first, moment)
    chosen = _choose_moments(MissedPolicy(schedule.missed), past, moment)
    runs = [_make_run(schedule, one, RunOutcome.PENDING) for one in chosen]
    if missed := [one for one in past if one not in chosen]:
        params = {"count": len(missed), "begins": missed[0].timestamp(), "ends": missed[-1].timestamp()}
        runs.append(_make_run(schedule, missed[-1], RunOutcome.SKIPPED, "SCHEDULE_MISSED", params))
    ScheduleRun.objects.bulk_create(runs, ignore_conflicts=True)  # a changed schedule may come to a moment again
    schedule.next_at = cron.find_next(schedule.cron, schedule.zone, moment)
    Schedule.objects.filter(pk=schedule.pk).update(next_at=schedule.next_at)


def _choose_moments(policy: MissedPolicy, past: list[datetime], moment: datetime) -> list[datetime]:
    """Return which past moments are run."""
    if policy is MissedPolicy.ALL:
        return past[-MAX_CAUGHT_UP:]
    is_late = moment - past[-1] > ON_TIME
    return [] if policy is MissedPolicy.SKIP and is_late else past[-1:]


def _make_run(
    schedule: Schedule, moment: datetime, outcome: RunOutcome, code: str = "", params: dict[str, Any] | None = None
) -> ScheduleRun:
    return ScheduleRun(
        schedule=schedule,
        owner=schedule.owner,
        moment=moment,
        outcome=outcome,
        code=code,
        params=params or {},
        decided_at=now(),
    )


def make_key(schedule_id: str, moment: datetime) -> str:
    """Return the idempotency key of a moment's task."""
    return f"schedule/{schedule_id}/{moment.isoformat()}"


def _handle_run(key: str, claim: pass_claims.PassClaim, run: ScheduleRun) -> bool:
    """Create the task of a moment, or leave it out; return False if it waits. Raises ClaimLostError."""
    idempotency_key = make_key(key, run.moment)
    made = public.Task.objects.filter(owner=run.owner_id, idempotency_key=idempotency_key).first()
    if made is None:
        with _lock_schedule(key, claim) as schedule:  # as it is now: what came before may have taken long
            ScheduleRun.objects.filter(pk=run.pk).update(owner=schedule.owner)
        older = _list_active_tasks(schedule)
        if older and schedule.overlap == OverlapPolicy.SKIP:
            return _store_run(key, claim, run, RunOutcome.SKIPPED, "SCHEDULE_OVERLAP", {"task": older[0]})
        if older and schedule.overlap == OverlapPolicy.QUEUE:
            return _queue_run(key, claim, schedule, run, older[0])
        try:
            if schedule.overlap == OverlapPolicy.STOP_OLDER:
                for task in older:
                    public.stop_task(schedule.owner, task)
            made = _create_task(schedule.owner, schedule, idempotency_key)
        except ApiError as error:
            return _fail_run(key, claim, run, error)
        except Exception as error:
            if now() - run.moment < MAX_TRIES_FOR:
                raise
            log.exception("schedule %s: the task of %s cannot be created", schedule.pk, run.moment)
            return _fail_run(key, claim, run, ApiError(500, "SCHEDULE_FAULT", error=type(error).__name__))
    return _store_run(key, claim, run, RunOutcome.CREATED, task=made.pk)


def _create_task(owner: User, schedule: Schedule, key: str) -> public.Task:
    filled = schedules.build_request(schedule)
    if filled.problems:
        raise ApiError(400, filled.problems[0].code, filled.problems[0].field, **filled.problems[0].params)
    return public.submit_request(owner, filled.request, key)


def _list_active_tasks(schedule: Schedule) -> list[str]:
    """Return the tasks of the schedule that have not ended, oldest first."""
    keys = schedule.runs.exclude(task="").order_by("-moment").values_list("task", flat=True)[:MAX_HISTORY]
    active = public.Task.objects.filter(pk__in=list(keys), state__in=public.ACTIVE_STATES)
    return list(active.order_by("created_at").values_list("pk", flat=True))


def _queue_run(key: str, claim: pass_claims.PassClaim, schedule: Schedule, run: ScheduleRun, older: str) -> bool:
    """Have the moment wait for an earlier task; skip it where MAX_QUEUED wait already."""
    before = schedule.runs.filter(outcome=RunOutcome.PENDING, moment__lt=run.moment).count()
    if before >= schedules.MAX_QUEUED:
        params = {"task": older, "high": schedules.MAX_QUEUED}
        return _store_run(key, claim, run, RunOutcome.SKIPPED, "SCHEDULE_QUEUE_FULL", params)
    if (run.code, run.params) != ("SCHEDULE_WAITS", {"task": older}):
        _store_run(key, claim, run, RunOutcome.PENDING, "SCHEDULE_WAITS", {"task": older})
    return False


def _fail_run(key: str, claim: pass_claims.PassClaim, run: ScheduleRun, error: ApiError) -> bool:
    """Store why the task could not be created, and notify about it; the schedule goes on."""
    first = error.problems[0]
    params = {"field": first.field, **{name: placeholders.shorten(value) for name, value in first.params.items()}}
    if len(error.problems) > 1:
        params["others"] = len(error.problems) - 1
    return _store_run(key, claim, run, RunOutcome.FAILED, first.code, params)


def _store_run(
    key: str, claim: pass_claims.PassClaim, run: ScheduleRun, outcome: RunOutcome, code: str = "",
    params: dict[str, Any] | None = None, task: str = "",
) -> bool:  # fmt: skip
    """Store what became of a moment. Returns True."""
    with _lock_schedule(key, claim) as schedule:
        ScheduleRun.objects.filter(pk=run.pk).update(
            outcome=outcome, code=code, params=params or {}, task=task, decided_at=now()
        )
        if task:
            Schedule.objects.filter(pk=schedule.pk).update(last_at=run.moment, last_task=task)
            if schedule.template_id:
                templates.record_use(schedule.template_id, task)
            resolve_incidents(schedule.pk, FAILED_KIND)
        elif outcome is RunOutcome.FAILED:
            why = {"code": code, "params": params or {}}
            open_incident(
                FAILED_KIND, schedule.pk, "NOTICE_SCHEDULE_FAILED", {"name": schedule.name, "why": why},
                project=schedule.project_id, owner=schedule.owner_id, link=f"/schedules/{schedule.pk}",
            )  # fmt: skip
    return True


def _delete_old_runs(schedule: Schedule) -> None:
    """Delete all but the newest rows; those that wait stay."""
    over = schedule.runs.exclude(outcome=RunOutcome.PENDING).order_by("-moment").values_list("pk", flat=True)
    if old := list(over[MAX_HISTORY : MAX_HISTORY + 1_000]):
        ScheduleRun.objects.filter(pk__in=old).delete()

"""The pass that creates the tasks of schedules: at their moments, once each, whatever ends a pass."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.db import connection, connections

from apps.accounts.models import Membership, Project, User
from apps.common import clock
from apps.common.claims import ClaimLostError
from apps.notices.models import Incident
from apps.templates import schedule_pass
from apps.templates.models import Schedule, ScheduleRun
from apps.templates.services import schedules
from apps.training.models import Task
from apps.training.states import TaskState
from tests.sampling import stride

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
MODULES = [Path(schedule_pass.__file__), Path(schedules.__file__)]


class Clock:
    """The platform's clock, which tests move."""

    def __init__(self) -> None:
        self.at = NOON - timedelta(minutes=1)

    def now(self) -> datetime:
        return self.at


@pytest.fixture(autouse=True)
def moved(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found, real = Clock(), clock.now
    for name, module in list(sys.modules.items()):
        if name.startswith("apps.") and getattr(module, "now", None) is real:
            monkeypatch.setattr(module, "now", found.now)
    return found


def make(user: User, project: Project, body: dict[str, Any], **more: Any) -> Schedule:
    values = {"name": "nightly", "cron": "0 * * * *", "zone": "UTC", "request": body, "overlap": "allow", **more}
    return schedules.create_schedule(user, project_id=project.pk, **values)


def go_to(moved: Clock, moment: datetime) -> None:
    """Let the clock be `moment`, and passes run."""
    moved.at = moment
    schedule_pass.run_due_schedules()


def read_runs(schedule: Schedule) -> list[tuple[str, str, str]]:
    """Return what became of each moment, oldest first."""
    rows = schedule.runs.order_by("moment").values_list("moment", "outcome", "code")
    return [(f"{moment:%d %H:%M}", outcome, code) for moment, outcome, code in rows]


def end_tasks(state: TaskState = TaskState.SUCCEEDED) -> None:
    Task.objects.update(state=state, due_at=None, ended_at=NOON)


def test_a_task_is_created_at_each_moment_and_not_before(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body)
    go_to(moved, NOON - timedelta(seconds=1))
    assert not Task.objects.exists()
    go_to(moved, NOON + timedelta(seconds=3))
    go_to(moved, NOON + timedelta(seconds=9))
    task = Task.objects.get()
    assert (task.owner, task.project, task.name) == (user, project, "nightly")
    schedule.refresh_from_db()
    assert (schedule.last_at, schedule.last_task) == (NOON, task.pk)
    assert schedule.next_at == schedule.due_at == NOON + timedelta(hours=1)
    go_to(moved, NOON + timedelta(hours=1))
    assert Task.objects.count() == 2
    assert read_runs(schedule) == [("01 12:00", "created", ""), ("01 13:00", "created", "")]


@pytest.mark.parametrize(
    ("missed", "created", "left"), [("skip", [], 6), ("last", ["01 17:00"], 5), ("all", 6, 0)]
)  # fmt: skip
def test_missed_moments_are_run_as_the_schedule_says(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock, missed: str, created: Any, left: int
) -> None:
    schedule = make(user, project, request_body, missed=missed)
    go_to(moved, NOON + timedelta(hours=5, minutes=30))
    runs = read_runs(schedule)
    made = [moment for moment, outcome, _ in runs if outcome == "created"]
    assert made == created if isinstance(created, list) else len(made) == created
    assert Task.objects.count() == len(made)
    gaps = schedule.runs.filter(code="SCHEDULE_MISSED")
    assert [row.params["count"] for row in gaps] == ([left] if left else [])


def test_a_moment_that_is_only_a_little_late_is_not_missed(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body, missed="skip")
    go_to(moved, NOON + timedelta(hours=1, minutes=4))
    assert read_runs(schedule) == [("01 12:00", "skipped", "SCHEDULE_MISSED"), ("01 13:00", "created", "")]


def test_of_very_many_missed_moments_the_last_ten_are_run(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    make(user, project, request_body, missed="all", cron="* * * * *")
    go_to(moved, NOON + timedelta(days=30))
    assert Task.objects.count() == schedule_pass.MAX_CAUGHT_UP
    assert ScheduleRun.objects.count() == schedule_pass.MAX_CAUGHT_UP + 1


def test_a_moment_is_skipped_while_an_earlier_task_goes_on(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body, overlap="skip")
    go_to(moved, NOON)
    go_to(moved, NOON + timedelta(hours=1))
    assert read_runs(schedule)[1:] == [("01 13:00", "skipped", "SCHEDULE_OVERLAP")]
    end_tasks()
    go_to(moved, NOON + timedelta(hours=2))
    assert read_runs(schedule)[2:] == [("01 14:00", "created", "")]


def test_a_moment_waits_for_the_earlier_task(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body, overlap="queue")
    go_to(moved, NOON)
    go_to(moved, NOON + timedelta(hours=1))
    assert read_runs(schedule)[1:] == [("01 13:00", "pending", "SCHEDULE_WAITS")]
    end_tasks()
    go_to(moved, NOON + timedelta(hours=1, minutes=1))
    assert read_runs(schedule)[1:] == [("01 13:00", "created", "")]
    for hour in range(2, 20):
        go_to(moved, NOON + timedelta(hours=hour))
    outcomes = [(outcome, code) for _, outcome, code in read_runs(schedule)]
    assert outcomes.count(("pending", "SCHEDULE_WAITS")) == schedules.MAX_QUEUED
    assert outcomes.count(("skipped", "SCHEDULE_QUEUE_FULL")) == 8
    assert Task.objects.count() == 2


def test_earlier_tasks_are_stopped_for_a_later_moment(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    make(user, project, request_body, overlap="stop-older")
    go_to(moved, NOON)
    go_to(moved, NOON + timedelta(hours=1))
    older, newer = Task.objects.order_by("created_at", "pk")
    assert {bool(older.stop_requested_at), bool(newer.stop_requested_at)} == {True, False}


def test_a_refused_task_is_shown_and_notified_and_the_schedule_goes_on(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body)
    project.environments.update(status="stopped")
    go_to(moved, NOON)
    [(_, outcome, code)] = read_runs(schedule)
    assert outcome == "failed"
    assert code
    assert Incident.objects.get(kind="schedule_failed").over_at is None
    project.environments.update(status="running")
    go_to(moved, NOON + timedelta(hours=1))
    assert read_runs(schedule)[1:] == [("01 13:00", "created", "")]
    assert Incident.objects.get(kind="schedule_failed").over_at is not None


@pytest.mark.parametrize("how", ["left", "viewer", "inactive"])
def test_a_schedule_whose_owner_may_no_longer_create_tasks_is_stopped(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock, how: str
) -> None:
    schedule = make(user, project, request_body)
    if how == "inactive":
        User.objects.update(is_active=False)
    elif how == "viewer":
        Membership.objects.update(role="viewer")
    else:
        Membership.objects.all().delete()
    go_to(moved, NOON)
    schedule.refresh_from_db()
    assert (schedule.enabled, schedule.next_at, schedule.due_at) == (False, None, None)
    assert schedule.stopped == ("SCHEDULE_OWNER_INACTIVE" if how == "inactive" else "SCHEDULE_OWNER_LEFT")
    assert Incident.objects.get(kind="schedule_stopped").project == project
    assert not Task.objects.exists()


def test_its_tasks_are_of_its_project_whatever_its_template_became(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    other = Project.objects.create(name="other")
    Membership.objects.create(project=other, user=user, role="maintainer")
    schedule = make(user, project, request_body)
    Schedule.objects.update(request={**request_body, "projectId": other.pk})
    go_to(moved, NOON)
    assert Task.objects.get().project == project
    assert read_runs(schedule) == [("01 12:00", "created", "")]


def test_a_pass_that_lost_its_claim_creates_nothing(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body)
    moved.at = NOON
    claim = schedule_pass.pass_claims.PassClaim(Schedule.objects.all(), schedule_pass.CLAIM_TIMEOUT)
    assert claim.taken == 1
    Schedule.objects.update(claimed_at=NOON)
    with pytest.raises(ClaimLostError):
        schedule_pass._run_pass(schedule.pk, claim)
    assert not Task.objects.exists()
    assert not ScheduleRun.objects.exists()


def test_only_the_newest_rows_of_its_history_are_kept(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock
) -> None:
    schedule = make(user, project, request_body, overlap="skip")
    go_to(moved, NOON)
    for number in range(1, schedule_pass.MAX_HISTORY + 5):
        go_to(moved, NOON + timedelta(hours=number))
    assert schedule.runs.count() == schedule_pass.MAX_HISTORY


def run_in_child(prepare: Callable[[], object]) -> bool:
    """Run a pass in a process of its own, which `prepare` makes die; return whether it came to its end before."""
    connections.close_all()
    if (child := os.fork()) == 0:
        prepare()
        try:
            schedule_pass.run_due_schedules()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def die_at_line(line: int) -> None:
    """End this process when the `line`-th line of the modules under test begins."""
    names, left = {str(path) for path in MODULES}, line

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in names:
            return None
        if event == "line":
            left -= 1
            if not left:
                os._exit(9)
        return trace

    sys.settrace(trace)


def die_at_statement(number: int) -> None:
    """End this process before its `number`-th statement to the database, whichever module makes it."""
    left = number

    def count(execute: Any, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            os._exit(9)
        return execute(*arguments)

    connection.execute_wrappers.append(count)


@pytest.mark.parametrize(
    ("overlap", "every"), [("allow", 3), ("skip", 11), ("queue", 11), ("stop-older", 11)]
)  # fmt: skip
def test_a_pass_that_dies_at_any_line_loses_nothing_and_creates_nothing_twice(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock, overlap: str, every: int
) -> None:
    schedule = make(user, project, request_body, missed="all", overlap=overlap)
    assert count_deaths(schedule, moved, die_at_line, 1, every) > 10


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "stop-older"])
def test_a_pass_that_dies_at_any_statement_loses_nothing_and_creates_nothing_twice(
    user: User, project: Project, request_body: dict[str, Any], moved: Clock, overlap: str
) -> None:
    schedule = make(user, project, request_body, missed="all", overlap=overlap)
    assert count_deaths(schedule, moved, die_at_statement, *stride(1, 8)) > 4


def count_deaths(schedule: Schedule, moved: Clock, die_at: Callable[[int], None], first: int, every: int) -> int:
    """Return how many passes over two moments were killed, the first one at `first`, each further one `every` later,
    until one comes to its end; each moment has one task after the passes that follow, or was skipped once."""
    place, deaths, ended = first, 0, False
    while not ended:
        begin = NOON + timedelta(days=place)
        Task.objects.all().delete()
        ScheduleRun.objects.all().delete()
        Schedule.objects.update(next_at=begin, due_at=begin, claimed_at=None)
        moved.at = begin + timedelta(hours=1, minutes=1)
        ended = run_in_child(partial(die_at, place))
        for minute in (2, 3):  # the claim of the dead pass lapses
            go_to(moved, begin + timedelta(hours=1, minutes=minute))
            if schedule.overlap == "queue":
                end_tasks()
        runs = [(moment[3:], outcome) for moment, outcome, _ in read_runs(schedule)]
        second = "skipped" if schedule.overlap == "skip" else "created"
        assert runs == [("12:00", "created"), ("13:00", second)], place
        made = list(schedule.runs.exclude(task="").values_list("task", flat=True))
        assert sorted(made) == sorted(Task.objects.values_list("pk", flat=True)), place
        place, deaths = place + every, deaths + (not ended)
    return deaths

"""What is stored of ranks that do not advance: how long such waits were, who hears of them, and when they are the
script's own fault."""

from datetime import timedelta
from typing import Any

import pytest

from apps.common.clock import now
from apps.notices.models import Incident
from apps.training.core import findings, task_store
from apps.training.core.engine_access import build_cause
from apps.training.models import Attempt, Task
from apps.training.models import Finding as Row
from apps.training.presenters import task_presenter
from apps.training.reconcile import crash_analysis, diagnosis
from fermi.diagnosis import Finding, Level, hangs
from fermi.jobs.spec import Observation, Phase, RankStatus
from tests.apps.attempts import begin_attempt
from tests.goldens import job

pytestmark = [pytest.mark.database, pytest.mark.django_db]

DOUBT = {"ranks": "1", "node": "n", "seconds": 9}
PLACE = "train.py:9 in load"


def hung(task: Task, number: int, outcome: str = hangs.HANG, place: str | None = PLACE, **more: Any) -> Attempt:
    if number > 1:
        begin_attempt(task, number)
    attempt = Attempt.objects.get(task=task, number=number)
    attempt.outcome = outcome
    attempt.outcome_params = {**DOUBT, **({"place": place} if place else {}), **more}
    attempt.ended_at = now()
    attempt.save()
    return attempt


def test_the_same_hang_at_the_same_line_twice_is_the_scripts_fault(task: Task) -> None:
    assert not diagnosis.is_last_attempt(task, hung(task, 1))
    second = hung(task, 2)
    assert diagnosis.is_last_attempt(task, second)
    code, params = crash_analysis.find_loop_reason(task, second) or ("", {})
    assert (code, params["times"]) == ("HANG_LOOP", 2)
    assert not build_cause(task.cluster, code).retry
    for lang, words in (("en", f"2 attempts in a row hung at the same line, {PLACE}"), ("zh", f"卡在同一行 {PLACE}")):
        told = task_presenter.serialize_reason(code, params, lang)
        assert told
        assert words in told["message"]
    task.spec["on_crash_loop"] = "restart"
    assert not diagnosis.is_last_attempt(task, second)


@pytest.mark.parametrize(
    ("outcome", "place"),
    [(hangs.HANG, "train.py:10 in save"), (hangs.MISMATCH, PLACE), (hangs.CUT, None), ("RANK_KILLED", PLACE)],
)
def test_a_different_line_verdict_or_dead_link_is_not_the_same_hang(
    task: Task, outcome: str, place: str | None
) -> None:
    hung(task, 1)
    assert not crash_analysis.detect_hang_loop(task, hung(task, 2, outcome, place))
    assert not crash_analysis.detect_hang_loop(task, hung(task, 3))


def stalls(task: Task, number: int, code: str, seconds: float, *, level: Level = Level.INFO) -> Row:
    """Once, for so long, and over now."""
    moment = now()
    findings.record_findings(
        task.pk, number, [Finding(code, level, DOUBT, since=(moment - timedelta(days=1)).timestamp())]
    )
    row = Row.objects.get(task=task, attempt=number, code=code)
    Row.objects.filter(pk=row.pk).update(since=moment - timedelta(seconds=seconds))
    findings.resolve_findings(task.pk, number, code)
    Row.objects.filter(pk=row.pk).update(until=moment)
    return row


def test_the_longest_wait_is_remembered_unless_it_ended_its_attempt(task: Task) -> None:
    assert findings.list_longest_stalls(task) == []
    stalls(task, 1, hangs.SUSPECTED, 900)
    stalls(task, 1, hangs.SUSPECTED, 20)
    assert findings.list_longest_stalls(task) == [900]
    stalls(task, 1, hangs.HANG, 40)
    assert sorted(findings.list_longest_stalls(task)) == [40, 900]
    Attempt.objects.filter(task=task).update(ended_at=now() + timedelta(seconds=10))
    assert findings.list_longest_stalls(task) == [], "they were over with the attempt"


def test_past_waits_lengthen_the_hang_timeout_of_a_project(task: Task) -> None:
    task.spec = task_store.build_job_columns(job("env-001", "env-003"))["spec"]
    stalls(task, 1, hangs.SUSPECTED, 900)

    def patience(seconds: float) -> float:
        stalled = {"since": now().timestamp() - seconds}
        ranks = (RankStatus(0, 0, "running", stalled=stalled), RankStatus(1, 0, "running"))
        return diagnosis.build_gang_layout(task, Observation(Phase.RUNNING, ranks=ranks)).patience

    assert [patience(5), patience(700)] == [600, 2700]


def test_a_suspicion_is_notified_once_it_is_a_warning(task: Task) -> None:
    findings.record_findings(task.pk, 1, [Finding(hangs.SUSPECTED, Level.INFO, DOUBT)])
    assert not Incident.objects.exists()
    for _ in range(2):
        findings.record_findings(task.pk, 1, [Finding(hangs.SUSPECTED, Level.WARN, DOUBT)])
    assert [(row.kind, row.times) for row in Incident.objects.all()] == [("task_hung", 1)]

"""Tasks as traces: what a collector is sent of them, once each, and that nothing waits for it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from apps.clusters.models import DevEnvironment
from apps.common import tracing as ids
from apps.common.clock import now
from apps.training.core import trace_context, transitions
from apps.training.core.engine_access import build_attempt_job
from apps.training.models import Attempt, MetricPoint, Task, TraceExport
from apps.training.states import TaskState
from apps.training.traces import export, spans
from fermi.jobs.spec import JobSpec
from server import metrics
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.collector import Collector, collecting

pytestmark = pytest.mark.database

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    settings.TRACING = True
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setattr(export, "_paused_until", 0.0)
        monkeypatch.setattr(export, "_collector_away", False)
        ids._get_exporter.cache_clear()
        ids._make_resource.cache_clear()
        yield found
    ids._get_exporter.cache_clear()
    ids._make_resource.cache_clear()


@pytest.fixture
def create(environments: dict[str, DevEnvironment], dataset: None, model: None, colleague: Api) -> Any:
    def created(**headers: str) -> Task:
        return Task.objects.get(pk=colleague.post("/training-tasks", changed(), **headers).data["taskId"])

    return created


def begin(task: Task, *, runs: bool = True) -> Attempt:
    """Its next attempt, as passes of the reconciler would have it begin."""
    if task.state == TaskState.INITIALIZING:
        transitions.change_state(task, TaskState.QUEUED)
    number = task.attempt + 1
    attempt = Attempt.objects.create(task=task, number=number, master_port=1, created_at=now())
    transitions.change_state(task, TaskState.STARTING, attempt=number)
    attempt.submitted_at = now()
    second = now().timestamp()
    attempt.seen = {
        "ranks": [{"rank": r, "node_rank": r // 4, "called_at": second, "began_at": second + r / 1e6} for r in range(8)]
    }
    attempt.save()
    if runs:
        attempt.running_at = now()
        attempt.save()
        transitions.change_state(task, TaskState.RUNNING)
    return attempt


def step(task: Task) -> None:
    MetricPoint.objects.create(task=task, attempt=task.attempt, rank=0, step=1, at=now(), values={"loss": 2.5})


def end(task: Task, attempt: Attempt, to: TaskState, outcome: str, **params: Any) -> None:
    attempt.outcome, attempt.outcome_params, attempt.ended_at = outcome, params, now()
    attempt.save()
    transitions.record_event(task.pk, attempt.number, "attempt", "ATTEMPT_ENDING", {"outcome": outcome})
    transitions.record_event(task.pk, attempt.number, "attempt", "ATTEMPT_ENDED", {"outcome": outcome})
    transitions.change_state(task, to, outcome, params)


def test_without_a_collector_nothing_is_stored(create: Any) -> None:
    task = create(traceparent=CALLER)
    attempt = begin(task)
    assert (task.trace, TraceExport.objects.count()) == ({}, 0)
    assert (
        trace_context.TRACEPARENT_VARIABLE
        not in build_attempt_job(task, JobSpec.from_json(task.spec), attempt, None).env
    )


def test_a_task_continues_its_callers_trace(collector: Collector, create: Any) -> None:
    task = create(traceparent=CALLER)
    attempt = begin(task)
    step(task)
    end(task, attempt, TaskState.SUCCEEDED, "COMPLETED")
    assert export.export_due_parts() == 4
    whole = collector.one("training task")
    assert (whole.trace, whole.parent) == (CALLER[3:35], CALLER[36:52])
    assert {span.trace for span in collector.spans} == {whole.trace}
    assert collector.services == {"fermi"}
    above = {span.span: span for span in collector.spans}
    assert len(above) == len(collector.spans), "each has an id of its own"
    paths = {f"{above[span.parent].name}/{span.name}" for span in collector.spans if span is not whole}
    assert paths == {
        "training task/request", "request/check", "request/store", "training task/prepare", "training task/queue",
        "training task/attempt", "attempt/plan", "attempt/submit", "attempt/start", "start/node", "node/rank",
        "attempt/first step", "attempt/run", "attempt/end",
    }  # fmt: skip
    for span in collector.spans:
        assert span.begins <= span.ends
        if span is not whole and span.name not in ("node", "rank", "start"):
            assert whole.begins <= span.begins
            assert span.ends <= whole.ends + 1000, "microseconds are what a database keeps"
    order = ["request", "prepare", "queue", "plan", "submit", "start", "run", "end"]
    assert [collector.one(name).begins for name in order] == sorted(collector.one(name).begins for name in order)
    assert collector.one("rank", rank=5).attributes | {"fermi.node": ""} == {
        "fermi.task_id": task.pk, "fermi.framework": task.framework, "fermi.backend": "local", "fermi.attempt": 1,
        "fermi.node_rank": 1, "fermi.node": "", "fermi.rank": 5,
    }  # fmt: skip


def test_each_span_is_sent_once(collector: Collector, create: Any) -> None:
    task = create()
    attempt = begin(task)
    assert export.export_due_parts() == 1, "the request; the start waits for its first step"
    step(task)
    TraceExport.objects.update(due_at=now())
    assert export.export_due_parts() == 1
    collector.one("start")
    assert not [span for span in collector.spans if span.name in ("attempt", "training task")]
    end(task, attempt, TaskState.SUCCEEDED, "COMPLETED")
    assert (export.export_due_parts(), export.export_due_parts()) == (2, 0)
    assert len({span.span for span in collector.spans}) == len(collector.spans)
    assert not TraceExport.objects.exists()


def test_spans_are_sent_again_with_the_same_ids_after_a_crash(
    collector: Collector, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(taken: bool) -> None:
        raise SystemExit

    create()
    with monkeypatch.context() as patch:
        patch.setattr(export, "_record_collector_state", dies)
        with pytest.raises(SystemExit):
            export.export_due_parts()
    before = {span.span for span in collector.spans}
    assert export.export_due_parts() == 0, "until its claim is over"
    TraceExport.objects.update(due_at=now())
    assert export.export_due_parts() == 1
    assert len(collector.spans) == 2 * len(before) == 2 * len({span.span for span in collector.spans})


def test_a_late_first_step_is_sent_at_the_end(
    collector: Collector, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MAX_FIRST_STEP_WAIT", timedelta())
    task = create()
    attempt = begin(task)
    assert export.export_due_parts() == 2
    step(task)
    end(task, attempt, TaskState.SUCCEEDED, "COMPLETED")
    export.export_due_parts()
    collector.one("first step", step=1)


def test_a_failed_span_has_its_cause_and_a_stopped_one_none(collector: Collector, create: Any) -> None:
    task = create()
    end(task, begin(task), TaskState.QUEUED, "RANK_FAILED", rank=5, nodeRank=1, node="dev-2")
    end(task, begin(task, runs=False), TaskState.QUEUED, "START_FAILED", why="x")
    attempt = begin(task)
    transitions.change_state(task, TaskState.STOPPING, "STOPPED_BY_USER")
    end(task, attempt, TaskState.STOPPED, "STOPPED_BY_USER")
    export.export_due_parts()
    failed = collector.one("attempt", attempt=1)
    assert (failed.error, failed.attributes["fermi.failed_rank"]) == ("RANK_FAILED", 5)
    assert failed.attributes["fermi.failed_node"] == "dev-2"
    assert collector.one("run", attempt=1).error == "RANK_FAILED"
    assert collector.one("start", attempt=2).error == "START_FAILED"
    assert [collector.one("attempt", attempt=number).error for number in (2, 3)] == ["START_FAILED", ""]
    assert collector.one("training task").error == ""
    assert [len([s for s in collector.spans if s.name == name]) for name in ("queue", "attempt")] == [3, 3]


def test_a_task_that_never_starts_has_a_waiting_span(collector: Collector, create: Any) -> None:
    task = create()
    transitions.change_state(task, TaskState.QUEUED)
    transitions.change_state(task, TaskState.FAILED, "RUN_TIMEOUT")
    export.export_due_parts()
    assert collector.one("training task").error == "RUN_TIMEOUT"
    assert collector.one("queue").ends == collector.one("training task").ends


def test_an_unsampled_parent_is_respected(collector: Collector, create: Any) -> None:
    create(traceparent=CALLER[:-1] + "0")
    assert (export.export_due_parts(), collector.requests) == (1, 0)


@pytest.mark.parametrize("header", ["", "nonsense", CALLER.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)])
def test_an_invalid_traceparent_starts_a_new_trace(collector: Collector, create: Any, header: str) -> None:
    task = create(traceparent=header)
    assert trace_context.build_task_context(task) == trace_context.build_task_context(Task.objects.get(pk=task.pk))
    assert trace_context.get_parent_context(task) is None


def test_ranks_get_traceparent_unless_the_user_sets_it(collector: Collector, create: Any) -> None:
    task = create(traceparent=CALLER)
    attempt = begin(task)
    step(task)
    said = build_attempt_job(task, JobSpec.from_json(task.spec), attempt, None).env[trace_context.TRACEPARENT_VARIABLE]
    end(task, attempt, TaskState.SUCCEEDED, "COMPLETED")
    export.export_due_parts()
    assert said == f"00-{CALLER[3:35]}-{collector.one('attempt').span}-01"
    task.spec["env"] = {trace_context.TRACEPARENT_VARIABLE: "mine"}
    assert (
        build_attempt_job(task, JobSpec.from_json(task.spec), attempt, None).env[trace_context.TRACEPARENT_VARIABLE]
        == "mine"
    )


def test_an_unreachable_collector_is_logged_once_and_backed_off(
    collector: Collector, create: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.answers += [400] * 2
    tasks = [create(), create()]
    assert export.export_due_parts() == 0
    assert export.export_due_parts() == 0
    assert collector.requests == 1, "after a failure there is a rest"
    monkeypatch.setattr(export, "_paused_until", 0.0)
    assert export.export_due_parts() == 0
    assert [record.message for record in caplog.records if record.name == export.__name__] == [
        "the collector of traces takes nothing"
    ]
    TraceExport.objects.update(due_at=now())
    monkeypatch.setattr(export, "_paused_until", 0.0)
    assert export.export_due_parts() == 2
    assert {span.attributes["fermi.task_id"] for span in collector.spans} == {task.pk for task in tasks}


def test_spans_that_are_never_accepted_are_dropped_and_counted(
    collector: Collector, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [create(), create(), create()]
    TraceExport.objects.filter(task=tasks[0]).update(created_at=now() - timedelta(hours=2))
    monkeypatch.setattr(export, "MAX_WAITING_PARTS", 1)
    export.export_due_parts()
    assert {span.attributes["fermi.task_id"] for span in collector.spans} == {tasks[2].pk}
    assert TraceExport.objects.filter(due_at=None).count() == 2
    assert "fermi_trace_exports_dropped_24h 2.0" in metrics.render_metrics().decode()
    TraceExport.objects.update(dropped_at=now() - timedelta(days=2))
    export.export_due_parts()
    assert not TraceExport.objects.exists()


def test_a_span_that_cannot_be_encoded_does_not_block_others(
    collector: Collector, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = create(), create()
    Task.objects.filter(pk=bad.pk).update(trace={"receivedAt": "never"})
    assert export.export_due_parts() == 1
    for _ in range(export.MAX_TRIES + 1):
        TraceExport.objects.filter(due_at__isnull=False).update(due_at=now())
        monkeypatch.setattr(export, "_paused_until", 0.0)
        export.export_due_parts()
    assert {span.attributes["fermi.task_id"] for span in collector.spans} == {good.pk}
    assert [one.task_id for one in TraceExport.objects.filter(due_at=None)] == [bad.pk]

"""The watcher, on real log files and the real backend of this machine; time is what the test says."""

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.clock import now
from apps.telemetry.reader import read_newest
from apps.training.core import engine_access, wakeups
from apps.training.core.observation_store import store_observations
from apps.training.logs import ingest, poll_interval
from apps.training.logs import watcher as log_watcher
from apps.training.logs.stragglers import MIN_INTERVAL_SECONDS, URGENT_INTERVAL_SECONDS, RankMonitor
from apps.training.logs.watcher import (
    CONFIRM_SECONDS,
    ERROR_PAUSE_SECONDS,
    FIND_SECONDS,
    GATHER_SECONDS,
    MAX_RANK_0_INTERVAL_SECONDS,
    MAX_READ_INTERVAL_SECONDS,
    TICK_SECONDS,
    Watcher,
)
from apps.training.management.commands import watch
from apps.training.models import MetricPoint, Node, Task
from apps.training.reconcile.actions import close_attempt
from apps.training.states import TaskState
from apps.training.states.decisions import ReconcileAction, ReconcileDecision
from fermi.engines.local.engine import LocalBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Handle, Observation, Phase, RankProgress, RankStatus
from tests.apps.attempts import begin_attempt, write
from tests.polling import until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    heard: list[str] = []
    monkeypatch.setattr(wakeups, "_say", lambda channel, data: heard.append(data.get("kind")))
    return heard


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks that were handed to the reconciler."""
    sent: list[str] = []
    monkeypatch.setattr(wakeups, "_send", lambda name, *args: sent.extend(args))
    return sent


@pytest.fixture
def watcher(task: Task, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """However long this machine takes for a look, the next one is where the test says."""
    monkeypatch.setattr(log_watcher, "MAX_OBSERVE_SHARE", 1e9)
    watcher = Watcher()
    watcher.find()
    return watcher


def another(task: Task, key: str, **changes: Any) -> Task:
    other = Task.objects.get(pk=task.pk)
    other.pk = key
    for name, value in changes.items():
        setattr(other, name, value)
    other.save(force_insert=True)
    begin_attempt(other, 1)
    return other


def points(key: str = "task-x") -> int:
    return MetricPoint.objects.filter(task=key).count()


def test_output_of_running_attempts_is_read(task: Task, watcher: Watcher) -> None:
    write(task, '{"step": 1, "loss": 1}\n')
    write(task, '{"step": 1, "loss": 1}\n', rank=2)
    assert watcher.poll(0.0) is False
    assert points() == 2


def test_attempts_are_followed_until_they_end(task: Task, watcher: Watcher) -> None:
    waiting = another(task, "task-w", state=TaskState.QUEUED)
    watcher.find()
    write(waiting, '{"step": 1, "loss": 1}\n')
    watcher.poll(0.0)
    assert points("task-w") == 0
    Task.objects.filter(pk="task-w").update(state=TaskState.STARTING)
    watcher.find()
    watcher.poll(0.0)
    assert points("task-w") == 1
    Task.objects.filter(pk="task-w").update(state=TaskState.FAILED, due_at=None)
    watcher.find()
    write(waiting, '{"step": 2, "loss": 1}\n')
    watcher.poll(FIND_SECONDS)
    assert points("task-w") == 1


def test_the_next_attempt_is_another_log(task: Task, watcher: Watcher) -> None:
    write(task, '{"step": 1, "loss": 1}\n')
    watcher.poll(0.0)
    begin_attempt(task, 2)
    write(task, '{"step": 1, "loss": 1}\n', attempt=2)
    watcher.find()
    watcher.poll(0.0)
    assert list(MetricPoint.objects.order_by("id").values_list("attempt", flat=True)) == [1, 2]


def test_rediscovery_keeps_the_read_position(task: Task, watcher: Watcher, django_assert_num_queries: Any) -> None:
    watcher.poll(0.0)
    with django_assert_num_queries(1):
        watcher.find()
        watcher.poll(0.0)


def test_quiet_ranks_are_polled_less_often_until_they_print(
    task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    logs = LocalBackend.logs

    def counted(self: LocalBackend, handle: Any, rank: int, *args: Any) -> Any:
        looks.append(rank)
        return logs(self, handle, rank, *args)

    monkeypatch.setattr(LocalBackend, "logs", counted)
    for tick in range(200):
        write(task, "talk\n", rank=1)
        watcher.poll(tick * TICK_SECONDS)
    seconds = 200 * TICK_SECONDS
    assert seconds / MAX_RANK_0_INTERVAL_SECONDS - 1 <= looks.count(0) <= seconds / MAX_RANK_0_INTERVAL_SECONDS + 5
    assert looks.count(1) == 200
    assert seconds / MAX_READ_INTERVAL_SECONDS - 1 <= looks.count(2) <= seconds / MAX_READ_INTERVAL_SECONDS + 8


def test_log_growth_is_published_five_times_a_second_and_at_the_end(
    task: Task, watcher: Watcher, published: list[str]
) -> None:
    for tick in range(10):
        write(task, "x\n")
        watcher.poll(100 + tick * TICK_SECONDS)
    assert 5 <= published.count("log") <= 6
    published.clear()
    write(task, "the last\n")
    watcher.poll(101.0)
    watcher.poll(101.3)
    assert published == ["log"]
    watcher.poll(102.0)
    assert published == ["log"]


def test_a_backlog_beyond_one_pass_is_read_at_once(task: Task, watcher: Watcher) -> None:
    write(task, ("x" * 999 + "\n") * 1000 + '{"step": 1, "loss": 1}\n')
    passes = 0
    while watcher.poll(0.0):
        passes += 1
    assert passes == 1_000_000 // ingest.CHUNK_BYTES
    assert points() == 1


def test_a_change_wakes_the_reconciler_once(task: Task, watcher: Watcher, woken: list[str]) -> None:
    later = now().replace(year=2100)
    for moment in (0.0, 1.0):
        watcher.poll(moment)
    assert woken == ["task-x"], "the first look is news"
    Task.objects.update(due_at=later)
    engine_access.get_backend(task.cluster).cancel(engine_access.build_handle(task, 1), 0.0)
    for moment in (2.0, 3.0):
        watcher.poll(moment)
    assert woken == ["task-x", "task-x"]
    assert Task.objects.get().due_at < later


def test_an_unstored_change_wakes_the_reconciler_again(task: Task, watcher: Watcher, woken: list[str]) -> None:
    """The message was lost, or whoever had it looked before they could see it."""
    watcher.poll(0.0)
    watcher.poll(CONFIRM_SECONDS - 1)
    assert woken == ["task-x"]
    watcher.poll(CONFIRM_SECONDS)
    assert woken == ["task-x"] * 2
    handle = engine_access.build_handle(task, 1)
    seen = engine_access.get_backend(task.cluster).observe([handle])[handle.name]
    store_observations([(task.attempts.get(), seen)])
    for moment in (2 * CONFIRM_SECONDS, 3 * CONFIRM_SECONDS):
        watcher.poll(moment)
    assert woken == ["task-x"] * 2


def test_an_attempt_that_becomes_unobservable_or_returns_is_a_change(
    task: Task, watcher: Watcher, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: LocalBackend, handles: Any) -> Any:
        raise BackendError("ENGINE_UNREACHABLE", why="no route")

    watcher.poll(0.0)
    with monkeypatch.context() as broken:
        broken.setattr(LocalBackend, "observe", away)
        for moment in (1.0, 1.0 + ERROR_PAUSE_SECONDS):
            watcher.poll(moment)
        assert woken == ["task-x"] * 2
    watcher.poll(1.0 + 2 * ERROR_PAUSE_SECONDS)
    assert woken == ["task-x"] * 3


def test_ranks_that_start_one_by_one_wake_the_reconciler_once(
    task: Task, watcher: Watcher, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hangs on one of them, and there may be hundreds; whatever else changes is handed on at once."""
    seen = [Observation(Phase.STARTING, True)]
    monkeypatch.setattr(LocalBackend, "observe", lambda self, handles: {one.name: seen[0] for one in handles})
    for turn in range(11):
        begun = tuple(RankStatus(rank, 0, "running", 1) for rank in range(turn))
        seen[0] = Observation(Phase.STARTING, True, begun)
        watcher.poll(turn * TICK_SECONDS)
    assert (
        len(woken) == 1 + int(10 * TICK_SECONDS / GATHER_SECONDS) - 1
    )  # a look comes every TICK: every third one tells
    published = len(woken)
    seen[0] = replace(seen[0], waiting=Cause("POD_PENDING", {}))
    watcher.poll(11 * TICK_SECONDS)
    seen[0] = replace(seen[0], phase=Phase.RUNNING)
    watcher.poll(12 * TICK_SECONDS)
    assert len(woken) == published + 2


def test_one_call_per_cluster_observes_all_attempts(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    another(task, "task-y")
    another(task, "task-z", cluster=Cluster.objects.create(name="second", backend="local"))
    asked: list[list[str]] = []
    observe = LocalBackend.observe

    def counted(self: LocalBackend, handles: Any) -> Any:
        asked.append(sorted(handle.task_id for handle in handles))
        return observe(self, handles)

    monkeypatch.setattr(LocalBackend, "observe", counted)
    watcher = Watcher()
    watcher.find()
    watcher.poll(0.0)
    assert sorted(asked) == [["task-x", "task-y"], ["task-z"]]


def test_an_unreadable_task_does_not_stop_others_and_is_retried(task: Task, settings: Any) -> None:
    other = another(task, "task-a")
    bad = Path(settings.DATA_DIR, "logs", "task-x", "1", "0.log")
    bad.mkdir(parents=True)
    watcher = Watcher()
    watcher.find()
    for moment in (0.0, 1.0, 2.0):
        write(other, '{"step": 1, "loss": 1}\n')
        watcher.poll(moment)
    assert points("task-a") == 3
    bad.rmdir()
    write(task, '{"step": 1, "loss": 1}\n')
    watcher.poll(ERROR_PAUSE_SECONDS - 1)
    assert points() == 0
    watcher.poll(2 * ERROR_PAUSE_SECONDS)
    assert points() == 1


def test_an_unreachable_cluster_does_not_stop_reading_and_is_backed_off(
    task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, woken: list[str]
) -> None:
    def away(self: LocalBackend, handles: Any) -> Any:
        raise BackendError("ENGINE_UNREACHABLE", why="no route")

    with monkeypatch.context() as broken:
        broken.setattr(LocalBackend, "observe", away)
        for tick in range(20):
            write(task, '{"step": 1, "loss": 1}\n')
            watcher.poll(tick * TICK_SECONDS)
    assert points() == 20
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    watcher.poll(2 * ERROR_PAUSE_SECONDS)
    assert woken == ["task-x"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observation(Phase.RUNNING, True)
    monkeypatch.setattr(LocalBackend, "observe", lambda self, handles: {one.name: seen for one in handles})

    def ask(self: RankMonitor) -> None:
        self.pulses = LocalBackend.pulses(LocalBackend.__new__(LocalBackend), self._handle)

    monkeypatch.setattr(RankMonitor, "_judge", ask)  # the task of these tests has no nodes to judge


def progress(task: Task, watcher: Watcher, moment: float) -> Any:
    watcher.poll(moment)
    task.refresh_from_db()
    return task.progress


@pytest.mark.usefixtures("runs")
def test_steps_are_counted_where_a_script_prints_none(
    task: Task, watcher: Watcher, published: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int | None] = [None]

    def pulses(self: LocalBackend, handle: Handle) -> Any:
        return {rank: RankProgress(rank, 9.0, step=steps[-1]) for rank in range(2)}

    monkeypatch.setattr(LocalBackend, "pulses", pulses)
    for turn in range(2):
        assert progress(task, watcher, turn * MIN_INTERVAL_SECONDS) == {}
    steps.append(7)
    assert progress(task, watcher, 1.5 * MIN_INTERVAL_SECONDS) == {}
    for turn in range(2, 5):
        assert progress(task, watcher, turn * MIN_INTERVAL_SECONDS) == {"step": 7, "counted": True}
    assert published.count("metric") == 1
    write(task, '{"step": 1, "loss": 1}\n')
    for turn in range(5, 7):
        assert progress(task, watcher, turn * MIN_INTERVAL_SECONDS) == {"step": 1, "loss": 1}


LINE = "{{'loss': '3.311', 'grad_norm': '2.075', 'learning_rate': '0.0009', 'epoch': '{:.4g}'}}\n"
"""As the Trainer of transformers 5.24 prints them."""


def of_trainer(step: int, epoch: float) -> dict[int, RankProgress]:
    said = {"step": step, "total": 300, "epoch": epoch, "every": 10}
    return {0: RankProgress(0, 9.0, step=step, trainer=said), 1: RankProgress(1, 9.0, step=step)}


@pytest.mark.usefixtures("runs")
def test_trainer_lines_wait_for_the_probes_step(task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[Any] = [{}]
    monkeypatch.setattr(LocalBackend, "pulses", lambda *_: dict(published[-1]))
    assert progress(task, watcher, 0.0) == {}
    write(task, '{"event": "checkpoint", "step": 0, "path": "/x"}\n' + LINE.format(10 / 73))
    published.append({0: RankProgress(0, 9.0, trainer={"step": 0, "total": 300, "epoch": 0.0, "every": 10})})
    assert progress(task, watcher, MAX_RANK_0_INTERVAL_SECONDS) == {}
    assert (points(), task.checkpoints.count()) == (0, 1), "what stands before it does not wait"
    published.append(of_trainer(17, 17 / 73))
    assert progress(task, watcher, MAX_RANK_0_INTERVAL_SECONDS + URGENT_INTERVAL_SECONDS)["step"] == 17
    watcher.poll(MAX_RANK_0_INTERVAL_SECONDS + 2 * URGENT_INTERVAL_SECONDS)
    write(
        task, "".join(LINE.format(step / 73) for step in range(20, 100, 10)) + "{'eval_loss': '2.9', 'epoch': 1.233}\n"
    )
    expected = {"step": 17, "counted": True, "total": 300, "loss": 3.311}
    assert progress(task, watcher, MAX_RANK_0_INTERVAL_SECONDS + 3 * URGENT_INTERVAL_SECONDS) == expected
    steps = list(MetricPoint.objects.order_by("pk").values_list("step", flat=True))
    assert steps == [*range(10, 100, 10), 90]
    write(task, LINE.format(300 / 73))
    trainer = published[-1][0].trainer
    close_with(task, [{"rank": 0, "node_rank": 0, "state": "exited", "last_step": 80, "trainer": trainer}])
    assert (task.progress["step"], task.progress["total"]) == (17, 300), "a resumed Trainer goes on counting"


@pytest.mark.usefixtures("runs")
def test_lines_of_another_program_without_a_step_are_numbered_at_once(
    task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [20]
    monkeypatch.setattr(LocalBackend, "pulses", lambda *_: {0: RankProgress(0, 9.0, step=steps[-1])})
    watcher.poll(0.0)
    watcher.poll(TICK_SECONDS)
    write(task, 2 * LINE.format(0.1562))
    assert progress(task, watcher, MIN_INTERVAL_SECONDS / 2) == {"step": 20, "counted": True, "loss": 3.311}
    assert list(MetricPoint.objects.order_by("pk").values_list("step", flat=True)) == [1, 2]
    steps.append(35)
    assert progress(task, watcher, MIN_INTERVAL_SECONDS * 2) == {"step": 35, "counted": True, "loss": 3.311}
    write(task, LINE.format(0.2))
    close_with(task, [{"rank": 0, "node_rank": 0, "state": "exited", "last_step": 40}])
    assert task.progress == {"step": 40, "counted": True, "loss": 3.311}
    assert points() == 3


@pytest.mark.usefixtures("runs")
def test_human_readable_lines_give_a_curve_and_the_probe_gives_progress(
    task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBackend, "pulses", lambda *_: {0: RankProgress(0, 9.0, step=43)})
    watcher.poll(0.0)
    write(task, "".join(f"iter {number}: loss 1.{number}000, time 250.00ms, mfu 1.2%\n" for number in range(80)))
    for turn in range(1, 3):
        found = progress(task, watcher, turn * MIN_INTERVAL_SECONDS)
    assert found == {"step": 43, "counted": True, "loss": 1.79}
    assert list(MetricPoint.objects.order_by("pk").values_list("step", flat=True)) == list(range(80))
    close_with(task, [{"rank": 0, "node_rank": 0, "state": "exited", "last_step": 80}])
    assert task.progress == {"step": 80, "counted": True, "loss": 1.79}


@pytest.mark.usefixtures("runs")
def test_without_a_probe_trainer_lines_wait_for_a_while(
    task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBackend, "pulses", lambda *_: {})
    write(task, 2 * LINE.format(0.1562))
    assert progress(task, watcher, 0.0) == {}
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", 0.0)
    assert progress(task, watcher, MAX_RANK_0_INTERVAL_SECONDS) == {"step": 2, "counted": True, "loss": 3.311}


def close_with(task: Task, ranks: list[dict[str, Any]]) -> None:
    task.attempts.update(seen={"ranks": ranks})
    close_attempt(task, task.attempts.get(), ReconcileDecision(ReconcileAction.CLOSE, TaskState.SUCCEEDED))
    task.refresh_from_db()


def test_a_printed_step_stays_the_tasks_step(task: Task, watcher: Watcher) -> None:
    write(task, "{'loss': 1, 'step': 70}\n{'loss': 0.5, 'epoch': 1}\n")
    watcher.poll(TICK_SECONDS)
    task.attempts.update(seen={"ranks": [{"rank": 0, "last_step": 40}]})
    close_attempt(task, task.attempts.get(), ReconcileDecision(ReconcileAction.CLOSE, TaskState.SUCCEEDED))
    task.refresh_from_db()
    assert task.progress == {"step": 70, "loss": 0.5}


class Enough(BaseException):
    pass


def test_a_database_error_is_survived(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []

    def find() -> None:
        found.append(True)
        if len(found) == 1:
            raise OperationalError("away")
        raise Enough

    monkeypatch.setattr(watcher, "find", find)
    with pytest.raises(Enough):
        watcher.run()
    assert len(found) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_stops_cleanly_without_database_and_broker(
    number: signal.Signals, tmp_path: Path, root: Path
) -> None:
    env = {**os.environ, "FERMI_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "server.settings"}
    env.pop("DATABASE_URL", None)
    env.pop("REDIS_URL", None)
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "manage.py", "watch"], cwd=root, env=env, stdout=file, stderr=file)
    try:
        until(lambda: "a look failed" in output.read_text(), what="it looks, in vain")
        process.send_signal(number)
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert "Ended" not in output.read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_end_that_a_destructor_swallowed_is_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Destructed:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    monkeypatch.setattr(sys, "unraisablehook", watch._hide_ended)
    Destructed(watch.WatcherEndedError())
    assert capsys.readouterr().err == ""
    Destructed(ValueError("another error"))
    assert "another error" in capsys.readouterr().err


def use(task: Task, node: int, *samples: tuple[float, dict[str, Any]]) -> None:
    """As a node's runner on this machine leaves it."""
    folder = Path(engine_access.get_backend(task.cluster)._run_dir(f"{task.pk}-1"))  # type: ignore[attr-defined]
    folder.mkdir(parents=True, exist_ok=True)
    published = [{"at": at, "values": values, "emulated": True} for at, values in samples]
    (folder / f"node-{node}.telemetry.json").write_text(json.dumps({"telemetry": published}))


def test_usage_of_an_attempt_is_stored_for_environment_and_ranks(task: Task) -> None:
    zone = AvailabilityZone.objects.create(name="a")
    for node, processes in ((0, 2), (1, 1)):
        environment = DevEnvironment.objects.create(
            pk=f"env-{node}", name=f"e{node}", project=task.project, cluster=task.cluster, zone=zone
        )
        Node.objects.create(task=task, node_rank=node, environment=environment, name="e", processes=processes)
    at = now().timestamp()
    use(task, 0, (at - 15, {"gpu:0": 1, "cpu": 7}), (at, {"gpu:0": 10, "rank_cpu:1": 20, "rank_cpu:2": 99, "x": 1}))
    use(task, 1, (at, {"gpu:0": 30, "rank_cpu:2": 40}), (at + 1, {"gpu:0": "much"}))
    use(task, 7, (at, {"gpu:0": 50}))
    watcher = Watcher()
    watcher.find()
    watcher.poll(0.0)
    watcher.poll(TICK_SECONDS)
    watcher.writer.flush(all_of_it=True)
    found = read_newest(["env-0", "env:env-0", "env:env-1", "task:task-x"])
    assert {subject: dict(one.values) for subject, one in found.items()} == {
        "env:env-0": {"gpu:0": 10},  # what the machine itself does is measured once for all of its environments
        "env:env-1": {"gpu:0": 30},
        "task:task-x": {"rank_cpu:1": 20, "rank_cpu:2": 40},  # ranks of each node, and no other's
    }
    assert found["env:env-0"].emulated


def test_usage_reported_at_the_end_of_an_attempt_is_read(task: Task) -> None:
    """Of an attempt that ends before a runner has published anything of it, there is nothing else."""
    Node.objects.create(task=task, node_rank=0, name="e", processes=3)
    watcher = Watcher()
    watcher.find()
    watcher.poll(0.0)
    use(task, 0, (now().timestamp(), {"rank_gpu_memory:1": 5000}))
    watcher.poll(TICK_SECONDS)
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED)
    watcher.find()
    watcher.writer.flush(all_of_it=True)
    assert read_newest(["task:task-x"])["task:task-x"].values == {"rank_gpu_memory:1": 5000}


def test_unreadable_usage_does_not_stop_log_reading(
    task: Task, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Node.objects.create(task=task, node_rank=0, name="e", processes=3)
    watcher = Watcher()
    watcher.find()

    def away(self: LocalBackend, handle: Any, after: float) -> Any:
        raise BackendError("ENGINE_UNREACHABLE", why="no route")

    monkeypatch.setattr(LocalBackend, "telemetry", away)
    for tick in range(20):
        write(task, '{"step": 1, "loss": 1}\n')
        watcher.poll(tick * TICK_SECONDS)
    assert points() == 20
    assert len(caplog.records) == 1


def test_the_poll_interval_of_an_idle_rank_is_bounded():
    assert poll_interval.compute_pause(0.1, 0.05) == 2
    assert poll_interval.compute_pause(60, 0.05) == poll_interval.MAX_PAUSE_SECONDS
    assert poll_interval.compute_pause(60, 0.01, 60) == 60

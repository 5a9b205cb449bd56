"""What the platform does for engines that live elsewhere: orphans, paths, one thread per cluster."""

import threading
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.clusters import cluster_threads, paths
from apps.clusters.models import Cluster
from apps.training.core import engine_access, wakeups
from apps.training.logs import ingest
from apps.training.models import Attempt, Checkpoint, Task
from apps.training.reconcile import engine_watch
from fermi.engines.base import RemoteBackend
from fermi.engines.local import LocalBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Handle, JobSpec
from fermi.runner.run_names import parse_run_name
from tests.apps.attempts import begin_attempt, write
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)


class RemoteEngine:
    """A remote engine that has `here`, and forgets what it is told to."""

    def __init__(self, *here: str) -> None:
        self.here = list(here)
        self.before_answering: Callable[[], None] = lambda: None
        self.away = False

    def watch(self, stop: threading.Event, on_change: Callable[[str], None]) -> None:
        for name in self.here:
            on_change(name)
        stop.wait()

    def orphans(self, live: Collection[str]) -> list[Handle]:
        if self.away:
            raise BackendError("ENGINE_UNREACHABLE", why="away")
        found = [Handle(name, *_parts(name), world_size=0) for name in self.here if name not in live]
        self.before_answering()
        return found

    def delete_attempt(self, handle: Handle) -> None:
        self.here.remove(handle.name)


def _parts(name: str) -> tuple[str, int]:
    task_id, number = parse_run_name(name)
    return task_id, int(number)


@pytest.fixture
def remote(task: Task, monkeypatch: pytest.MonkeyPatch) -> RemoteEngine:
    engine = RemoteEngine()
    monkeypatch.setattr(engine_watch, "get_backend", lambda cluster: engine)
    return engine


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    sent: list[str] = []
    monkeypatch.setattr(wakeups, "_send", lambda name, *args: sent.extend(args))
    return sent


def test_only_remote_engines_are_followed_and_swept(tmp_path: Path) -> None:
    assert isinstance(RemoteEngine(), RemoteBackend)
    assert not isinstance(LocalBackend({"data_dir": str(tmp_path), "warm": False}), RemoteBackend)


def test_ended_and_unknown_attempts_are_removed_and_live_ones_kept(task: Task, remote: RemoteEngine) -> None:
    begin_attempt(task, 2)
    remote.here = ["task-x-1", "task-x-2", "task-gone-7"]
    assert engine_watch.delete_orphans() == 2
    assert remote.here == ["task-x-2"]
    assert engine_watch.delete_orphans() == 0


def test_an_attempt_that_starts_during_the_query_is_no_orphan(task: Task, remote: RemoteEngine) -> None:
    remote.here = ["task-x-2"]
    remote.before_answering = lambda: begin_attempt(task, 2)
    assert engine_watch.delete_orphans() == 0


def test_an_unreachable_engine_does_not_stop_the_sweep_of_others(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster.objects.create(name="other", backend="local")
    away, there = RemoteEngine(), RemoteEngine("task-gone-1")
    away.away = True
    monkeypatch.setattr(engine_watch, "get_backend", lambda cluster: there if cluster.name == "other" else away)
    assert engine_watch.delete_orphans() == 1


def test_engine_events_wake_the_reconciler(task: Task, remote: RemoteEngine, woken: list[str]) -> None:
    remote.here = ["task-x-1"]
    following = engine_watch.create_engine_watchers()
    following.update()
    try:
        until(lambda: woken == ["task-x"], what="the hint")
    finally:
        following.close()


# Threads --------------------------------------------------------------------------------------------------------------


def test_each_cluster_is_followed_once_and_again_when_its_connection_changes(task: Task) -> None:
    began: list[tuple[str, Any]] = []
    ended: list[str] = []

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        began.append((cluster.name, cluster.connection))
        ending.wait()
        ended.append(cluster.name)

    following = cluster_threads.ClusterThreads("test", lambda cluster: cluster.backend == "local", follow)
    Cluster.objects.create(name="not wanted", backend="kubernetes")
    try:
        following.update()
        following.update()
        until(lambda: began == [("local", {})], what="it is followed")
        Cluster.objects.filter(name="local").update(connection={"python": "other"})
        following.update()
        until(lambda: began[1:] == [("local", {"python": "other"})] and ended == ["local"], what="and anew")
        Cluster.objects.filter(name="local").update(backend="kubernetes")
        following.update()
        until(lambda: ended == ["local", "local"], what="and no more")
    finally:
        following.close()


def test_following_continues_after_a_failure(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_threads, "RETRY_SECONDS", 0.01)
    tries: list[int] = []

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise BackendError("ENGINE_UNREACHABLE") if len(tries) == 1 else ValueError("a surprise")
        ending.wait()

    following = cluster_threads.ClusterThreads("test", lambda cluster: True, follow)
    following.update()
    try:
        until(lambda: len(tries) == 3, what="the third try")
    finally:
        following.close()


# Paths ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(task: Task) -> Cluster:
    Cluster.objects.update(backend="agent", connection={"data": {"mountPath": "/mnt/fermi"}})
    task.cluster.refresh_from_db()
    return task.cluster


def test_only_paths_of_the_data_directory_are_translated(mounted: Cluster, settings: Any) -> None:
    ours = f"{settings.DATA_DIR}/checkpoints/task-x/step_5.pt"
    assert paths.to_cluster_path(mounted, ours) == "/mnt/fermi/checkpoints/task-x/step_5.pt"
    assert paths.to_platform_path(mounted, paths.to_cluster_path(mounted, ours)) == ours
    for other in ("", "auto", "/elsewhere/x", f"{settings.DATA_DIR}-other/x"):
        assert paths.to_cluster_path(mounted, other) == paths.to_platform_path(mounted, other) == other


def test_different_spellings_of_a_path_are_equal(mounted: Cluster, settings: Any) -> None:
    ours = f"{settings.DATA_DIR}/checkpoints/task-x/step_5.pt"
    for spelt in (
        "//mnt/fermi/./checkpoints/task-y/../task-x//step_5.pt",
        "/mnt/x/../fermi/checkpoints/task-x/step_5.pt",
    ):
        assert paths.to_platform_path(mounted, spelt) == ours
    assert paths.to_cluster_path(mounted, f"{settings.DATA_DIR}/x/../checkpoints") == "/mnt/fermi/checkpoints"


@pytest.mark.parametrize(
    ("backend", "connection"),
    [
        ("kubernetes", {"data": {"mountPath": "/mnt/fermi", "volume": {"emptyDir": {}}}}),
        ("slurm", {"folder": "/mnt/fermi/"}),
    ],
)
def test_each_engine_has_its_data_path(task: Task, settings: Any, backend: str, connection: dict[str, Any]) -> None:
    remote = Cluster(name="elsewhere", backend=backend, connection=connection)
    assert paths.to_cluster_path(remote, f"{settings.DATA_DIR}/x") == "/mnt/fermi/x"
    assert paths.to_platform_path(remote, "/mnt/fermi/x") == f"{settings.DATA_DIR}/x"


def test_a_cluster_without_a_mount_uses_our_paths(task: Task, settings: Any) -> None:
    assert paths.to_cluster_path(task.cluster, f"{settings.DATA_DIR}/x") == f"{settings.DATA_DIR}/x"


def test_a_job_is_planned_with_the_clusters_paths(task: Task, mounted: Cluster, settings: Any) -> None:
    data = settings.DATA_DIR
    job = JobSpec("task-x", "ddp", (), "", train_data=f"{data}/a", valid_data=f"{data}/b", checkpoint_dir=f"{data}/c")
    task.spec = job.to_json()
    attempt = Attempt(task=task, number=2, master_port=29500, resume_from=f"{data}/c/1.pt")
    planned = engine_access.build_attempt_job(task, job, attempt, timedelta(hours=1))
    assert (planned.train_data, planned.valid_data) == ("/mnt/fermi/a", "/mnt/fermi/b")
    assert planned.max_run == 3600.0
    assert (planned.checkpoint_dir, planned.resume_from) == ("/mnt/fermi/c", "/mnt/fermi/c/1.pt")


def test_a_reported_checkpoint_path_is_stored_as_the_platforms_path(
    task: Task, mounted: Cluster, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalBackend({"data_dir": str(settings.DATA_DIR), "warm": False})
    monkeypatch.setattr(ingest, "get_backend", lambda cluster: local)
    write(task, '{"event": "checkpoint", "step": 5, "path": "/mnt/fermi/checkpoints/task-x/5.pt"}\n')
    ingest.drain_logs(task.pk, 1)
    assert Checkpoint.objects.get().path == f"{settings.DATA_DIR}/checkpoints/task-x/5.pt"

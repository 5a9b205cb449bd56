"""What the agent backend has remembered, on whichever database the suite runs."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import Project
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.workers.engine import store
from apps.workers.engine.store import DatabaseStore
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.schema import HeartbeatEntry
from apps.workers.models import Launch, Listening, Report, Worker
from apps.workers.services import environments
from apps.workers.tokens import hash_token
from fermi.engines.agent.store import RankOrder
from fermi.jobs.errors import BackendError
from fermi.runner.run_names import parse_run_name

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]
NODES = ("gn6", "gn7")
IDS = ["gn6-0", "gn6-1", "gn7-0"]


@pytest.fixture(autouse=True)
def workers(transactional_db: None) -> None:
    project, moment = Project.objects.create(name="one"), now()
    Listening.objects.create(pk=1, since=moment - timedelta(hours=1), heard_at=moment)
    for key in IDS:
        node, _, number = key.partition("-")
        worker = Worker.objects.create(
            pk=key, node=node, number=int(number), project=project, machine=node, digest=hash_token(key)
        )
        Report.objects.create(worker=worker, at=moment)
    environments.sync_environments(project.pk, NODES)


def orders(name: str, workers: Sequence[str] = IDS) -> list[RankOrder]:
    return [
        RankOrder(worker, rank, NODES.index(worker[:3]), worker[:3], f"{name} {rank}",
              {"name": name, "digest": f"{name} {rank}", "spec": {"rank": rank}, "files": {"f": "text"}})
        for rank, worker in enumerate(workers)
    ]  # fmt: skip


def store_orders(name: str, workers: Sequence[str] = IDS) -> None:
    task, attempt = parse_run_name(name)
    DatabaseStore().put(name, task, int(attempt), orders(name, workers))


def stop(name: str, grace: float = 30.0) -> None:
    task, attempt = parse_run_name(name)
    DatabaseStore().stop(name, task, int(attempt), grace)


def wanted(worker: str = "gn6-0") -> tuple[str | None, str | None]:
    """Names of the order and of the stop that a heartbeat tells."""
    desired = Worker.objects.get(pk=worker).desired
    order, ending = desired.get("order"), desired.get("stop")
    return order and order["name"], ending and ending["name"]


def generation(worker: str = "gn6-0") -> int:
    return Worker.objects.get(pk=worker).generation


def report_run(worker: str, name: str, sequence: int = 1, **process: Any) -> None:
    cache = HeartbeatCache()
    cache.load([worker])
    said = {"name": name, "rank": 0, "state": "running", "pid": 7, "left": True, **process}
    cache.hear([HeartbeatEntry(worker, worker, "first", sequence, 0, said, {})])
    cache.flush()


def reports(name: str) -> list[tuple[Any, ...]]:
    return [(r.worker, r.status, r.state, r.exit_code, r.left) for r in DatabaseStore().attempts([name])[name].reports]


def test_an_attempt_is_sent_to_all_its_workers_once() -> None:
    store_orders("task-x-1")
    assert [wanted(key) for key in IDS] == [("task-x-1", None)] * 3
    before = generation()
    store_orders("task-x-1", ["gn6-1"])
    assert generation() == before
    assert store.read_order("gn6-1") == {
        "name": "task-x-1", "digest": "task-x-1 1", "spec": {"rank": 1}, "files": {"f": "text"}, "generation": before,
        "secrets": {},
    }  # fmt: skip
    assert DatabaseStore().names() == [("task-x-1", "task-x", 1)]
    assert reports("task-x-1") == [(key, "online", "ordered", None, None) for key in IDS]


def test_nothing_is_sent_where_a_worker_is_missing() -> None:
    with pytest.raises(BackendError) as raised:
        DatabaseStore().put("task-x-1", "task-x", 1, [*orders("task-x-1"), RankOrder("gn9-0", 9, 2, "gn9", "d", {})])
    assert (raised.value.code, raised.value.permanent, raised.value.params) == (
        "WORKER_UNKNOWN", True, {"workers": "gn9-0"},
    )  # fmt: skip
    assert wanted() == (None, None)
    assert DatabaseStore().names() == []


def test_a_stopped_attempt_stays_stopped_with_the_shortest_grace() -> None:
    store_orders("task-x-1")
    stop("task-x-1")
    assert wanted() == ("task-x-1", "task-x-1")
    first = generation()
    stop("task-x-1", 60.0)
    assert generation() == first, "later is no news"
    stop("task-x-1", 1.0)
    assert generation() > first
    assert Worker.objects.get(pk="gn6-0").desired["stop"]["graceSeconds"] == 1.0
    store_orders("task-x-1")
    assert wanted() == ("task-x-1", "task-x-1")
    assert DatabaseStore().attempts(["task-x-1"])["task-x-1"].stopped


def test_an_attempt_stopped_before_it_was_stored_never_starts() -> None:
    stop("task-x-1")
    store_orders("task-x-1")
    assert wanted() == (None, None)
    assert DatabaseStore().attempts(["task-x-1", "task-y-1"]) == {
        "task-x-1": DatabaseStore().attempts(["task-x-1"])["task-x-1"]
    }
    assert reports("task-x-1") == []


def test_a_newer_attempt_replaces_an_older_one_which_keeps_its_last_report() -> None:
    store_orders("task-x-1")
    report_run("gn6-0", "task-x-1", state="exited", exitCode=1, left=True)
    store_orders("task-x-2")
    assert wanted() == ("task-x-2", None)
    report_run("gn6-0", "task-x-2", sequence=2)
    stop("task-x-1")
    assert wanted() == ("task-x-2", None), "what is over is not stopped in its place"
    assert reports("task-x-1")[0] == ("gn6-0", "online", "exited", 1, True)
    assert reports("task-x-2")[0] == ("gn6-0", "online", "running", None, True)


def test_an_older_report_stored_late_is_ignored() -> None:
    store_orders("task-x-1")
    report_run("gn6-0", "task-x-1", sequence=5, state="exited", exitCode=0, left=False)
    report_run("gn6-0", "task-x-1", sequence=4)
    assert reports("task-x-1")[0] == ("gn6-0", "online", "exited", 0, False)


def test_stall_progress_and_findings_of_a_rank_reach_the_platform() -> None:
    store_orders("task-x-1")
    cause = {"code": "MASTER_PORT_TAKEN", "port": 29500, "holder": "pid 7 (nc -l)"}
    course = {"began_at": 9.5, "last_step": 80, "trainer": {"step": 580, "total": 600, "epoch": 1.5, "every": 10}}
    report_run("gn6-0", "task-x-1", stillSince=12.5, cause=cause, course=course)
    [told, *others] = DatabaseStore().attempts(["task-x-1"])["task-x-1"].reports
    assert (told.still_since, told.cause, told.course) == (12.5, cause, course)
    assert [(one.still_since, one.cause, one.course) for one in others] == [(None, {}, {})] * 2


def test_a_problem_of_a_rank_reaches_the_platform_at_once() -> None:
    store_orders("task-x-1")
    error = dict.fromkeys(("type", "message", "file", "line", "function", "at", "step")) | {"type": "ValueError"}
    cache = HeartbeatCache()
    cache.load(["gn6-0"])
    process = {"name": "task-x-1", "rank": 0, "state": "running", "error": error}
    for sequence, said in enumerate((process, process)):
        cache.hear([HeartbeatEntry("gn6-0", "gn6-0", "first", sequence, 0, said, {})])
        assert cache.urgent is (sequence == 0)
        cache.flush()
    [told, *others] = DatabaseStore().attempts(["task-x-1"])["task-x-1"].reports
    assert (told.error, told.stalled, told.kill) == (error, None, None)
    assert [(one.error, one.stalled, one.kill) for one in others] == [(None, None, None)] * 2


def test_progress_is_stored_with_the_next_write(django_assert_num_queries: Any) -> None:
    store_orders("task-x-1")
    cache = HeartbeatCache()
    cache.load(["gn6-0", "gn6-1"])
    process = {"name": "task-x-1", "rank": 0, "state": "running"}
    pulses = [{"rank": 7, "at": 9.0, "step": step} for step in (1, 2)]
    cache.hear([HeartbeatEntry("gn6-0", "gn6-0", "first", 1, 0, process, {}, pulses[0])])
    cache.flush()
    cache.hear([HeartbeatEntry("gn6-0", "gn6-0", "first", 2, 0, process, {}, pulses[1])])
    assert not cache.urgent
    assert cache.flush() == 1
    cache.hear([HeartbeatEntry("gn6-1", "gn6-1", "first", 1, 0, {**process, "name": "task-other-1"}, {}, pulses[0])])
    cache.flush()
    with django_assert_num_queries(2):
        assert DatabaseStore().pulses("task-x-1") == [{"rank": 0, "at": 9.0, "step": 2}]


def test_preparation_is_stored_with_the_next_write_for_that_attempt_only() -> None:
    store_orders("task-x-1")
    cache = HeartbeatCache()
    cache.load(["gn6-0"])
    doing = {"code": "CODE_PACKAGES_PREPARING", "file": "requirements.txt"}

    def told(name: str) -> list[Any]:
        return [one.doing for one in DatabaseStore().attempts([name])[name].reports]

    for sequence, said in enumerate(("Collecting numpy", "Installing numpy")):
        process = {"name": "task-x-1", "rank": 0, "state": "starting", "doing": {**doing, "said": said}}
        cache.hear([HeartbeatEntry("gn6-0", "gn6-0", "first", sequence, 0, process, {})])
        assert cache.urgent is (sequence == 0), "further words are worth no haste"
        cache.flush()
        assert told("task-x-1") == [{**doing, "said": said}, None, None]
    store_orders("task-x-2")
    assert told("task-x-2") == [None] * 3
    cache.hear(
        [HeartbeatEntry("gn6-0", "gn6-0", "first", 9, 0, {"name": "task-x-1", "rank": 0, "state": "running"}, {})]
    )
    cache.flush()
    assert told("task-x-1") == [None] * 3


def test_concurrent_reports_of_two_processes_are_both_kept() -> None:
    store_orders("task-x-1")
    store_orders("task-x-2")
    cache = HeartbeatCache()
    cache.load(["gn6-0"])
    for sequence, name in ((1, "task-x-1"), (2, "task-x-2")):
        said = {"name": name, "rank": 0, "state": "exited", "exitCode": sequence, "left": False}
        cache.hear([HeartbeatEntry("gn6-0", "gn6-0", "first", sequence, 0, said, {})])
    cache.flush()
    assert [reports(name)[0][3] for name in ("task-x-1", "task-x-2")] == [1, 2]


def test_a_forgotten_attempt_is_no_longer_sent_but_still_known_for_its_logs() -> None:
    store_orders("task-x-1")
    DatabaseStore().delete_attempt("task-x-1")
    DatabaseStore().delete_attempt("task-x-1")
    assert wanted() == (None, None)
    assert store.read_order("gn6-0") is None
    assert DatabaseStore().names() == []
    assert DatabaseStore().attempts(["task-x-1"]) == {}
    store_orders("task-x-1")
    assert wanted() == (None, None)
    assert store.delete_forgotten_attempts() == 0
    Launch.objects.update(created_at=now() - timedelta(days=2))
    assert store.delete_forgotten_attempts() > 0
    assert not Launch.objects.exists()


def test_a_lost_worker_is_out_of_service_before_it_is_published() -> None:
    store_orders("task-x-1")
    Report.objects.filter(worker="gn7-0").update(at=now() - timedelta(minutes=1))
    assert DevEnvironment.objects.get(name="gn7").status == "running"
    assert [row[1] for row in reports("task-x-1")] == ["online", "online", "lost"]
    assert DevEnvironment.objects.get(name="gn7").status == "unhealthy"
    assert DevEnvironment.objects.get(name="gn6").status == "running"


def test_a_deleted_worker_or_one_of_another_machine_is_lost() -> None:
    store_orders("task-x-1")
    Worker.objects.filter(pk="gn6-0").delete()
    Worker.objects.filter(pk="gn6-1").update(machine="another")
    assert [row[1] for row in reports("task-x-1")] == ["lost", "lost", "online"]


def test_queries_do_not_grow_with_attempts(django_assert_max_num_queries: Any) -> None:
    for number in range(1, 6):
        store_orders(f"task-x-{number}")
    with django_assert_max_num_queries(4):
        assert len(DatabaseStore().attempts([f"task-x-{number}" for number in range(1, 6)])) == 5


def test_of_concurrent_orders_the_last_one_runs_everywhere() -> None:
    names = [f"task-{letter}-1" for letter in "abcdef"]
    start = threading.Barrier(len(names))

    def order(name: str) -> None:
        start.wait()
        try:
            store_orders(name)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(order, names))
    assert len({wanted(key) for key in IDS}) == 1
    assert len({generation(key) for key in IDS}) == 1
    assert len(DatabaseStore().names()) == len(names)

"""Environments lost between attempts: a spare takes their place, or the task waits."""

from dataclasses import replace
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import leases, selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.core import placement, task_store, transitions
from apps.training.models import Event, Task
from apps.training.queue import load, node_selection
from apps.training.reconcile import actions
from apps.training.states import TaskState
from fermi.jobs.spec import Entrypoint, JobSpec
from fermi.scheduler.snapshot import Select, WaitingTask
from fermi.schema import serialization
from tests.apps.attempts import begin_attempt

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture
def environments(user: User) -> dict[str, DevEnvironment]:
    """Hosts with workers: gn5 (master) and gn6 with two, gn7 with one; and as spares gn0 with one, gn1 with four, gn2
    with two."""
    project = Project.objects.create(name="p")
    cluster = Cluster.objects.create(name="c", backend="agent")
    zone = AvailabilityZone.objects.create(name="z")

    def make(name: str, count: int) -> DevEnvironment:
        engine = {"workers": [f"{name}-{i}" for i in range(count)], "gpus": list(range(count)), "address": name}
        return DevEnvironment.objects.create(
            id=name, name=name, project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=count,
            host=name, engine=engine,
        )  # fmt: skip

    return {name: make(name, count) for name, count in (("gn5", 2), ("gn6", 2), ("gn7", 1), *SPARES.items())}


SPARES = {"gn0": 1, "gn1": 4, "gn2": 2}


@pytest.fixture
def task(user: User, environments: dict[str, DevEnvironment], settings: Any, tmp_path: Any) -> Task:
    """Queued again after its first attempt, with all of its environments still its own."""
    settings.DATA_DIR = tmp_path
    chosen = [environments[name] for name in ("gn7", "gn5", "gn6")]
    job = JobSpec(
        "task-x", "pytorch-ddp", tuple(selectors.build_nodes(chosen)), "gn5", entrypoint=Entrypoint("train.py"),
        master_port=29500, checkpoint_dir=str(tmp_path), spares=tuple(SPARES),
    )  # fmt: skip
    task = Task.objects.create(
        id="task-x", project=chosen[0].project, owner=user, cluster=chosen[0].cluster, name="t",
        framework=job.framework, request={}, state=TaskState.QUEUED,
        state_since=now(), due_at=now(), created_at=now(), **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    begin_attempt(task, 1)
    assert leases.acquire_leases([environment.pk for environment in chosen], task.pk) is None
    return task


def lose_environments(*names: str, **how: Any) -> None:
    DevEnvironment.objects.filter(pk__in=names).update(**(how or {"status": "unhealthy"}))


def lease_until_started(task: Task) -> Task:
    """As a pass of the reconciler does, as far as the next attempt's beginning."""
    while task.state == TaskState.QUEUED and actions.lease_environments(task) is None:
        task = Task.objects.get(pk=task.pk)
    return task


def held(task: Task) -> set[str]:
    return set(Lease.objects.filter(holder=task.pk).values_list("environment_id", flat=True))


def places(task: Task) -> list[tuple[str | None, int]]:
    return list(task.nodes.values_list("environment_id", "processes"))


def workers(task: Task) -> dict[str, list[str]]:
    """As the next attempt's order has them, by node."""
    plan = task.attempts.get(number=2).plan
    nodes = [artifact["content"] for artifact in plan["artifacts"] if artifact["kind"] == "node"]
    return {node["ranks"][0]["worker"].rpartition("-")[0]: [rank["worker"] for rank in node["ranks"]] for node in nodes}


def assert_waits(task: Task) -> None:
    before = places(task)
    looked = lease_until_started(task)
    assert (looked.state, looked.reason, looked.attempt) == (TaskState.QUEUED, "ENVIRONMENT_UNAVAILABLE", 1)
    assert (places(task), held(task)) == (before, {"gn5", "gn6", "gn7"})
    assert not Event.objects.filter(code="ENVIRONMENT_REPLACED").exists()


@pytest.mark.parametrize(
    ("how", "status"), [({"status": "unhealthy"}, "unhealthy"), ({"status": "stopped"}, "stopped"),
                        ({"cordoned": True}, "cordoned")],
)  # fmt: skip
def test_the_first_large_enough_spare_replaces_a_node(task: Task, how: dict[str, Any], status: str) -> None:
    lose_environments("gn6", **how)
    looked = lease_until_started(task)
    assert (looked.state, looked.attempt, looked.master, looked.world_size) == (TaskState.STARTING, 2, "gn5", 5)
    assert places(task) == [("gn5", 2), ("gn1", 2), ("gn7", 1)], "by the rule of ranks, anew"
    assert workers(looked) == {"gn5": ["gn5-0", "gn5-1"], "gn1": ["gn1-0", "gn1-1"], "gn7": ["gn7-0"]}
    assert held(task) == {"gn5", "gn1", "gn7"}
    event = Event.objects.get(code="ENVIRONMENT_REPLACED")
    assert (event.attempt, event.params) == (1, {"environment": "gn6", "status": status, "by": "gn1"})


@pytest.mark.parametrize(("namespace", "replaced"), [("training", True), ("elsewhere", False)])
def test_a_spare_that_can_train_neither_inside_nor_outside_is_skipped(
    task: Task, environments: dict[str, DevEnvironment], namespace: str, replaced: bool
) -> None:
    """On Kubernetes: pods of a namespace that is not the cluster's, and that its connection does not name."""
    Cluster.objects.update(backend="kubernetes", connection={"namespace": "training"})
    for name in environments:
        engine = {"pod": name, "container": "main", "namespace": namespace if name in SPARES else "training"}
        DevEnvironment.objects.filter(pk=name).update(engine={**engine, "inside": {"python": "p"}}, image="i")
    rows = DevEnvironment.objects.select_related("zone").in_bulk(["gn5", "gn6", "gn7"])
    job = replace(JobSpec.from_json(task.spec), nodes=tuple(selectors.build_nodes(rows.values())))
    Task.objects.filter(pk=task.pk).update(spec=job.to_json())
    lose_environments("gn6")
    task = Task.objects.select_related("cluster").get(pk=task.pk)
    assert placement.replace_lost_nodes(task) is replaced
    select = Select(nodes=1, gpus_per_node=1)
    Task.objects.filter(pk=task.pk).update(select=serialization.dump(select))
    asks = WaitingTask(task.pk, task.project_id, "u", task.cluster_id, 0.0, select=select)
    assert node_selection.PlacementCheck()(asks, load.load_environments(ids=["gn1"])) is replaced


def test_the_replacement_of_a_lost_master_becomes_the_master(task: Task) -> None:
    lose_environments("gn5")
    looked = lease_until_started(task)
    assert (looked.state, looked.master, looked.spec["master"]) == (TaskState.STARTING, "gn1", "gn1")
    assert places(task) == [("gn1", 2), ("gn6", 2), ("gn7", 1)]
    assert looked.summary["totalCpus"] == 3


def test_a_removed_environment_is_replaced(task: Task, environments: dict[str, DevEnvironment]) -> None:
    Lease.objects.filter(environment="gn7").delete()
    environments["gn7"].delete()
    assert lease_until_started(task).state == TaskState.STARTING
    assert places(task) == [("gn5", 2), ("gn0", 1), ("gn6", 2)]


def test_several_lost_environments_are_replaced_largest_first(task: Task) -> None:
    lose_environments("gn5", "gn6", "gn7")
    looked = lease_until_started(task)
    assert looked.state == TaskState.STARTING
    assert {node["id"]: node["gpu_count"] for node in looked.spec["nodes"]} == {"gn1": 2, "gn2": 2, "gn0": 1}
    assert Event.objects.filter(code="ENVIRONMENT_REPLACED").count() == 3


def test_a_spare_held_by_another_task_is_not_taken(task: Task) -> None:
    lose_environments("gn6")
    Lease.objects.create(environment_id="gn1", holder="task-other")
    assert lease_until_started(task).state == TaskState.STARTING
    assert places(task) == [("gn5", 2), ("gn2", 2), ("gn7", 1)]


def test_without_a_usable_spare_it_waits_and_leases_none(task: Task) -> None:
    """gn0 is too small; of the others one is busy and one is lost too."""
    lose_environments("gn6", "gn2")
    Lease.objects.create(environment_id="gn1", holder="task-other")
    assert_waits(task)
    lose_environments("gn6", status="running")
    assert lease_until_started(Task.objects.get(pk=task.pk)).state == TaskState.STARTING
    assert held(task) == {"gn5", "gn6", "gn7"}


def test_with_too_few_spares_none_is_leased(task: Task) -> None:
    lose_environments("gn5", "gn6", "gn2")
    assert_waits(task)


def test_a_spare_lost_in_a_race_is_not_leased_twice(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_environments("gn6", "gn2")
    take = leases.acquire_leases

    def beaten(wanted: Any, holder: str) -> Any:
        Lease.objects.get_or_create(environment_id="gn1", defaults={"holder": "task-other"})
        return take(wanted, holder)

    monkeypatch.setattr(leases, "acquire_leases", beaten)
    assert_waits(task)


def test_a_task_without_spares_waits(task: Task) -> None:
    Task.objects.update(spec={**task.spec, "spares": []})
    task.refresh_from_db()
    lose_environments("gn6")
    assert_waits(task)


def test_nothing_is_replaced_before_the_first_attempt(task: Task) -> None:
    Task.objects.update(attempt=0)
    task.refresh_from_db()
    lose_environments("gn6")
    assert not placement.replace_lost_nodes(task)
    assert places(task) == [("gn5", 2), ("gn6", 2), ("gn7", 1)]


def test_a_replacement_interrupted_by_a_kill_is_done_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_environments("gn6")
    with monkeypatch.context() as patched:
        patched.setattr(transitions, "record_event", _killed)
        with pytest.raises(KeyboardInterrupt):
            placement.replace_lost_nodes(task)
    assert (places(task), held(task)) == ([("gn5", 2), ("gn6", 2), ("gn7", 1)], {"gn5", "gn6", "gn7"})
    assert placement.replace_lost_nodes(task)
    with pytest.raises(transitions.StaleTaskError):  # another pass, which read the task before
        placement.replace_lost_nodes(task)
    assert lease_until_started(Task.objects.get(pk=task.pk)).state == TaskState.STARTING
    assert held(task) == {"gn5", "gn1", "gn7"}
    assert Event.objects.filter(code="ENVIRONMENT_REPLACED").count() == 1


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt

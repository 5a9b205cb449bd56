"""Elastic tasks between two attempts: they go on without what is lost, and with it again once it is back."""

from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters import leases, selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core import elastic_size, task_store, transitions
from apps.training.models import Attempt, Event, Task
from apps.training.presenters import selectors as shown
from apps.training.reconcile import actions as reconcile_actions
from apps.training.reconcile import facts, restarts
from apps.training.services import actions
from apps.training.states import TaskState
from apps.training.states.reasons import CAUSES, TaskReason
from fermi.jobs.spec import Elastic, Entrypoint, JobSpec
from fermi.planning import elastic_sizes, plugins
from tests.apps.attempts import begin_attempt
from tests.apps.training.test_placement import held, lose_environments, places

pytestmark = [pytest.mark.database, pytest.mark.django_db]

CHOSEN = ("gn5", "gn6", "gn7", "gn8")


@pytest.fixture
def environments(user: User) -> dict[str, DevEnvironment]:
    """Hosts with two workers each: gn5 to gn8, and gn9 as a spare."""
    project = Project.objects.create(name="p")
    Membership.objects.create(project=project, user=user, role=Role.MEMBER)
    cluster = Cluster.objects.create(name="c", backend="agent")
    zone = AvailabilityZone.objects.create(name="z")
    return {
        name: DevEnvironment.objects.create(
            id=name, name=name, project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=2, host=name,
            engine={"workers": [f"{name}-0", f"{name}-1"], "gpus": [0, 1], "address": name},
        )
        for name in (*CHOSEN, "gn9")
    }  # fmt: skip


@pytest.fixture
def task(user: User, environments: dict[str, DevEnvironment], settings: Any, tmp_path: Any) -> Task:
    """Two to four nodes, gn5 the master; not begun yet."""
    settings.DATA_DIR = tmp_path
    nodes = selectors.build_nodes([environments[name] for name in CHOSEN])
    job = elastic_sizes.set_full_size(
        JobSpec(
            "task-x", "pytorch-ddp", tuple(nodes), "gn5", entrypoint=Entrypoint("train.py"), master_port=29500,
            checkpoint_dir=str(tmp_path), hyperparameters={"batchSize": 8}, elastic=Elastic(2, 4),
        )
    )  # fmt: skip
    first = environments["gn5"]
    task = Task.objects.create(
        id="task-x",
        project=first.project,
        owner=user,
        cluster=first.cluster,
        name="t",
        framework=job.framework,
        request={},
        state=TaskState.QUEUED,
        state_since=now(),
        due_at=now(),
        created_at=now(),
        **task_store.build_job_columns(job),
    )
    task_store.store_nodes(task, job)
    return task


@pytest.fixture
def again(task: Task) -> Task:
    """Queued again after its first attempt, with all of its environments still its own."""
    begin_attempt(task, 1)
    assert leases.acquire_leases(CHOSEN, task.pk) is None
    return task


def lease_until_started(task: Task) -> Task:
    """As a pass of the reconciler does, as far as the next attempt's beginning."""
    task = Task.objects.get(pk=task.pk)
    while task.state == TaskState.QUEUED and reconcile_actions.lease_environments(task) is None:
        task = Task.objects.get(pk=task.pk)
    return task


def queue_again(task: Task) -> Task:
    Attempt.objects.filter(task=task).update(ended_at=now(), created_at=now() - timedelta(hours=1))
    Task.objects.filter(pk=task.pk).update(state=TaskState.QUEUED)
    return lease_until_started(task)


def run(task: Task) -> Task:
    Task.objects.filter(pk=task.pk).update(state=TaskState.RUNNING)
    return Task.objects.get(pk=task.pk)


def codes(task: Task) -> list[str]:
    return list(Event.objects.filter(task=task).order_by("pk").values_list("code", flat=True))


def test_after_a_lost_master_another_is_elected_and_the_batch_divided(again: Task) -> None:
    lose_environments("gn5")
    task = lease_until_started(again)
    assert (task.state, task.attempt, task.master, task.world_size, task.node_count) == ("starting", 2, "gn6", 6, 3)
    assert places(task) == [("gn6", 2), ("gn7", 2), ("gn8", 2)]
    assert held(task) == {"gn6", "gn7", "gn8"}, "what was lost is free for others once it is back"
    assert codes(task)[:3] == ["ENVIRONMENT_LEFT", "MASTER_ELECTED", "RESIZED"]
    resized = Event.objects.get(code="RESIZED").params
    assert resized == {
        "nodes": 3, "before": 4, "all": 4, "worldSize": 6, "master": "gn6", "batch": 64, "steps": 2,
    }  # fmt: skip
    orders = [a["content"] for a in task.attempts.get(number=2).plan["artifacts"] if a["kind"] == "node"]
    ranks = [rank for order in orders for rank in order["ranks"]]
    assert len(ranks) == 6


def test_it_grows_at_the_next_restart_and_gets_its_requested_master_back(again: Task) -> None:
    lose_environments("gn5")
    task = lease_until_started(again)
    lose_environments("gn5", status="running")
    task = queue_again(task)
    assert (task.attempt, task.master, task.world_size) == (3, "gn5", 8)
    assert held(task) == set(CHOSEN)
    assert "ENVIRONMENT_JOINED" in codes(task)


def test_a_returned_environment_held_by_another_task_is_not_taken(again: Task) -> None:
    lose_environments("gn6")
    task = lease_until_started(again)
    lose_environments("gn6", status="running")
    assert leases.acquire_leases(["gn6"], "task-other") is None
    task = queue_again(task)
    assert (task.attempt, task.world_size, held(task)) == (3, 6, {"gn5", "gn7", "gn8"})


def test_below_its_minimum_it_waits_and_keeps_its_leases(again: Task) -> None:
    lose_environments("gn5", "gn6", "gn7")
    task = lease_until_started(again)
    assert (task.state, task.reason, task.attempt) == (TaskState.QUEUED, "ENVIRONMENT_UNAVAILABLE", 1)
    assert held(task) == set(CHOSEN)
    lose_environments("gn5", status="running")
    assert lease_until_started(task).world_size == 4


def test_a_spare_is_preferred_to_a_smaller_size(again: Task) -> None:
    Task.objects.update(spec={**again.spec, "spares": ["gn9"]})
    lose_environments("gn5")
    task = lease_until_started(again)
    assert (task.master, task.world_size, codes(task)[0]) == ("gn9", 8, "ENVIRONMENT_REPLACED")
    lose_environments("gn9")
    lose_environments("gn5", status="running")
    task = queue_again(task)
    assert (task.master, held(task)) == ("gn6", {"gn6", "gn7", "gn8"})


def test_the_first_attempt_starts_with_available_nodes(task: Task) -> None:
    lose_environments("gn6")
    Lease.objects.create(environment_id="gn7", holder="task-other")
    task = lease_until_started(task)
    assert (task.state, task.attempt, held(task)) == ("starting", 1, {"gn5", "gn8"})
    left = Event.objects.filter(code="ENVIRONMENT_LEFT").values_list("params", flat=True)
    assert sorted(params["status"] for params in left) == ["held", "unhealthy"]


def test_with_a_preflight_test_the_first_attempt_waits_for_all_nodes(task: Task) -> None:
    Task.objects.update(spec={**task.spec, "preflight": "quick"})
    lose_environments("gn6")
    task = lease_until_started(task)
    assert (task.state, task.reason) == (TaskState.QUEUED, "ENVIRONMENT_UNAVAILABLE")


def test_a_task_that_is_not_elastic_waits(again: Task) -> None:
    Task.objects.update(spec={**again.spec, "elastic": None})
    lose_environments("gn6")
    assert lease_until_started(again).state == TaskState.QUEUED


def test_a_resize_interrupted_by_a_kill_is_done_once(again: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_environments("gn6")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(transitions, "record_event", killed)
        with pytest.raises(KeyboardInterrupt):
            elastic_size.resize_task(again)
    assert (len(places(again)), held(again)) == (4, set(CHOSEN))
    assert elastic_size.resize_task(again)
    with pytest.raises(transitions.StaleTaskError):  # another pass, which read the task before
        elastic_size.resize_task(again)
    assert lease_until_started(again).world_size == 6
    assert codes(again).count("RESIZED") == 1


def test_losing_nodes_costs_an_elastic_task_no_restart_up_to_a_limit() -> None:
    lost, failed = plugins.get_causes("agent")["WORKER_LOST"], plugins.get_causes("agent")["RANK_FAILED"]
    assert restarts.count_charged_ends([lost] * 4) == 4
    assert restarts.count_charged_ends(restarts.mark_losses_free([lost] * restarts.MAX_FREE_LOSSES)) == 0
    assert (
        restarts.count_charged_ends(restarts.mark_losses_free([lost] * restarts.MAX_FREE_LOSSES + [lost, failed])) == 2
    )
    assert restarts.count_charged_ends([CAUSES[TaskReason.RESIZING]] * 50) == 0


def test_a_resize_causes_no_backoff(again: Task) -> None:
    Attempt.objects.filter(task=again).update(outcome=TaskReason.RESIZING, ended_at=now())
    assert restarts.compute_start_time(again.attempts.all()) is None


def test_growing_asks_the_attempt_to_save_and_end_once(again: Task, user: User) -> None:
    lose_environments("gn6")
    task = run(lease_until_started(again))
    with pytest.raises(ApiError, match="NOTHING_TO_GROW"):
        actions.grow_task(user, task.pk)
    detail = shown.get_task_detail(user, task.pk)["elastic"]
    assert (detail["nodes"], detail["maxNodes"], detail["largest"], detail["accumulationSteps"]) == (3, 4, 3, 2)
    assert detail["away"] == [{"environmentId": "gn6", "name": "gn6", "status": "unhealthy", "taskId": None}]
    lose_environments("gn6", status="running")
    assert shown.get_task_detail(user, task.pk)["elastic"]["largest"] == 4
    actions.grow_task(user, task.pk)
    actions.grow_task(user, task.pk)
    assert codes(task).count("GROW_REQUESTED") == 1
    task = Task.objects.get(pk=task.pk)
    assert facts.build_batch_facts(task, None).resize_requested
    assert shown.get_task_detail(user, task.pk)["elastic"]["resizing"]
    task = queue_again(task)
    assert (task.attempt, task.world_size, task.resize_requested_at) == (3, 8, None)


def test_only_a_running_elastic_task_can_be_asked_to_grow(again: Task, user: User) -> None:
    with pytest.raises(ApiError, match="GROW_NEEDS_RUNNING"):
        actions.grow_task(user, again.pk)
    Task.objects.update(spec={**again.spec, "elastic": None})
    with pytest.raises(ApiError, match="NOT_ELASTIC"):
        actions.grow_task(user, again.pk)


def test_an_ended_task_neither_grows_nor_announces_it(again: Task, user: User) -> None:
    lose_environments("gn6")
    task = run(lease_until_started(again))
    lose_environments("gn6", status="running")
    actions.grow_task(user, task.pk)
    Task.objects.update(state=TaskState.SUCCEEDED)
    detail = shown.get_task_detail(user, task.pk)["elastic"]
    assert (detail["resizing"], detail["nodes"], detail["largest"]) == (False, 3, 3)

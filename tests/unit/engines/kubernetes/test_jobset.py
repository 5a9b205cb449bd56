"""The same, where JobSet and Kueue are installed."""

import os
from dataclasses import replace

import pytest

from fermi.jobs.spec import Phase
from fermi.runner.record_frames import strip_frames
from tests.fakes.kubernetes import Sleeps
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import job, observe_one, submit, until_seen

pytestmark = pytest.mark.skipif(not os.environ.get("FERMI_CRDS"), reason="FERMI_CRDS names no folder of definitions")


FEATURES = ("jobset", "kueue")


def test_a_jobset_trains_like_jobs(lab):
    backend = lab.backend(jobset=True)
    lab.watched(backend)
    one = submit(backend, job(1, 2, script="import os; print(os.environ['RANK'])"))
    seen = until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED and seen.left is False)
    assert [rank.exit_code for rank in seen.ranks] == [0, 0, 0]
    lines = [strip_frames(backend.logs(one, rank, 0).data).decode().splitlines()[-1] for rank in range(3)]
    assert lines == ["0", "1", "2"]


def test_a_failed_rank_of_a_jobset_is_named(lab):
    backend = lab.backend(jobset=True)
    one = submit(backend, job(1, 1, script="import os, sys; sys.exit(int(os.environ['RANK']) * 7)"))
    seen = until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED)
    assert (seen.cause.code, seen.cause.params["rank"], seen.cause.params["exitCode"]) == ("RANK_FAILED", 1, 7)


def test_a_cancelled_jobset_leaves_nothing(lab):
    lab.cluster.script("task-*", Sleeps())
    backend = lab.backend(jobset=True)
    one = submit(backend, job(1, 1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    until(lambda: (backend.cancel(one, 0.0), observe_one(backend, one).left is False)[1], what="gone")
    backend.delete_attempt(one)
    until(lambda: not [n for k in ("jobsets", "jobs", "pods", "services", "configmaps") for n in lab.cluster.names(k)
                       if n.startswith("task-")], what="nothing left")  # fmt: skip


@pytest.mark.parametrize("jobset", [False, True], ids=["jobs", "jobset"])
def test_kueues_message_is_the_waiting_reason_until_admission(lab, jobset):
    backend = lab.backend(jobset=jobset, queue="gpus")
    lab.cluster.deny_quota("task-*", "insufficient unused quota for nvidia.com/gpu")
    one = submit(backend, job(1))
    seen = until_seen(backend, one, lambda seen: seen.waiting and seen.waiting.params["evidence"])
    assert (seen.phase, seen.waiting.code) == (Phase.STARTING, "QUEUE_WAITING")
    assert seen.waiting.params["queue"] == "gpus"
    assert "unused quota" in seen.waiting.params["evidence"]
    lab.cluster.admit()
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)


def test_a_queue_admits_a_jobset_as_a_whole(lab):
    """Two tasks whose Jobs are admitted one by one can each hold half of the quota for ever."""
    lab.cluster.kueue.quota = 1
    apart = lab.backend(queue="gpus")
    halves = submit(apart, replace(job(1, 1), task_id="task-y"))
    until(lambda: len(lab.cluster.pods("task-y-*")) == 1, what="one of two Jobs is admitted")
    assert [one.code for one in apart.problems(job(1, 1))] == ["QUEUE_NEEDS_JOBSET"], "so it is refused"
    assert apart.problems(job(1)) == []
    until(lambda: (apart.cancel(halves, 0.0), observe_one(apart, halves).left is False)[1], what="gone")
    apart.delete_attempt(halves)
    until(lambda: not lab.cluster.names("workloads"), what="the quota is free")

    together = lab.backend(queue="gpus", jobset=True)
    assert together.problems(job(1, 1)) == []
    whole = submit(together, job(1, 1))
    until_seen(together, whole, lambda seen: seen.waiting and seen.waiting.code == "QUEUE_WAITING")
    assert lab.cluster.pods("task-x-*") == []
    lab.cluster.kueue.quota = 2
    lab.cluster.admit()
    until_seen(together, whole, lambda seen: seen.phase is Phase.SUCCEEDED)


def test_kueue_orders_tasks_where_the_connection_names_a_queue(lab):
    assert lab.backend(jobset=True, queue="gpus").queues
    assert not lab.backend(jobset=True).queues


def test_a_task_waiting_in_a_queue_can_be_cancelled(lab):
    backend = lab.backend(jobset=True, queue="gpus")
    lab.cluster.deny_quota("task-*", "no quota")
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.waiting)
    until(lambda: (backend.cancel(one, 0.0), observe_one(backend, one).left is False)[1], what="gone")

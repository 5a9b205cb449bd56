"""What is passed on to Kueue of whose turn it is, and what it says of it."""

import os
from dataclasses import replace

import pytest

from fermi import messages
from fermi.engines.kubernetes import positions
from fermi.jobs.spec import Phase
from fermi.planning import checks
from tests.fakes.kubernetes import Sleeps
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, job, observe_one, rendered, submit, until_seen

pytestmark = pytest.mark.skipif(not os.environ.get("FERMI_CRDS"), reason="FERMI_CRDS names no folder of definitions")

FEATURES = ("jobset", "kueue", "visibility")
CLASSES = {"low": "background", "urgent": "express"}
QUEUE, CLASS, LONGEST = (f"kueue.x-k8s.io/{name}" for name in ("queue-name", "priority-class", "max-exec-time-seconds"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(positions, "CACHE_SECONDS", 0.0)


def labels(backend, spec):
    [leader] = [one.content for one in rendered(backend, spec).artifacts if one.kind in ("JobSet", "Job")]
    return {name: text for name, text in leader["metadata"]["labels"].items() if "kueue" in name}


@pytest.mark.parametrize("jobset", [False, True], ids=["job", "jobset"])
def test_kueue_gets_exactly_the_requested_settings(lab, jobset):
    queue = {"default": "gpus", "projects": {"nlp": "words", "project-7": "pictures"}}
    backend = lab.backend(jobset=jobset, queue=queue, priority_classes=CLASSES)
    assert labels(backend, job(1)) == {QUEUE: "gpus"}
    assert labels(backend, job(1, project="project-1", project_name="nlp"))[QUEUE] == "words"
    assert labels(backend, job(1, project="project-7", project_name="cv"))[QUEUE] == "pictures"
    assert labels(backend, job(1, priority="urgent"))[CLASS] == "express"
    longest = int(labels(backend, job(1, max_run=3600.0, grace_seconds=30.0))[LONGEST])
    assert 3630 < longest < 3700, "the platform's own end comes first"
    bounded = rendered(backend, job(1, max_run=3600.0))
    assert "activeDeadlineSeconds" not in str(bounded.to_json()), "Kueue counts for the gang as a whole"


def test_without_a_queue_pods_get_the_priority_class_and_jobs_the_limit(lab):
    backend = lab.backend(priority_classes=CLASSES, max_run_seconds=7200)

    def spec(**asked):
        [one] = [one.content["spec"] for one in rendered(backend, job(1, **asked)).artifacts if one.kind == "Job"]
        return one["template"]["spec"].get("priorityClassName"), one["activeDeadlineSeconds"]

    assert spec() == (None, 7200)
    assert spec(priority="low", max_run=60.0, grace_seconds=30.0) == ("background", 150)
    assert spec(max_run=1e6) == (None, 7200), "never beyond the connection's own limit"


def test_a_missing_priority_class_is_refused_and_an_existing_one_used(lab):
    lab.cluster.add_pod_class("express", 1000)
    backend = lab.backend(priority_classes=CLASSES)
    until_seen(backend, submit(backend, job(1, priority="urgent")), lambda seen: seen.phase is Phase.SUCCEEDED)
    assert [pod["spec"]["priority"] for pod in lab.cluster.pods(POD)] == [1000]
    absent = submit(backend, replace(job(1, priority="low"), task_id="task-y"))
    seen = until_seen(backend, absent, lambda seen: seen.phase is Phase.FAILED)
    assert seen.cause.code == "ADMISSION_DENIED"
    assert "no PriorityClass with name background" in seen.cause.params["evidence"]


def test_a_higher_class_waits_ahead_and_positions_are_reported(lab):
    lab.cluster.add_class("express", 1000)
    lab.cluster.deny_quota("task-*")
    backend = lab.backend(jobset=True, queue="gpus", priority_classes=CLASSES)
    first, second = (submit(backend, replace(job(1), task_id=f"task-{n}")) for n in (1, 2))
    until_seen(backend, second, lambda seen: seen.waiting and seen.waiting.params.get("position") == 2)
    urgent = submit(backend, replace(job(1, priority="urgent"), task_id="task-3"))
    seen = until_seen(backend, urgent, lambda seen: seen.waiting and seen.waiting.params.get("position"))
    assert seen.waiting.params["position"] == 1
    until_seen(backend, first, lambda seen: seen.waiting.params["position"] == 2)
    for lang in messages.LANGUAGES:
        said, _ = messages.render_text("QUEUE_WAITING", lang, **seen.waiting.params)
        assert "1" in said
        assert "gpus" in said
        assert seen.waiting.params["evidence"] in said
    lab.cluster.admit()
    until_seen(backend, urgent, lambda seen: seen.phase is Phase.SUCCEEDED and not seen.waiting)


@pytest.mark.parametrize("how", ["not served", "forbidden", "broken"])
def test_without_positions_the_other_reasons_are_reported(lab, how):
    if how == "not served":
        lab.cluster.server.features.remove("visibility")
    elif how == "forbidden":
        lab.cluster.access.deny("get", "*/pendingworkloads")
    else:
        lab.cluster.server.pending = lambda *_: {"items": None}
    lab.cluster.deny_quota("task-*", "no quota")
    backend = lab.backend(jobset=True, queue="gpus")
    one = submit(backend, job(1))
    seen = until_seen(backend, one, lambda seen: seen.waiting and seen.waiting.params["evidence"])
    assert seen.waiting.params == {"queue": "gpus", "evidence": "no quota"}


def test_positions_are_read_once_for_all_waiting_tasks(lab, monkeypatch):
    monkeypatch.setattr(positions, "CACHE_SECONDS", 600.0)
    lab.cluster.deny_quota("task-*")
    backend = lab.backend(jobset=True, queue="gpus")
    several = [submit(backend, replace(job(1), task_id=f"task-{n}")) for n in range(4)]
    for one in several:
        until_seen(backend, one, lambda seen: seen.waiting)
    backend.observe(several)
    assert len(lab.cluster.calls("get", "localqueues/pendingworkloads")) == 1


def test_an_unknown_workload_class_is_the_waiting_reason(lab):
    """It has no Workload then, and would wait for ever."""
    backend = lab.backend(jobset=True, queue="gpus", priority_classes=CLASSES)
    seen = until_seen(backend, submit(backend, job(1, priority="low")), lambda seen: seen.waiting)
    assert seen.waiting.code == "PRIORITY_CLASS_UNKNOWN"
    assert "background" in seen.waiting.params["evidence"]


def test_a_task_ended_by_kueue_for_its_time_limit_ran_too_long(lab):
    lab.cluster.script("task-*", Sleeps())
    backend = lab.backend(jobset=True, queue="gpus")
    one = submit(backend, job(1, max_run=3600.0))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.expire()
    assert until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED).cause.code == "RUN_TIMEOUT"


def test_a_waiting_task_is_cancelled_without_leftovers_and_the_next_attempt_queues_again(lab):
    """As a pause does, and what comes after it."""
    lab.cluster.deny_quota("task-*")
    backend = lab.backend(jobset=True, queue="gpus")
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.waiting)
    until(lambda: (backend.cancel(one, 30.0), observe_one(backend, one).left is False)[1], what="gone")
    backend.delete_attempt(one)
    until(lambda: not [name for kind in ("jobsets", "jobs", "workloads") for name in lab.cluster.names(kind)
                       if "task-" in name], what="nothing left")  # fmt: skip
    again = submit(backend, replace(job(1), attempt=2))
    lab.cluster.admit()
    until_seen(backend, again, lambda seen: seen.phase is Phase.SUCCEEDED)


@pytest.mark.parametrize(
    ("connection", "code"),
    [
        ({"queue": {"projects": {"nlp": "words"}}, "jobset": True}, "QUEUE_NEEDS_DEFAULT"),
        ({"queue": {"default": "gpus"}}, "QUEUE_NEEDS_JOBSET"),
    ],
)
def test_an_invalid_queue_is_refused(connection, code):
    assert [one.code for one in checks.find_connection_problems("kubernetes", connection)] == [code]

"""Pods that are deleted, suspended or preempted: no rank's failure and no success, whatever their ranks exit with."""

import os

import pytest

from fermi import messages
from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.causes import CAUSES
from fermi.jobs.spec import Phase
from tests.fakes.kubernetes import Sleeps, conditions, resources
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, Lab, job, observe_one, submit, until_seen

SAVES = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
open({ready!r} + os.environ["RANK"], "w").close()
while True:
    time.sleep(0.05)
"""
"""Exits with `code` when it is asked to end, as the documentation says a script should (143), or with 0."""

with_sets = pytest.mark.skipif(not os.environ.get("FERMI_CRDS"), reason="FERMI_CRDS names no folder of definitions")
KINDS = [pytest.param(False, id="jobs"), pytest.param(True, id="jobset", marks=with_sets)]


FEATURES = ("jobset", "kueue")


def running(lab: Lab, backend, code: int | None = None, ranks: int = 2):
    """An attempt of one rank per machine; with `code`, of real processes that end with it when they are asked to."""
    if code is None:
        lab.cluster.script("task-*", Sleeps())
        one = submit(backend, job(*[1] * ranks))
    else:
        script = SAVES.format(code=code, ready=str(lab.scratch / "ready-"))
        one = submit(backend, job(*[1] * ranks, script=script))
        until(lambda: len(list(lab.scratch.glob("ready-*"))) == ranks, what="handlers")
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    return one


def ended(backend, one):
    """How it was once it was known to be over; never a success."""
    seen = until_seen(backend, one, lambda seen: seen.phase in (Phase.FAILED, Phase.SUCCEEDED))
    assert seen.phase is Phase.FAILED
    for lang in messages.LANGUAGES:
        assert messages.render_text(seen.cause.code, lang, **seen.cause.params)
    assert seen.cause.params["evidence"]
    return seen.cause


@pytest.mark.parametrize("code", [0, 143, 7])
@pytest.mark.parametrize("jobset", KINDS)
def test_a_deleted_pod_is_no_failure_of_its_rank(lab, jobset, code):
    backend = lab.backend(jobset=jobset)
    one = running(lab, backend, code)
    pod = lab.cluster.pods("task-x-1-node-1-*")[0]["metadata"]["name"]
    lab.backend().client.delete("Pod", pod, propagation="Background")
    cause = ended(backend, one)
    assert (cause.code, cause.params["node"], cause.params["pod"]) == ("POD_DELETED", "dev-b", pod)


@pytest.mark.parametrize("code", [0, 143])
def test_a_deleted_job_is_no_failure_of_its_rank(lab, code):
    backend = lab.backend()
    one = running(lab, backend, code)
    lab.backend().client.delete("Job", names.build_node_name(one.name, 0), propagation="Background")
    cause = ended(backend, one)
    assert (cause.code, cause.params["node"]) == ("POD_DELETED", "dev-a")


def test_an_attempt_whose_ranks_succeeded_before_deletion_has_succeeded(lab):
    backend = lab.backend()
    one = submit(backend, job(1, script="print('done')"))
    until(lambda: [pod["status"]["phase"] for pod in lab.cluster.pods(POD)] == ["Succeeded"], what="done")
    lab.backend().client.delete("Pod", lab.cluster.pods(POD)[0]["metadata"]["name"], propagation="Background")
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)


@pytest.mark.parametrize("code", [None, 0])
@pytest.mark.parametrize("jobset", KINDS)
def test_a_suspended_attempt_is_over(lab, jobset, code):
    backend = lab.backend(jobset=jobset)
    one = running(lab, backend, code)
    lab.cluster.suspend("jobsets" if jobset else "jobs")
    cause = ended(backend, one)
    assert cause.code == "JOB_SUSPENDED"
    assert CAUSES[cause.code].retry


@pytest.mark.parametrize("jobset", KINDS)
def test_a_late_observer_sees_the_suspension(lab, jobset):
    running(lab, lab.backend(jobset=jobset))
    lab.cluster.suspend("jobsets" if jobset else "jobs")
    until(lambda: not lab.cluster.pods(POD), what="its pods are gone")
    backend = lab.backend(jobset=jobset)
    one = submit(backend, job(1, 1))
    seen = until_seen(backend, one, lambda seen: seen.waiting)
    assert (seen.phase, seen.waiting.code) == (Phase.STARTING, "JOB_SUSPENDED")


@pytest.mark.parametrize("code", [None, 0, 143])
@pytest.mark.parametrize("jobset", KINDS)
def test_an_attempt_preempted_by_kueue_is_preempted(lab, jobset, code):
    backend = lab.backend(jobset=jobset, queue="gpus")
    one = running(lab, backend, code)
    lab.cluster.preempt()
    cause = ended(backend, one)
    assert cause.code == "POD_PREEMPTED"
    assert "prioritization" in cause.params["evidence"]
    assert CAUSES[cause.code].retry
    assert CAUSES[cause.code].free


@pytest.mark.parametrize("jobset", KINDS)
def test_an_attempt_admitted_again_by_kueue_is_still_over(lab, jobset):
    """It would run a second time under one name."""
    one = running(lab, lab.backend(jobset=jobset, queue="gpus"))
    lab.cluster.preempt()
    until(lambda: not lab.cluster.pods(POD), what="its pods are gone")
    lab.cluster.admit()
    until(lambda: [p for p in lab.cluster.pods(POD) if p["status"].get("phase") == "Running"], what="it runs again")
    backend = lab.backend(jobset=jobset, queue="gpus")
    assert ended(backend, one).code == "POD_PREEMPTED"
    until(lambda: (backend.cancel(one, 0.0), observe_one(backend, one).left is False)[1], what="gone")


def test_a_pod_evicted_for_a_higher_priority_is_preempted(lab):
    """As the scheduler does it: the condition, then the deletion."""
    backend = lab.backend()
    one = running(lab, backend, 143)
    pod = lab.cluster.pods("task-x-1-node-0-*")[0]
    said = "default-scheduler: preempting to accommodate a higher priority pod"
    lab.cluster.api.change(
        resources.PODS,
        pod,
        lambda obj: conditions.set_condition(obj, "DisruptionTarget", True, "PreemptionByScheduler", said),
    )
    lab.cluster.api.delete(resources.PODS, lab.cluster.namespace, pod["metadata"]["name"], {})
    assert ended(backend, one).code == "POD_PREEMPTED"


def test_ranks_that_save_after_a_deletion_get_the_whole_grace(lab):
    """Our own deletion, which follows, does not shorten it."""
    backend = lab.backend()
    lab.cluster.script("task-*", Sleeps(deaf=True))
    spec = job(1, grace_seconds=30)
    one = submit(backend, spec)
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.backend().client.delete("Pod", lab.cluster.pods(POD)[0]["metadata"]["name"], propagation="Background")
    ended(backend, one)
    backend.cancel(one, 30.0)
    assert len(lab.cluster.calls("delete", "pods")) == 1
    backend.cancel(one, 0.0)
    until_seen(backend, one, lambda seen: seen.left is False)

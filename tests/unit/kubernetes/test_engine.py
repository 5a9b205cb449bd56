"""Creating, ending and clearing away, with an API server that fails in between."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fermi.launch.backends.kubernetes import names
from fermi.launch.errors import BackendError
from fermi.launch.spec import Phase
from tests.fakes.kubernetes import Sleeps, resources
from tests.fakes.kubernetes.errors import Refused
from tests.unit.kubernetes.conftest import POD, handle, job, look, submit, until_seen
from tests.waiting import until

OURS = ("configmaps", "services", "jobs", "pods")


def left_in(cluster):
    found = [(kind, name) for kind in OURS for name in cluster.names(kind)]
    return [one for one in found if one[1].startswith("task-")]


def gone(seen):
    return seen.left is False


def end(backend, one):
    """As the reconciler does: cancel until nothing is left, then forget."""

    def cancelled():
        backend.cancel(one, 0.0)
        return gone(look(backend, one))

    until(cancelled, what=f"{one.name} gone")
    backend.forget(one)


def test_everything_of_an_attempt_goes_with_its_root(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1, 2))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    root = next(o for o in lab.cluster.all("configmaps") if o["metadata"]["name"] == one.name)
    for kind in ("services", "jobs"):
        for obj in lab.cluster.all(kind):
            assert [owner["uid"] for owner in obj["metadata"]["ownerReferences"]] == [root["metadata"]["uid"]]
    lab.cluster.api.delete(resources.CONFIGMAPS, lab.cluster.namespace, one.name, {})
    until(lambda: not left_in(lab.cluster), what="nothing left")


def test_pods_fit_the_restricted_level(lab, backend):
    lab.cluster.api.change(
        resources.NAMESPACES, lab.cluster.api.get(resources.NAMESPACES, "", lab.cluster.namespace),
        lambda obj: obj["metadata"].update(labels={"pod-security.kubernetes.io/enforce": "restricted"}),
    )  # fmt: skip
    until_seen(backend, submit(backend, job(1)), lambda seen: seen.phase is Phase.SUCCEEDED)


@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_creation_that_breaks_off_anywhere_is_completed_by_the_next_submit(lab, nth, after):
    """6 writes: the root, the Service, three Jobs, the mark."""
    lab.cluster.script(POD, Sleeps())
    first, second = lab.backend(), lab.backend()
    spec = job(1, 1, 1)
    lab.cluster.faults.reset("write", after=after, nth=nth)
    with pytest.raises(BackendError) as broken:
        submit(first, spec)
    assert not broken.value.permanent
    one = submit(second, spec)
    until_seen(second, one, lambda seen: seen.phase is Phase.RUNNING)
    assert len(lab.cluster.pods(POD)) == 3
    assert len(lab.cluster.all("jobs")) == 3
    end(second, one)
    until(lambda: not left_in(lab.cluster), what="nothing left")


@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_end_that_breaks_off_anywhere_is_completed_by_going_on(lab, nth, after):
    """Writes: the mark, two jobs, two pods; then what `forget` deletes."""
    lab.cluster.script(POD, Sleeps())
    backend = lab.backend()
    one = submit(backend, job(1, 1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    fault = lab.cluster.faults.reset("write", after=after, nth=nth)
    try:
        end(backend, one)
    except BackendError:
        end(lab.backend(), one)  # as after a crash of ours: another process goes on
    until(lambda: not left_in(lab.cluster), what="nothing left")
    assert fault.struck == 1


def test_an_api_server_that_fails_while_it_is_asked_ends_nothing(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.faults.refuse("*", "*", Refused(500, "InternalError", "etcdserver: request timed out"), times=None)
    lab.cluster.break_connections()
    for _ in range(5):
        assert look(backend, one).phase is Phase.RUNNING
    lab.cluster.faults.clear()
    assert look(backend, one).phase is Phase.RUNNING


def test_two_who_submit_at_once_create_once(lab):
    lab.cluster.script(POD, Sleeps())
    backends = [lab.backend() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda backend: submit(backend, job(1, 1)), backends))
    until_seen(backends[0], handle(job(1, 1)), lambda seen: seen.phase is Phase.RUNNING)
    assert sorted(lab.cluster.names("jobs")) == ["task-x-1-node-0", "task-x-1-node-1"]
    assert len(lab.cluster.pods(POD)) == 2


def test_a_submitted_attempt_is_not_begun_again_when_its_jobs_are_no_more(lab, backend):
    """Kubernetes removes finished Jobs after their time to live."""
    spec = job(1)
    one = submit(backend, spec)
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED and gone(seen))
    backend.client.delete("Job", names.node_name(one.name, 0))
    until(lambda: not lab.cluster.names("jobs"))
    submit(lab.backend(), spec)
    assert not lab.cluster.names("jobs")


def test_an_attempt_whose_objects_are_gone_has_failed_once_the_cluster_confirms_it(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    backend.client.delete("Job", names.node_name(one.name, 0), propagation="Background")
    until(lambda: not lab.cluster.pods(POD))
    seen = until_seen(lab.backend(), one, lambda seen: seen.phase is Phase.FAILED)
    assert seen.cause.code == "POD_DELETED"


def test_what_is_created_while_it_is_cancelled_does_not_stay(lab, backend):
    """The mark comes between the first look at the root and the last creation."""
    lab.cluster.script(POD, Sleeps())
    spec, other = job(1, 1), lab.backend()
    one = handle(spec)

    def cancel_now(resource, obj):
        if resource.plural == "services" and obj["metadata"]["name"] == one.name:
            lab.cluster.admission.webhooks.clear()
            other.client.annotate("ConfigMap", one.name, **{names.CANCELLED: "true"})

    other.observe([one])
    lab.cluster.admission.webhooks.append(cancel_in_thread(cancel_now))
    submit(backend, spec)
    until_seen(other, one, gone)
    assert not lab.cluster.pods(POD)


def cancel_in_thread(action):
    """An admission webhook runs under the store's lock; a request of its own has to come from elsewhere, later."""

    def hook(resource, obj):
        threading.Thread(target=action, args=(resource, obj)).start()

    return hook


@pytest.mark.parametrize(
    ("refused", "code", "permanent"),
    [
        (Refused(403, "Forbidden", 'jobs.batch is forbidden: User "u" cannot create'), "ENGINE_FORBIDDEN", True),
        (Refused(422, "Invalid", "Job is invalid: spec.template: Invalid value"), "ENGINE_REJECTED", True),
        (Refused(400, "BadRequest", 'admission webhook "p" denied the request: no'), "ADMISSION_DENIED", True),
        (Refused(403, "Forbidden", "exceeded quota: small, requested: count/jobs.batch=1"), "QUOTA_EXCEEDED", False),
        (Refused(500, "InternalError", "etcdserver: leader changed"), "ENGINE_UNREACHABLE", False),
        (Refused(503, "ServiceUnavailable", "apiserver is shutting down"), "ENGINE_UNREACHABLE", False),
    ],
)
def test_a_refusal_says_whether_asking_again_can_help(lab, backend, refused, code, permanent):
    lab.cluster.faults.refuse("create", "jobs", refused)
    with pytest.raises(BackendError) as raised:
        submit(backend, job(1))
    assert (raised.value.code, raised.value.permanent) == (code, permanent)


def test_too_many_requests_are_sent_again_at_the_pace_asked_for(lab, backend):
    too_many = Refused(429, "TooManyRequests", "the server has received too many requests")
    fault = lab.cluster.faults.refuse("create", "*", too_many, times=3)
    submit(backend, job(1))
    assert fault.struck == 3
    assert lab.cluster.names("jobs")


def test_idle_attempts_cost_no_request(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    before = len(lab.cluster.calls())
    for _ in range(200):
        look(backend, one)
        submit(backend, job(1))
    assert len(lab.cluster.calls()) == before


def test_a_cluster_that_cannot_be_reached_is_an_error_and_not_an_absence(lab):
    spec = job(1)
    lab.cluster.stop_api()
    backend = lab.backend()
    with pytest.raises(BackendError, match="ENGINE_UNREACHABLE"):
        look(backend, handle(spec))
    lab.cluster.start_api()


def test_a_memory_that_is_behind_does_not_say_that_an_attempt_is_absent(lab):
    lab.cluster.script(POD, Sleeps())
    backend, other = lab.backend(), lab.backend()
    look(backend, handle(job(9)))
    backend._watch.memory.put = lambda kind, obj: None  # nothing arrives any more
    submit(other, job(1))
    one = handle(job(1))
    backend._absent.clear()
    assert look(backend, one).phase is Phase.UNKNOWN


def test_attempts_of_nobody_are_orphans(lab, backend):
    lab.cluster.script("task-*", Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    assert backend.orphans({one.name}) == []
    found = lab.backend().orphans(set())
    assert [orphan.name for orphan in found] == [one.name]
    backend.forget(found[0])
    until(lambda: not left_in(lab.cluster), what="nothing left")


def test_environments_of_another_namespace_and_without_an_image_are_refused(backend):
    spec = job(1, engine={"namespace": "elsewhere"})
    spec = replace(spec, nodes=(replace(spec.nodes[0], image=""),))
    assert [problem.code for problem in backend.problems(spec)] == ["NAMESPACE_FOREIGN", "IMAGE_MISSING"]


def test_the_grace_of_a_deletion_is_never_none(lab, backend):
    """Zero would remove the pod from the API while its processes go on."""
    lab.cluster.script(POD, Sleeps(deaf=True))
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    backend.cancel(one, 0.0)
    pod = lab.cluster.pods(POD)[0]
    assert pod["metadata"]["deletionGracePeriodSeconds"] >= 1
    until_seen(backend, one, gone)

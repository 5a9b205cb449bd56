"""Creating, ending and clearing away, with an API server that fails in between."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fermi.engines.kubernetes import client, names
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Phase
from tests.fakes.kubernetes import Exits, Sleeps, errors, resources
from tests.fakes.kubernetes.errors import Refused
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, handle, job, observe_one, rendered, submit, until_seen

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
        return gone(observe_one(backend, one))

    until(cancelled, what=f"{one.name} gone")
    backend.delete_attempt(one)


def test_a_closed_connection_is_reopened_on_use(lab, backend):
    """The watch of a cluster that was changed or deleted closes it while another thread may be about to submit."""
    end(backend, submit(backend, job(1, 2)))
    backend.close()
    end(backend, submit(backend, job(1, 2, attempt=2)))
    until(lambda: not left_in(lab.cluster), what="nothing left")  # the root goes after what it owns


def test_all_objects_of_an_attempt_are_deleted_with_its_root(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1, 2))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    root = next(o for o in lab.cluster.all("configmaps") if o["metadata"]["name"] == one.name)
    for kind in ("services", "jobs"):
        for obj in lab.cluster.all(kind):
            assert [owner["uid"] for owner in obj["metadata"]["ownerReferences"]] == [root["metadata"]["uid"]]
    lab.cluster.api.delete(resources.CONFIGMAPS, lab.cluster.namespace, one.name, {})
    until(lambda: not left_in(lab.cluster), what="nothing left")


def test_an_attempt_starts_where_block_owner_deletion_is_forbidden(lab, backend):
    """OpenShift checks it of whoever sets an owner; we do not ask for it. All goes with its root all the same."""
    lab.cluster.access.deny("update", "*/finalizers")
    one = submit(backend, job(1, 1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)
    lab.cluster.api.delete(resources.CONFIGMAPS, lab.cluster.namespace, one.name, {})
    until(lambda: not left_in(lab.cluster), what="nothing left")


def test_pods_meet_the_restricted_level(lab, backend):
    lab.cluster.api.change(
        resources.NAMESPACES, lab.cluster.api.get(resources.NAMESPACES, "", lab.cluster.namespace),
        lambda obj: obj["metadata"].update(labels={"pod-security.kubernetes.io/enforce": "restricted"}),
    )  # fmt: skip
    until_seen(backend, submit(backend, job(1)), lambda seen: seen.phase is Phase.SUCCEEDED)


@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupted_creation_is_completed_by_the_next_submit(lab, nth, after):
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
def test_an_interrupted_cancellation_is_completed_by_the_next(lab, nth, after):
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


def test_an_api_server_error_during_observation_ends_nothing(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.faults.refuse("*", "*", Refused(500, "InternalError", "etcdserver: request timed out"), times=None)
    lab.cluster.break_connections()
    for _ in range(5):
        assert observe_one(backend, one).phase is Phase.RUNNING
    lab.cluster.faults.clear()
    assert observe_one(backend, one).phase is Phase.RUNNING


def test_concurrent_submissions_create_once(lab):
    lab.cluster.script(POD, Sleeps())
    backends = [lab.backend() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda backend: submit(backend, job(1, 1)), backends))
    until_seen(backends[0], handle(job(1, 1)), lambda seen: seen.phase is Phase.RUNNING)
    assert sorted(lab.cluster.names("jobs")) == ["task-x-1-node-0", "task-x-1-node-1"]
    assert len(lab.cluster.pods(POD)) == 2


def test_a_submitted_attempt_without_jobs_is_not_started_again(lab, backend):
    """Kubernetes removes finished Jobs after their time to live."""
    spec = job(1)
    one = submit(backend, spec)
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED and gone(seen))
    backend.client.delete("Job", names.build_node_name(one.name, 0))
    until(lambda: not lab.cluster.names("jobs"))
    submit(lab.backend(), spec)
    assert not lab.cluster.names("jobs")


def test_an_attempt_whose_objects_are_gone_has_failed_once_confirmed(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    backend.client.delete("Job", names.build_node_name(one.name, 0), propagation="Background")
    until(lambda: not lab.cluster.pods(POD))
    seen = until_seen(lab.backend(), one, lambda seen: seen.phase is Phase.FAILED)
    assert seen.cause.code == "POD_DELETED"


def test_objects_created_during_cancellation_are_deleted(lab, backend):
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


def test_a_forbidden_answer_of_a_starting_api_server_is_temporary(lab):
    """It has not read yet who may do what: a task that starts then does not fail for that."""
    client, access = lab.backend().client, lab.cluster.server.access

    def refused():
        with pytest.raises(BackendError) as raised:
            client.create("Service", {"metadata": {"name": "one"}})
        return raised.value.code, raised.value.permanent

    access.loading = True
    assert refused() == ("ENGINE_FORBIDDEN", False)
    access.loading = False
    access.deny("create", "services")
    assert refused() == ("ENGINE_FORBIDDEN", True)


def test_a_request_refused_in_the_last_moment_of_a_start_is_repeated(lab):
    """By the time it is asked whether it is ready, it is."""
    refused = Refused(403, "Forbidden", 'configmaps is forbidden: User "u" cannot create resource')
    fault = lab.cluster.faults.refuse("create", "configmaps", refused)
    lab.backend().client.create("ConfigMap", {"metadata": {"name": "one"}, "data": {}})
    assert fault.struck == 1
    assert "one" in lab.cluster.names("configmaps")


@pytest.mark.parametrize(
    ("refused", "code", "permanent"),
    [
        (Refused(403, "Forbidden", 'jobs.batch is forbidden: User "u" cannot create'), "ENGINE_FORBIDDEN", True),
        (Refused(403, "Forbidden", 'pods "p" is forbidden: maximum cpu usage per Pod is 1'), "ADMISSION_DENIED", True),
        (
            Refused(403, "Forbidden", 'pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference …'),
            "ENGINE_FORBIDDEN",
            True,
        ),
        (
            Refused(403, "Forbidden", 'pods "p" is forbidden: User "u" cannot get …: RBAC: role.rbac… "r" not found'),
            "ENGINE_FORBIDDEN",
            False,
        ),
        (Refused(422, "Invalid", "Job is invalid: spec.template: Invalid value"), "ENGINE_REJECTED", True),
        (Refused(400, "BadRequest", 'admission webhook "p" denied the request: no'), "ADMISSION_DENIED", True),
        (Refused(403, "Forbidden", "exceeded quota: small, requested: count/jobs.batch=1"), "QUOTA_EXCEEDED", False),
        (Refused(500, "InternalError", "etcdserver: leader changed"), "ENGINE_UNREACHABLE", False),
        (Refused(503, "ServiceUnavailable", "apiserver is shutting down"), "ENGINE_UNREACHABLE", False),
    ],
)
def test_a_refusal_says_whether_a_retry_can_help(lab, backend, refused, code, permanent):
    lab.cluster.faults.refuse("create", "jobs", refused, times=2)
    with pytest.raises(BackendError) as raised:
        submit(backend, job(1))
    assert (raised.value.code, raised.value.permanent) == (code, permanent)


def test_a_429_is_retried_after_the_given_time(lab, backend):
    too_many = Refused(429, "TooManyRequests", "the server has received too many requests")
    fault = lab.cluster.faults.refuse("create", "*", too_many, times=3)
    submit(backend, job(1))
    assert fault.struck == 3
    assert lab.cluster.names("jobs")


def test_idle_attempts_make_no_request(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)

    def asked() -> int:  # beside the leases of machines, every few seconds for all attempts together
        return sum(call.resource != "leases" for call in lab.cluster.calls())

    before = asked()
    for _ in range(200):
        observe_one(backend, one)
        submit(backend, job(1))
    assert asked() == before


def test_an_unreachable_cluster_is_an_error_and_not_absence(lab):
    spec = job(1)
    lab.cluster.stop_api()
    backend = lab.backend()
    with pytest.raises(BackendError, match="ENGINE_UNREACHABLE"):
        observe_one(backend, handle(spec))
    lab.cluster.start_api()


def test_a_stale_cache_does_not_report_absence(lab):
    lab.cluster.script(POD, Sleeps())
    backend, other = lab.backend(), lab.backend()
    observe_one(backend, handle(job(9)))
    backend._watch.memory.put = lambda kind, obj: None  # nothing arrives any more
    submit(other, job(1))
    one = handle(job(1))
    backend._absent.clear()
    assert observe_one(backend, one).phase is Phase.UNKNOWN


def test_unknown_attempts_are_orphans(lab, backend):
    lab.cluster.script("task-*", Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    assert backend.orphans({one.name}) == []
    found = lab.backend().orphans(set())
    assert [orphan.name for orphan in found] == [one.name]
    backend.delete_attempt(found[0])
    until(lambda: not left_in(lab.cluster), what="nothing left")


def test_environments_of_another_namespace_or_without_an_image_are_refused(backend):
    spec = job(1, engine={"namespace": "elsewhere"})
    spec = replace(spec, nodes=(replace(spec.nodes[0], image=""),))
    assert [problem.code for problem in backend.problems(spec)] == ["NAMESPACE_FOREIGN", "IMAGE_MISSING"]


def test_the_grace_period_of_a_deletion_is_never_zero(lab, backend):
    """Zero would remove the pod from the API while its processes go on."""
    lab.cluster.script(POD, Sleeps(deaf=True))
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    backend.cancel(one, 0.0)
    pod = lab.cluster.pods(POD)[0]
    assert pod["metadata"]["deletionGracePeriodSeconds"] >= 1
    until_seen(backend, one, gone)


def test_each_object_is_created_and_deleted_with_one_request(lab):
    """Several processes at the same attempt, each of which is told again and again to go on."""
    lab.cluster.script(POD, Sleeps())
    backends, spec = [lab.backend() for _ in range(3)], job(1, 1, 1)
    one = handle(spec)
    for backend in backends:
        backend.orphans(())
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda number: submit(backends[number % 3], spec), range(60)))
    until_seen(backends[0], one, lambda seen: seen.phase is Phase.RUNNING)
    needless = [call for call in lab.cluster.calls("create") if call.code == 409]
    assert len(needless) <= 2 * 6, "what another process is making this moment, once for each of the six objects"
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: backends[0].cancel(one, 1.0), range(60)))
    until_seen(backends[0], one, gone)
    assert len(lab.cluster.calls("delete", "jobs")) == 3
    pods = [call.name for call in lab.cluster.calls("delete", "pods")]
    assert len(set(pods)) == len(pods) <= 3


def test_a_gang_starts_and_stops_with_one_request_for_each_object(lab, backend, monkeypatch):
    """Deleted in the foreground, a Job takes its pod along: one that is on its way out when its turn comes needs no
    request. One request at a time, so that all pods come after all jobs, as most do in a large gang."""
    monkeypatch.setattr(client, "MAX_PARALLEL", 1)
    lab.cluster.script(POD, Sleeps())
    spec = job(1, 1, 1)
    backend.orphans(())
    one = submit(backend, spec)
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    objects = ["configmaps", "configmaps", "services", "jobs", "jobs", "jobs"]
    assert writes(lab) == [*(("create", kind, 201) for kind in objects), ("patch", "configmaps", 200)]
    until(lambda: len(backend._watch.memory.gang(one.name).jobs) == 3, what="all jobs seen")  # pods may be seen first

    def delete_and_hear(kind, name, **options):
        delete(kind, name, **options)
        until(lambda: all(pod["metadata"].get("deletionTimestamp") for pod in pods_of(name)), what="its pod is to end")

    def pods_of(job):
        pods = backend._watch.memory.gang(one.name).pods
        return [pod for pod in pods.values() if pod["metadata"]["name"].startswith(f"{job}-")]

    delete, backend.client.delete = backend.client.delete, delete_and_hear
    until(lambda: (backend.cancel(one, spec.grace_seconds), observe_one(backend, one).left is False)[1], what="gone")
    assert writes(lab)[7:] == [("patch", "configmaps", 200), *[("delete", "jobs", 200)] * 3]


def writes(lab):
    return [(call.verb, call.resource, call.code) for call in lab.cluster.calls("write", user_agent="fermi")]


def test_one_process_creates_each_object_once(lab, backend):
    lab.cluster.script(POD, Sleeps())
    spec = job(1, 1, 1)
    backend.orphans(())
    lab.cluster.faults.reset("create", "jobs", nth=2)  # the second of three
    with pytest.raises(BackendError):
        submit(backend, spec)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: submit(backend, spec), range(60)))
    until_seen(backend, handle(spec), lambda seen: seen.phase is Phase.RUNNING)
    created = [call for call in lab.cluster.calls("create") if call.name.startswith(handle(spec).name)]
    assert sorted(call.code for call in created) == [0, *[201] * 5]


# Secrets --------------------------------------------------------------------------------------------------------------

KEY = "sesame-0123456789"
SECRET = {"API_KEY": "the-key"}


def submit_with_secret(backend, spec):
    backend.submit(rendered(backend, spec), {"API_KEY": KEY})
    return handle(spec)


def test_a_secret_value_is_only_in_the_attempts_secret(lab, backend):
    script = f"import os; raise SystemExit(os.environ['API_KEY'] != {KEY[::-1]!r}[::-1])"
    one = submit_with_secret(backend, job(1, 2, script=script, secret_env=SECRET))
    [secret] = [obj for obj in lab.cluster.all("secrets") if obj["metadata"]["name"] == one.name]  # it goes at the end
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)
    [root] = [obj for obj in lab.cluster.all("configmaps") if obj["metadata"]["name"] == one.name]
    assert base64.b64decode(secret["data"]["API_KEY"]).decode() == KEY
    assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [root["metadata"]["uid"]]
    others = [obj for kind in (*OURS, "events") for obj in lab.cluster.all(kind)]
    assert KEY not in json.dumps(others)
    assert base64.b64encode(KEY.encode()).decode() not in json.dumps(others)
    end(backend, one)
    until(lambda: one.name not in lab.cluster.names("secrets"), what="the secret goes with its root")


@pytest.mark.parametrize("ended", [True, False], ids=["one that ended", "one that is cancelled"])
def test_secret_values_are_deleted_with_their_attempt(lab, backend, ended):
    lab.cluster.script(POD, Exits(0) if ended else Sleeps())
    spec = job(1, secret_env={"TOKEN": "hub"})
    backend.submit(rendered(backend, spec), {"TOKEN": "s3cret"})
    one = handle(spec)
    assert one.name in lab.cluster.names("secrets")
    if ended:
        until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED and seen.left is False)
    else:
        until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
        backend.cancel(one, 1)
    assert one.name not in lab.cluster.names("secrets")
    assert one.name in lab.cluster.names("configmaps"), "what else there is of it waits for the sweep"


def test_without_permission_to_delete_secrets_the_sweep_does_it(lab, backend):
    why = 'secrets "task-x-1" is forbidden: User "u" cannot delete resource "secrets" in API group ""'
    lab.cluster.faults.refuse("delete", "secrets", Refused(403, "Forbidden", why), times=2)
    lab.cluster.script(POD, Sleeps())
    spec = job(1, secret_env={"TOKEN": "hub"})
    backend.submit(rendered(backend, spec), {"TOKEN": "s3cret"})
    backend.cancel(handle(spec), 1)
    assert handle(spec).name in lab.cluster.names("secrets")


def test_two_threads_may_observe_a_changed_attempt(lab, backend, monkeypatch):
    """Both have found it in what was known: the second one to forget it finds nothing."""
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    until(lambda: observe_one(backend, one) and one.name in backend._known, what="it is remembered")
    stamps = backend._reports.stamps

    def meanwhile(*args):
        backend._known.pop(one.name, None)
        return (*stamps(*args), -1)

    monkeypatch.setattr(backend._reports, "stamps", meanwhile)
    assert observe_one(backend, one).phase is Phase.RUNNING


def test_a_submission_interrupted_after_the_secret_continues(lab, backend):
    spec = job(1, script="import os; os.environ['API_KEY']", secret_env=SECRET)
    lab.cluster.faults.refuse("create", "jobs", errors.internal())
    with pytest.raises(BackendError):
        submit_with_secret(backend, spec)
    one = submit_with_secret(backend, spec)
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)


def test_a_webhook_message_about_a_secret_is_shown_without_its_value(lab, backend):
    told = f'policy: data "{KEY}" / "{base64.b64encode(KEY.encode()).decode()}" has not enough entropy'
    lab.cluster.faults.refuse("create", "secrets", errors.webhook_denied("entropy.example.org", told))
    with pytest.raises(BackendError) as caught:
        submit_with_secret(backend, job(1, secret_env=SECRET))
    assert "has not enough entropy" in str(caught.value.params)
    assert "sesame" not in repr(caught.value.params) + str(caught.value)
    assert base64.b64encode(KEY.encode()).decode() not in repr(caught.value.params) + str(caught.value)


def test_a_task_without_secrets_creates_none(lab, backend):
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)
    assert not [obj for obj in lab.cluster.all("secrets") if obj["metadata"]["name"] == one.name]
    end(backend, one)
    assert not lab.cluster.calls("get", "secrets")
    assert not lab.cluster.calls("list", "secrets")

"""Jobs, JobSets and queues: what they make, when they end, what they say about it."""

import pytest
from kubernetes.client.exceptions import ApiException

from tests.fakes.kubernetes import Exits, Runs, Sleeps
from tests.fakes.objects import job, jobset
from tests.polling import until

NS = "fermi"


def condition(obj: dict, kind: str) -> tuple[str, str] | None:
    found = (obj.get("status") or {}).get("conditions") or []
    return next(((c["status"], c["reason"]) for c in found if c["type"] == kind), None)


def until_true(kubernetes, plural: str, name: str, kind: str) -> dict:
    def found():
        (obj,) = [obj for obj in kubernetes.all(plural) if obj["metadata"]["name"] == name]
        return (condition(obj, kind) or ("",))[0] == "True" and obj

    return until(found, what=f"{name} {kind}")


def running(kubernetes, pattern: str = "*") -> list[dict]:
    return [pod for pod in kubernetes.pods(pattern) if pod["status"]["phase"] == "Running"]


def test_a_job_runs_to_completion(kubernetes, clients):
    kubernetes.add_node("a")
    clients.batch.create_namespaced_job(NS, job("t", "true", completions=2, parallelism=2, completionMode="Indexed"))
    done = until_true(kubernetes, "jobs", "t", "Complete")
    assert (done["status"]["succeeded"], done["status"]["completedIndexes"]) == (2, "0,1")
    assert condition(done, "SuccessCriteriaMet") == ("True", "CompletionsReached")
    until(lambda: all("finalizers" not in pod["metadata"] for pod in kubernetes.pods()))


def test_a_job_without_retries_fails_with_its_first_pod(kubernetes, clients):
    kubernetes.add_node("a")
    clients.batch.create_namespaced_job(NS, job("t", "false", podReplacementPolicy="Failed"))
    failed = until_true(kubernetes, "jobs", "t", "Failed")
    assert condition(failed, "Failed") == ("True", "BackoffLimitExceeded")
    assert condition(failed, "FailureTarget") == ("True", "BackoffLimitExceeded")
    assert (failed["status"]["failed"], len(kubernetes.pods())) == (1, 1)


def test_a_job_with_retries_replaces_its_pod(kubernetes, clients):
    kubernetes.add_node("a")
    clients.batch.create_namespaced_job(NS, job("t", "false", backoffLimit=2))
    failed = until_true(kubernetes, "jobs", "t", "Failed")
    assert (failed["status"]["failed"], len(kubernetes.pods())) == (3, 3)


def test_a_terminating_pod_is_not_replaced_before_it_has_ended(kubernetes, clients):
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps(deaf=True))
    pod = {"terminationGracePeriodSeconds": 600}
    clients.batch.create_namespaced_job(NS, job("t", podReplacementPolicy="Failed", backoffLimit=5, pod=pod))
    (first,) = until(lambda: running(kubernetes))
    clients.core.delete_namespaced_pod(first["metadata"]["name"], NS)
    until(lambda: kubernetes.all("jobs")[0]["status"].get("terminating") == 1)
    assert len(kubernetes.pods()) == 1
    clients.core.delete_namespaced_pod(first["metadata"]["name"], NS, grace_period_seconds=1)
    until(lambda: [p["metadata"]["name"] for p in running(kubernetes)] not in ([], [first["metadata"]["name"]]))
    clients.batch.delete_namespaced_job("t", NS, propagation_policy="Background", grace_period_seconds=0)


def test_a_suspended_job_has_no_pods(kubernetes, clients):
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    clients.batch.create_namespaced_job(NS, job("t", suspend=True))
    until_true(kubernetes, "jobs", "t", "Suspended")
    assert not kubernetes.pods()
    clients.batch.patch_namespaced_job("t", NS, {"spec": {"suspend": False}})
    until(lambda: running(kubernetes))
    assert condition(kubernetes.all("jobs")[0], "Suspended") == ("False", "JobResumed")
    clients.batch.patch_namespaced_job("t", NS, {"spec": {"suspend": True}})
    until(lambda: not kubernetes.pods())


def test_a_job_over_its_deadline_is_ended(kubernetes, clients):
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    clients.batch.create_namespaced_job(NS, job("t", activeDeadlineSeconds=1))
    assert condition(until_true(kubernetes, "jobs", "t", "Failed"), "Failed") == ("True", "DeadlineExceeded")
    until(lambda: not running(kubernetes))


def test_a_finished_job_is_deleted_after_its_ttl(kubernetes, clients):
    kubernetes.add_node("a")
    clients.batch.create_namespaced_job(NS, job("t", "true", ttlSecondsAfterFinished=1))
    until(kubernetes.pods)
    until(lambda: not kubernetes.names("jobs") and not kubernetes.pods())


def test_a_jobset_creates_jobs_and_a_service_and_completes_with_them(kubernetes, clients):
    kubernetes.install("jobset")
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    make(clients, jobset("t-1", "node-0", "node-1"))
    until(lambda: len(running(kubernetes)) == 2)
    assert kubernetes.names("jobs") == ["t-1-node-0-0", "t-1-node-1-0"]
    pods = kubernetes.pods()
    assert [(p["spec"]["hostname"], p["spec"]["subdomain"]) for p in pods] == [
        ("t-1-node-0-0-0", "t-1"), ("t-1-node-1-0-0", "t-1"),
    ]  # fmt: skip
    (service,) = [s for s in kubernetes.all("services") if s["metadata"]["name"] == "t-1"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    kubernetes.script("*", Exits())
    make(clients, jobset("t-2", "node-0", "node-1"))
    done = until_true(kubernetes, "jobsets", "t-2", "Completed")
    assert done["status"]["terminalState"] == "Completed"


def test_a_jobset_fails_with_its_first_job_and_ends_the_others(kubernetes, clients):
    kubernetes.install("jobset")
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    kubernetes.script("t-node-1-*", Exits(1))
    make(clients, jobset("t", "node-0", "node-1"))
    failed = until_true(kubernetes, "jobsets", "t", "Failed")
    assert condition(failed, "Failed") == ("True", "FailedJobs")
    (message,) = [c["message"] for c in failed["status"]["conditions"] if c["type"] == "Failed"]
    assert message == "jobset failed due to one or more job failures (first failed job: t-node-1-0)"
    until(lambda: not running(kubernetes))


def test_a_jobset_restarts_as_a_whole(kubernetes, clients, tmp_path):
    kubernetes.install("jobset")
    kubernetes.add_node("a")
    kubernetes.script("*", Runs())
    once = f"test -e {tmp_path}/second || (touch {tmp_path}/second; exit 1)"
    make(clients, jobset("t", "node-0", script=once, failurePolicy={"maxRestarts": 1}))
    assert until_true(kubernetes, "jobsets", "t", "Completed")["status"]["restarts"] == 1


def test_deleting_a_jobset_deletes_all_its_objects(kubernetes, clients):
    kubernetes.install("jobset")
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    make(clients, jobset("t", "node-0", "node-1"))
    until(lambda: len(running(kubernetes)) == 2)
    where = ("jobset.x-k8s.io", "v1alpha2", NS, "jobsets", "t")
    clients.custom.delete_namespaced_custom_object(*where, propagation_policy="Foreground")
    until(lambda: not [n for p in ("jobsets", "jobs", "pods", "services") for n in kubernetes.names(p)])


def test_a_queue_holds_a_job_back_with_a_reason_until_it_admits_it(kubernetes, clients):
    kubernetes.install("kueue")
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    waiting = job("t")
    waiting["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    clients.batch.create_namespaced_job(NS, waiting)

    def reserved():
        found = [(c["status"], c["message"]) for w in kubernetes.all("workloads")
                 for c in w.get("status", {}).get("conditions", []) if c["type"] == "QuotaReserved"]  # fmt: skip
        return found[0] if found else ("", "")

    until(lambda: reserved() == ("False", "LocalQueue team doesn't exist"))
    kubernetes.deny_quota("t", "insufficient unused quota for nvidia.com/gpu in flavor default-flavor, 8 more needed")
    kubernetes.add_queue("team")
    until(lambda: "8 more needed" in reserved()[1])
    assert clients.batch.read_namespaced_job("t", NS).spec.suspend
    assert not kubernetes.pods()
    kubernetes.admit()
    until(lambda: running(kubernetes))
    assert reserved()[0] == "True"


def test_a_queue_holds_a_whole_jobset_back(kubernetes, clients):
    kubernetes.install("kueue", "jobset")
    kubernetes.add_node("a")
    kubernetes.add_queue("team")
    kubernetes.script("*", Sleeps())
    kubernetes.deny_quota("t")
    make(clients, jobset("t", "node-0", "node-1", labels={"kueue.x-k8s.io/queue-name": "team"}))
    until_true(kubernetes, "jobsets", "t", "Suspended")
    assert not kubernetes.pods()
    kubernetes.admit()
    until(lambda: len(running(kubernetes)) == 2)
    assert len(kubernetes.all("workloads")) == 1


def test_a_queue_refuses_an_invalid_time_and_ignores_an_unknown_class(kubernetes, clients):
    kubernetes.install("kueue")
    kubernetes.add_queue("team")
    queued = {"kueue.x-k8s.io/queue-name": "team"}

    def create(name: str, **labels: str):
        made = job(name, "true")
        made["metadata"]["labels"] = queued | {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()}
        clients.batch.create_namespaced_job(NS, made)

    with pytest.raises(ApiException) as caught:
        create("t", **{"max-exec-time-seconds": "0"})
    assert caught.value.status == 422
    create("t", **{"priority-class": "nobody"})
    until(lambda: any(e["reason"] == "WorkloadPriorityClassNotFound" for e in kubernetes.all("events")))
    assert not kubernetes.all("workloads")


def make(clients, obj: dict) -> None:
    clients.custom.create_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", NS, "jobsets", obj)

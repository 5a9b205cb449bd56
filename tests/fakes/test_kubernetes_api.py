"""The fake API server does what the Kubernetes API is documented to do, as the real client sees it."""

import json
import threading

import pytest
import urllib3
from kubernetes import watch
from kubernetes.client.exceptions import ApiException

from tests.fakes.kubernetes import errors
from tests.fakes.objects import config_map, job
from tests.polling import until

NS = "fermi"


def refused(code, call, *args, **kwargs) -> dict:
    with pytest.raises(ApiException) as caught:
        call(*args, **kwargs)
    assert caught.value.status == code
    return json.loads(caught.value.body)


def raw_watch(kubernetes, path, **query) -> list[dict]:
    """The events of one watch until the server ends it."""
    headers = {"Authorization": "Bearer fake-token"}
    fields = {"watch": "true", "timeoutSeconds": "1", **query}
    answer = urllib3.request("GET", kubernetes.url + path, headers=headers, fields=fields, retries=False)
    assert answer.status == 200, answer.data
    return [json.loads(line) for line in answer.data.splitlines()]


def test_a_name_is_unique(clients):
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    body = refused(409, clients.core.create_namespaced_config_map, NS, config_map("a"))
    assert (body["reason"], body["message"]) == ("AlreadyExists", 'configmaps "a" already exists')


def test_a_missing_object_is_not_found(clients):
    assert refused(404, clients.batch.read_namespaced_job, "a", NS)["message"] == 'jobs.batch "a" not found'
    assert refused(404, clients.core.create_namespaced_config_map, "nowhere", config_map("a"))["reason"] == "NotFound"


def test_an_update_of_an_old_version_is_a_conflict(clients):
    old = clients.core.create_namespaced_config_map(NS, config_map("a"))
    clients.core.patch_namespaced_config_map("a", NS, {"data": {"x": "1"}})
    old.data = {"x": "2"}
    assert (
        "the object has been modified"
        in refused(409, clients.core.replace_namespaced_config_map, "a", NS, old)["message"]
    )


def test_an_update_without_change_makes_no_version(clients):
    first = clients.core.create_namespaced_config_map(NS, config_map("a", x="1"))
    second = clients.core.patch_namespaced_config_map("a", NS, {"data": {"x": "1"}})
    assert first.metadata.resource_version == second.metadata.resource_version


def test_patches_merge_and_json(clients):
    clients.core.create_namespaced_config_map(NS, config_map("a", x="1", y="2"))
    merged = clients.core.patch_namespaced_config_map("a", NS, {"data": {"x": None, "z": "3"}})
    assert merged.data == {"y": "2", "z": "3"}
    steps = [{"op": "test", "path": "/data/y", "value": "2"}, {"op": "replace", "path": "/data/y", "value": "5"}]
    assert clients.core.patch_namespaced_config_map("a", NS, steps).data == {"y": "5", "z": "3"}
    assert refused(422, clients.core.patch_namespaced_config_map, "a", NS, steps)["code"] == 422


def test_an_unknown_field_is_refused_and_recorded(kubernetes, clients):
    wrong = job("a", "true")
    wrong["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    url = f"{kubernetes.url}/apis/batch/v1/namespaces/{NS}/jobs"
    answer = urllib3.request("POST", url, headers={"Authorization": "Bearer fake-token"}, json=wrong)
    assert (answer.status, "comand" in answer.json()["message"]) == (400, True)
    assert len(kubernetes.errors) == 1
    kubernetes.api.invalid.clear()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda o: o["metadata"].update(name="a" * 64), "metadata.name"),
        (lambda o: o["metadata"].update(name="Upper"), "metadata.name"),
        (lambda o: o["metadata"].update(labels={"task": "x" * 64}), "metadata.labels"),
        (lambda o: o["spec"]["template"]["spec"].update(restartPolicy="Always"), "spec.template.spec.restartPolicy"),
        (
            lambda o: o["spec"]["template"]["spec"]["containers"][0].update(
                volumeMounts=[{"name": "gone", "mountPath": "/x"}]
            ),
            "spec.template.spec.containers[0].volumeMounts[0].name",
        ),
        (
            lambda o: o["spec"]["template"]["spec"]["containers"][0].update(
                resources={"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
            ),
            "spec.template.spec.containers[0].resources.requests",
        ),
    ],
)
def test_invalid_objects_are_refused_as_by_kubernetes(clients, change, field):
    obj = job("a", "true")
    change(obj)
    body = refused(422, clients.batch.create_namespaced_job, NS, obj)
    assert field in [cause["field"] for cause in body["details"]["causes"]]


def test_a_config_map_holds_at_most_a_mebibyte(clients):
    clients.core.create_namespaced_config_map(NS, config_map("fits", x="y" * (1 << 20)))
    big = config_map("big", x="y" * (1 << 20) + "z")
    assert "Too long" in refused(422, clients.core.create_namespaced_config_map, NS, big)["message"]


def test_a_jobs_template_is_immutable(clients):
    clients.batch.create_namespaced_job(NS, job("a", "sleep", "60"))
    change = {"spec": {"template": {"spec": {"priorityClassName": "high"}}}}
    assert "field is immutable" in refused(422, clients.batch.patch_namespaced_job, "a", NS, change)["message"]


def test_list_pages_are_of_one_version(kubernetes, clients):
    for name in "abcde":
        clients.core.create_namespaced_config_map(NS, config_map(name, {"mine": "yes"}))
    first = clients.core.list_namespaced_config_map(NS, label_selector="mine=yes", limit=2)
    clients.core.delete_namespaced_config_map("d", NS)
    clients.core.create_namespaced_config_map(NS, config_map("f", {"mine": "yes"}))
    token = first.metadata._continue
    second = clients.core.list_namespaced_config_map(NS, label_selector="mine=yes", limit=10, _continue=token)
    assert [item.metadata.name for item in first.items + second.items] == list("abcde")
    assert first.metadata.resource_version == second.metadata.resource_version
    kubernetes.compact()
    body = refused(410, clients.core.list_namespaced_config_map, NS, limit=2, _continue=token)
    assert body["reason"] == "Expired"


def test_selectors(clients):
    for name, size in (("a", "1"), ("b", "2"), ("c", "3")):
        clients.core.create_namespaced_config_map(NS, config_map(name, {"size": size}))

    def names(**query):
        return [item.metadata.name for item in clients.core.list_namespaced_config_map(NS, **query).items]

    assert names(label_selector="size in (1, 3)") == ["a", "c"]
    assert names(label_selector="size,size!=2") == ["a", "c"]
    assert names(label_selector="size=1") == ["a"]
    assert names(field_selector="metadata.name=b") == ["b"]
    assert "b" not in names(label_selector="!size")
    assert "field label not supported" in refused(400, names, field_selector="data.x=1")["message"]


def test_a_watch_resumes_without_loss_or_duplicates(clients):
    version = clients.core.list_namespaced_config_map(NS).metadata.resource_version
    seen = []
    for round_number in range(3):
        for name in ("x", "y"):
            clients.core.create_namespaced_config_map(NS, config_map(f"{name}-{round_number}"))
        stream = watch.Watch().stream(
            clients.core.list_namespaced_config_map, NS, resource_version=version, timeout_seconds=1
        )
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            version = event["object"].metadata.resource_version
    assert seen == [("ADDED", f"{name}-{number}") for number in range(3) for name in ("x", "y")]


def test_a_watch_without_a_version_starts_with_existing_objects(kubernetes, clients):
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    events = raw_watch(kubernetes, f"/api/v1/namespaces/{NS}/configmaps", fieldSelector="metadata.name=a")
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "a")]


def test_an_object_that_leaves_a_selector_is_deleted_for_its_watch(kubernetes, clients):
    version = clients.core.list_namespaced_config_map(NS).metadata.resource_version
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    clients.core.patch_namespaced_config_map("a", NS, {"metadata": {"labels": {"mine": "yes"}}})
    clients.core.patch_namespaced_config_map("a", NS, {"data": {"x": "1"}})
    clients.core.patch_namespaced_config_map("a", NS, {"metadata": {"labels": {"mine": "no"}}})
    path = f"/api/v1/namespaces/{NS}/configmaps"
    events = raw_watch(kubernetes, path, labelSelector="mine=yes", resourceVersion=version)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_bookmarks_advance_a_quiet_watch(kubernetes, clients):
    version = clients.core.list_namespaced_config_map(NS).metadata.resource_version
    for number in range(5):
        clients.core.create_namespaced_secret(NS, {"metadata": {"name": f"s-{number}"}})
    path = f"/api/v1/namespaces/{NS}/configmaps"
    events = raw_watch(kubernetes, path, resourceVersion=version, allowWatchBookmarks="true")
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(version) + 5
    assert raw_watch(kubernetes, path, resourceVersion=version) == []


def test_an_expired_version_is_410(kubernetes, clients):
    version = clients.core.list_namespaced_config_map(NS).metadata.resource_version
    kubernetes.compact()
    path = f"/api/v1/namespaces/{NS}/configmaps"
    (event,) = raw_watch(kubernetes, path, resourceVersion=version)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    with pytest.raises(ApiException) as caught:
        list(
            watch.Watch().stream(
                clients.core.list_namespaced_config_map, NS, resource_version=version, timeout_seconds=1
            )
        )
    assert caught.value.status == 410
    kubernetes.server.gone_as_status = True
    refused(410, clients.core.list_namespaced_config_map, NS, watch=True, resource_version=version)


def test_a_watch_breaks_in_the_middle_of_an_event(kubernetes, clients):
    kubernetes.faults.cut_watch("configmaps", events=2)
    for name in "abc":
        clients.core.create_namespaced_config_map(NS, config_map(name, {"mine": "yes"}))
    stream = watch.Watch().stream(clients.core.list_namespaced_config_map, NS, label_selector="mine=yes")
    assert next(stream)["object"].metadata.name == "a"
    with pytest.raises(urllib3.exceptions.HTTPError):
        next(stream)


def test_a_watch_ends_with_the_server_and_objects_stay(kubernetes, clients):
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    ended = threading.Event()

    def follow():
        try:
            for _ in watch.Watch().stream(clients.core.list_namespaced_config_map, NS):
                pass
        except (urllib3.exceptions.HTTPError, ApiException):
            ended.set()

    threading.Thread(target=follow, daemon=True).start()
    until(lambda: kubernetes.calls("watch", "configmaps"), what="the watch is there")
    kubernetes.stop_api()
    until(ended.is_set, what="the watch has ended")
    kubernetes.start_api()
    assert clients.core.read_namespaced_config_map("a", NS).metadata.name == "a"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", ["reset", "hang"])
def test_an_answer_is_lost_before_or_after_the_effect(kubernetes, clients, kind, after):
    getattr(kubernetes.faults, kind)("create", "configmaps", after=after)
    with pytest.raises(urllib3.exceptions.HTTPError):
        clients.core.create_namespaced_config_map(NS, config_map("a"), _request_timeout=0.5)
    assert ("a" in kubernetes.names("configmaps")) == after


def test_the_nth_call_is_refused_as_configured(kubernetes, clients):
    kubernetes.faults.refuse("create", "configmaps", errors.too_many_requests(1), name="b")
    kubernetes.faults.refuse("create", "configmaps", errors.internal(), nth=3)
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    with pytest.raises(ApiException) as caught:
        clients.core.create_namespaced_config_map(NS, config_map("b"))
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "1")
    refused(500, clients.core.create_namespaced_config_map, NS, config_map("c"))
    clients.core.create_namespaced_config_map(NS, config_map("c"))


def test_a_webhook_and_a_quota_refuse_in_their_own_words(kubernetes, clients):
    kubernetes.admission.deny("jobs", "bad-*", "images must be signed")
    body = refused(403, clients.batch.create_namespaced_job, NS, job("bad-1", "true"))
    assert body["message"] == 'admission webhook "policy.example.com" denied the request: images must be signed'
    kubernetes.add_quota("compute", {"requests.nvidia.com/gpu": "8"})
    kubernetes.add_node("a", gpus=64)
    clients.batch.create_namespaced_job(NS, job("fits", "sleep", "60", gpus=8))
    until(lambda: kubernetes.pods("fits-*"))
    clients.batch.create_namespaced_job(NS, job("too-much", "sleep", "60", gpus=4))
    message = until(lambda: next((e["message"] for e in kubernetes.all("events") if e["reason"] == "FailedCreate"), ""))
    assert (
        "is forbidden: exceeded quota: compute, requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=8, "
        "limited: requests.nvidia.com/gpu=8" in message
    )


def test_pods_must_fit_the_namespaces_security_level(kubernetes, clients):
    kubernetes.add_namespace("strict", **{"pod-security.kubernetes.io/enforce": "restricted"})
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    message = refused(403, clients.core.create_namespaced_pod, "strict", pod)["message"]
    for part in (
        "allowPrivilegeEscalation != false",
        "unrestricted capabilities",
        "runAsNonRoot != true",
        "seccompProfile",
    ):
        assert part in message


def test_access_reviews_agree_with_enforcement(kubernetes, clients):
    kubernetes.access.deny("create", "jobs.batch", NS)

    def allowed(verb, resource, group=""):
        ask = {"resourceAttributes": {"namespace": NS, "verb": verb, "resource": resource, "group": group}}
        return clients.auth.create_self_subject_access_review({"spec": ask}).status.allowed

    assert not allowed("create", "jobs", "batch")
    assert allowed("list", "jobs", "batch")
    body = refused(403, clients.batch.create_namespaced_job, NS, job("a", "true"))
    assert 'cannot create resource "jobs" in API group "batch" in the namespace "fermi"' in body["message"]


def test_discovery_lists_installed_apis(kubernetes, clients):
    def groups():
        return {group.name for group in clients.apis.get_api_versions().groups}

    assert clients.version.get_code().git_version == "v1.34.0"
    assert groups() == {"apps", "authorization.k8s.io", "batch", "coordination.k8s.io", "scheduling.k8s.io",
                        "storage.k8s.io"}  # fmt: skip
    with pytest.raises(ApiException) as caught:
        clients.custom.list_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", NS, "jobsets")
    assert caught.value.status == 404
    kubernetes.install("jobset", "kueue", "dra")
    assert {"jobset.x-k8s.io", "kueue.x-k8s.io", "resource.k8s.io"} <= groups()
    assert clients.custom.list_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", NS, "jobsets")["items"] == []


def test_calls_are_counted_by_verb_kind_and_client(kubernetes, clients):
    clients.api.user_agent = "fermi-test"
    clients.core.list_namespaced_pod(NS)
    clients.core.list_namespaced_pod(NS)
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    assert len(kubernetes.calls("list", "pods", user_agent="fermi-test")) == 2
    assert [(call.verb, call.name, call.code) for call in kubernetes.calls("write")] == [("create", "a", 201)]

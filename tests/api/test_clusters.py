import pytest

from apps.accounts.models import AuditEvent
from apps.clusters.models import Cluster, DevEnvironment
from tests.api.conftest import Api

NEW = {"name": "lab", "backend": "kubernetes", "connection": {"kubeconfig": "/etc/fermi/lab", "namespace": "train"}}

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments")]


def test_everyone_may_list_clusters_and_only_administrators_see_connections(
    viewer: Api, stranger: Api, admin: Api, anonymous: Api
) -> None:
    Cluster.objects.update(connection={"workspace": "/srv"})
    expected = {"id": "local", "name": "local", "backend": "local", "connection": None}
    for person in (viewer, stranger):
        assert person.get("/clusters").data["items"] == [expected]
        assert person.get("/clusters/local").data == expected
    assert admin.get("/clusters/local").data["connection"] == {"workspace": "/srv"}
    assert admin.get("/clusters/none").status == 404
    assert anonymous.get("/clusters").status == 401


def test_only_administrators_create_change_check_and_delete_clusters(owner: Api, anonymous: Api) -> None:
    def answers(person: Api) -> set[int]:
        return {
            person.post("/clusters", NEW).status,
            person.patch("/clusters/local", {"name": "mine"}).status,
            person.post("/clusters/local/check").status,
            person.delete("/clusters/local").status,
        }

    assert answers(owner) == {403}
    assert answers(anonymous) == {401}
    assert Cluster.objects.get().name == "local"


def test_a_cluster_is_created_changed_and_deleted(admin: Api) -> None:
    made = admin.post("/clusters", NEW)
    assert made.status == 201
    assert made.data == {"id": made.data["id"], **NEW}
    path = f"/clusters/{made.data['id']}"
    assert admin.patch(path, {"connection": {"in_cluster": True}}).data["connection"] == {"in_cluster": True}
    assert admin.patch(path, {"name": "renamed"}).data["name"] == "renamed"
    assert admin.delete(path).status == 200
    assert admin.get(path).status == 404
    actions = AuditEvent.objects.order_by("id").values_list("action", flat=True)
    assert list(actions) == ["cluster.create", "cluster.change", "cluster.change", "cluster.delete"]


def test_a_cluster_name_is_unique(admin: Api) -> None:
    admin.post("/clusters", NEW)
    assert admin.post("/clusters", NEW).problems == {"name": "CLUSTER_NAME_TAKEN"}
    assert admin.patch("/clusters/local", {"name": "lab"}).status == 409


@pytest.mark.parametrize(
    ("backend", "connection", "problems"),
    [
        ("nomad", {}, {"backend": "BACKEND_UNKNOWN"}),
        ("local", {"kubeconfig": "/x"}, {"connection.kubeconfig": "CONNECTION_KEY_UNKNOWN"}),
        ("kubernetes", {"token": "s3cret"}, {"connection.token": "CONNECTION_KEY_UNKNOWN"}),
        ("kubernetes", {"namespace": "No Such"}, {"connection.namespace": "CONNECTION_INVALID"}),
        (
            "kubernetes",
            {"jobset": "yes", "data": {"mountPath": "relative", "volume": {"emptyDir": {}}}},
            {"connection.jobset": "CONNECTION_INVALID", "connection.data.mountPath": "CONNECTION_INVALID"},
        ),
        ("kubernetes", {"queue": "gpus"}, {"connection.queue": "QUEUE_NEEDS_JOBSET"}),
        ("kubernetes", {"queue": "gpus", "jobset": False}, {"connection.queue": "QUEUE_NEEDS_JOBSET"}),
    ],
)
def test_a_connection_is_validated_by_its_backend(admin: Api, backend: str, connection: dict, problems: dict) -> None:
    body = {**NEW, "backend": backend, "connection": connection}
    answer = admin.post("/clusters", body)
    assert (answer.status, answer.problems) == (400, problems)
    if backend == "local":
        assert admin.patch("/clusters/local", {"connection": connection}).problems == problems


def test_an_old_invalid_connection_is_kept_until_it_is_changed(admin: Api) -> None:
    old = Cluster.objects.create(name="old", backend="kubernetes", connection={"queue": "gpus"})
    path = f"/clusters/{old.pk}"
    assert admin.patch(path, {"name": "renamed", "connection": {"queue": "gpus"}}).data["name"] == "renamed"
    refused = admin.patch(path, {"connection": {"queue": "gpus", "namespace": "a"}})
    assert (refused.status, refused.problems) == (400, {"connection.queue": "QUEUE_NEEDS_JOBSET"})
    assert admin.patch(path, {"connection": {"queue": "gpus", "jobset": True}}).status == 200


def test_a_cluster_in_use_cannot_be_deleted(admin: Api) -> None:
    answer = admin.delete("/clusters/local")
    assert (answer.status, answer.error) == (409, "CLUSTER_IN_USE")
    DevEnvironment.objects.update(discovered_as="team/pod")
    assert admin.delete("/clusters/local").status == 200, "what it showed by itself goes with it"
    assert not DevEnvironment.objects.exists()


def test_a_local_check_reports_folders_and_interpreter(admin: Api) -> None:
    report = admin.post("/clusters/local/check").data
    assert report["fit"] is True
    assert [one["code"] for one in report["findings"]][:2] == ["FOLDER_USABLE", "FOLDER_USABLE"]
    assert report["findings"][2]["code"] in ("PYTHON_USABLE", "PYTHON_WITHOUT_TORCH")


def test_a_check_reports_each_problem_with_its_remedy(admin: Api) -> None:
    admin.patch("/clusters/local", {"connection": {"python": "/no/such/python"}})
    report = admin.post("/clusters/local/check").data
    assert report["fit"] is False
    [broken] = [one for one in report["findings"] if one["level"] == "fail"]
    assert broken["code"] == "PYTHON_UNUSABLE"
    assert "/no/such/python" in broken["message"]
    assert broken["hint"]


def test_engine_options_of_an_environment_are_set_by_administrators_and_seen_by_maintainers(
    admin: Api, owner: Api, viewer: Api
) -> None:
    engine = {"namespace": "team-a", "serviceAccount": "trainer"}
    assert owner.patch("/dev-environments/env-001", {"engine": engine}).status == 403
    assert admin.patch("/dev-environments/env-001", {"engine": engine}).data["engine"] == engine
    assert owner.get("/dev-environments/env-001").data["engine"] == engine
    assert viewer.get("/dev-environments/env-001").data["engine"] is None

from datetime import timedelta

import pytest

from apps.accounts.models import Project
from apps.clusters import leases
from apps.clusters.models import Cluster, DevEnvironment
from apps.common.clock import now
from tests.api.conftest import Api

DEMO = ["env-001", "env-002", "env-003", "env-004", "env-005"]
NEW = {"name": "mine", "projectId": "project-one", "clusterId": "local", "zone": "北京可用区A", "gpuCount": 1}

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments")]


def test_a_list_shows_everything_about_an_environment(viewer: Api) -> None:
    shown = viewer.get("/dev-environments/env-001").data
    assert shown.pop("uptimeSeconds") == pytest.approx(timedelta(days=5, hours=3).total_seconds(), abs=60)
    assert shown.pop("startedAt").endswith("Z")
    assert shown == {
        "id": "env-001",
        "name": "pytorch-dev-env",
        "projectId": "project-one",
        "owner": None,
        "clusterId": "local",
        "backend": "local",
        "zone": {"id": "zone-beijing-a", "name": "北京可用区A"},
        "kind": "jupyter",
        "status": "running",
        "cordoned": False,
        "selectable": True,
        "notSelectableReason": None,
        "image": "jupyter/pytorch-notebook",
        "stack": "pytorch",
        "gpuType": "A100",
        "gpuCount": 2,
        "emulated": True,
        "cpuCores": 16,
        "memoryGb": 128,
        "host": "pytorch-dev-env",
        "ip": "192.168.1.10",
        "versions": {"python": "3.11.9", "torch": "2.13.0"},
        "network": {},
        "shared": False,
        "warm": None,
        "standby": {"isWanted": False, "state": "off", "memoryBytes": None, "until": None, "reason": None},
        "labels": {},
        "heldBy": None,
        "hosted": None,
        "discoveredAs": "",
        "engine": None,
    }
    [same] = viewer.get("/dev-environments", search="pytorch-dev").data["items"]
    assert same["id"] == "env-001"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, DEMO),
        ({"zone": "北京可用区A"}, ["env-001", "env-002"]),
        ({"zone": ["zone-beijing-a", "zone-shanghai-a"]}, ["env-001", "env-002", "env-005"]),
        ({"status": "stopped"}, ["env-004"]),
        ({"gpuType": "V100"}, ["env-002"]),
        ({"kind": ["vscode", "jupyter"]}, ["env-001", "env-002", "env-004"]),
        ({"minGpus": 4}, ["env-003", "env-005"]),
        ({"search": "lab"}, ["env-005"]),
        ({"search": "transformers"}, ["env-003", "env-005"]),
        ({"cluster": "elsewhere"}, []),
        ({"project": "project-one", "zone": "", "search": ""}, DEMO),
    ],
)
def test_filters_return_matching_environments(viewer: Api, query: dict, expected: list[str]) -> None:
    assert sorted(viewer.get("/dev-environments", **query).ids) == expected


@pytest.mark.parametrize(
    ("ordering", "expected"),
    [
        ("gpuCount", ["env-004", "env-001", "env-002", "env-003", "env-005"]),
        ("-gpuCount", ["env-005", "env-003", "env-001", "env-002", "env-004"]),
        ("name", ["env-002", "env-003", "env-005", "env-001", "env-004"]),
        ("uptime", ["env-003", "env-005", "env-002", "env-001", "env-004"]),
        ("-uptime", ["env-001", "env-002", "env-005", "env-003", "env-004"]),
    ],
)
def test_order_is_as_requested_with_stopped_environments_last(viewer: Api, ordering: str, expected: list[str]) -> None:
    assert viewer.get("/dev-environments", ordering=ordering).ids == expected


def test_pages_neither_overlap_nor_miss(viewer: Api) -> None:
    pages = [viewer.get("/dev-environments", ordering="zone", page=n, pageSize=2).data for n in (1, 2, 3, 4)]
    assert sorted(item["id"] for page in pages for item in page["items"]) == DEMO
    assert [page["total"] for page in pages] == [5, 5, 5, 5]
    assert pages[3] == {"items": [], "total": 5, "page": 4, "pageSize": 2}


def test_why_an_environment_cannot_be_chosen_is_given_in_the_readers_language(owner: Api) -> None:
    owner.patch("/dev-environments/env-001", {"cordoned": True})
    stopped, cordoned = (owner.get(f"/dev-environments/{key}").data for key in ("env-004", "env-001"))
    assert (stopped["selectable"], stopped["notSelectableReason"]["code"]) == (False, "ENVIRONMENT_NOT_RUNNING")
    assert (cordoned["selectable"], cordoned["notSelectableReason"]["code"]) == (False, "ENVIRONMENT_CORDONED")
    assert "暂停调度" in cordoned["notSelectableReason"]["message"]
    owner.lang = "en"
    assert "is cordoned" in owner.get("/dev-environments/env-001").data["notSelectableReason"]["message"]


def test_the_holder_of_an_environment_is_shown(viewer: Api) -> None:
    leases.acquire_leases(["env-001"], "task-x")
    assert viewer.get("/dev-environments/env-001").data["heldBy"] == "task-x"
    assert viewer.get("/dev-environments/env-001").data["selectable"], "one may queue for it"


def test_strangers_do_not_see_environments(stranger: Api) -> None:
    assert stranger.get("/dev-environments").data["total"] == 0
    answers = [
        stranger.get("/dev-environments/env-001"),
        stranger.patch("/dev-environments/env-001", {"name": "x"}),
        stranger.delete("/dev-environments/env-001"),
    ]
    assert {(answer.status, answer.error) for answer in answers} == {(404, "NOT_FOUND")}


@pytest.mark.parametrize("who", ["viewer", "colleague"])
def test_only_maintainers_change_an_environment(who: str, request: pytest.FixtureRequest) -> None:
    api: Api = request.getfixturevalue(who)
    answers = [
        api.post("/dev-environments", NEW),
        api.patch("/dev-environments/env-001", {"cordoned": True}),
        api.delete("/dev-environments/env-001"),
    ]
    assert {(answer.status, answer.error) for answer in answers} == {(403, "FORBIDDEN")}


def test_anonymous_is_told_to_sign_in(anonymous: Api) -> None:
    assert anonymous.get("/dev-environments").error == "NOT_AUTHENTICATED"
    assert anonymous.post("/dev-environments/summary", {"environmentIds": []}).status == 401


def test_a_maintainer_registers_an_environment_by_hand(owner: Api) -> None:
    made = owner.post("/dev-environments", NEW)
    assert made.status == 201
    assert (made.data["zone"]["id"], made.data["owner"], made.data["gpuCount"]) == ("zone-beijing-a", "owner", 1)
    assert made.data["uptimeSeconds"] == 0
    assert owner.post("/dev-environments", NEW).problems == {"name": "ENVIRONMENT_NAME_TAKEN"}


def test_network_fields_of_an_environment_are_stored(owner: Api, viewer: Api) -> None:
    facts = {"interface": "eth0", "infiniband": ["mlx5_0", "mlx5_1:1"]}
    assert owner.post("/dev-environments", {**NEW, "network": facts}).data["network"] == facts
    owner.patch("/dev-environments/env-001", {"network": {"infiniband": []}})
    assert viewer.get("/dev-environments/env-001").data["network"] == {"infiniband": []}


@pytest.mark.parametrize(
    ("network", "problems"),
    [
        ({"interface": "eth0; rm"}, {"network.interface": "FIELD_INVALID"}),
        ({"interface": "a-name-of-16-chars"}, {"network.interface": "FIELD_INVALID"}),
        ({"interface": ""}, {"network.interface": "FIELD_BLANK"}),
        ({"interface": 1}, {"network.interface": "WRONG_TYPE"}),
        ({"infiniband": ["mlx5_0,mlx5_1"]}, {"network.infiniband.0": "FIELD_INVALID"}),
        ({"nic": "eth0"}, {"network.nic": "UNKNOWN_FIELD"}),
    ],
)
def test_an_invalid_interface_name_is_refused(owner: Api, network: object, problems: dict[str, str]) -> None:
    assert owner.patch("/dev-environments/env-001", {"network": network}).problems == problems


def test_an_unknown_zone_is_created(owner: Api) -> None:
    made = owner.post("/dev-environments", {**NEW, "zone": "成都可用区B"})
    assert made.data["zone"]["name"] == "成都可用区B"


def test_a_registration_reports_all_problems(owner: Api, other_project: Project) -> None:
    wrong = {**NEW, "projectId": other_project.pk, "clusterId": "nowhere"}
    assert owner.post("/dev-environments", wrong).problems == {
        "projectId": "PROJECT_UNKNOWN",
        "clusterId": "CLUSTER_UNKNOWN",
    }


def test_starting_an_environment_resets_its_uptime(owner: Api) -> None:
    assert owner.get("/dev-environments/env-004").data["uptimeSeconds"] is None
    assert owner.patch("/dev-environments/env-004", {"status": "running"}).data["uptimeSeconds"] == 0
    assert owner.patch("/dev-environments/env-004", {"status": "stopped"}).data["startedAt"] is None


def test_a_held_environment_cannot_be_deleted(owner: Api) -> None:
    leases.acquire_leases(["env-001"], "task-x")
    answer = owner.delete("/dev-environments/env-001")
    assert (answer.status, answer.error) == (409, "ENVIRONMENT_HELD")
    assert "task-x" in answer.body["message"]
    leases.release_leases("task-x")
    assert owner.delete("/dev-environments/env-001").status == 200
    assert owner.get("/dev-environments/env-001").status == 404


def test_zones_count_only_environments_that_the_reader_may_use(viewer: Api, stranger: Api) -> None:
    zones = viewer.get("/availability-zones").data["items"]
    counts = {zone["name"]: (zone["environmentCount"], zone["gpuCount"]) for zone in zones}
    assert counts == {"北京可用区A": (2, 4), "深圳可用区C": (2, 5), "上海可用区A": (1, 8)}
    assert {zone["gpuCount"] for zone in stranger.get("/availability-zones").data["items"]} == {0}


def test_list_queries_do_not_grow_with_environments(
    viewer: Api, project: Project, cluster: Cluster, django_assert_num_queries: object
) -> None:
    zone = DevEnvironment.objects.get(pk="env-001").zone
    DevEnvironment.objects.bulk_create(
        DevEnvironment(name=f"more-{n}", project=project, cluster=cluster, zone=zone, started_at=now())
        for n in range(60)
    )
    with django_assert_num_queries(4):  # who is asking; the page; how many there are; which the platform made
        assert viewer.get("/dev-environments", pageSize=50).data["total"] == 65


def test_a_big_integer_from_postgresql_is_serialized(admin: Api) -> None:
    """1e20 has 21 digits there, and made the page of its environment a 500."""
    told = {"far": [1e20, -1e300, 2**63, 7]}
    made = admin.post("/dev-environments", {**NEW, "engine": told})
    assert admin.get(f"/dev-environments/{made.data['id']}").data["engine"] == told

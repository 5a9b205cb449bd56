"""Workers: how they join, what they are told, and that each can touch only itself."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import AuditEvent, Membership, Role
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.workers.models import JoinToken, Listening, Report, Worker
from apps.workers.services import environments
from tests.api.conftest import Api
from tests.workers import Host, hosts, join

pytestmark = pytest.mark.database


def silence(*workers: str, seconds: float) -> None:
    """Somebody has listened all the time, and heard nothing of these (or of any)."""
    moment = now()
    Listening.objects.update_or_create(pk=1, defaults={"since": moment - timedelta(hours=1), "heard_at": moment})
    rows = Report.objects.filter(worker__in=workers) if workers else Report.objects.all()
    rows.update(at=moment - timedelta(seconds=seconds))
    environments.sync_health()


def test_a_join_token_is_shown_once_and_stored_as_a_hash(colleague: Api) -> None:
    made = colleague.post("/workers/join-tokens", {"name": "lab"}).data
    assert made["projectId"] == "project-one"
    assert made["token"] in made["command"]
    [item] = colleague.get("/workers/join-tokens").data["items"]
    assert "token" not in item
    assert (item["name"], item["owner"], item["lastUsedAt"]) == ("lab", "colleague", None)
    assert made["token"] not in JoinToken.objects.get().digest
    assert AuditEvent.objects.get(action="join-token.create").data == {"name": "lab"}


def test_maintainers_create_and_revoke_join_tokens(owner: Api, viewer: Api, stranger: Api, anonymous: Api) -> None:
    body = {"name": "lab", "projectId": "project-one"}
    assert [person.post("/workers/join-tokens", body).status for person in (viewer, stranger, anonymous)] == [
        403, 400, 401,
    ]  # fmt: skip
    assert stranger.post("/workers/join-tokens", body).problems == {"projectId": "PROJECT_UNKNOWN"}
    made = owner.post("/workers/join-tokens", body).data
    assert [person.delete(f"/workers/join-tokens/{made['id']}").status for person in (viewer, stranger)] == [403, 404]
    assert owner.delete(f"/workers/join-tokens/{made['id']}").status == 200
    assert Host("gn6", made["token"]).register().error == "JOIN_TOKEN_INVALID"


def test_viewers_are_offered_no_forbidden_action(colleague: Api, viewer: Api, owner: Api, admin: Api) -> None:
    hosts(colleague, gn6=1)
    for api, actions in (
        (viewer, []),
        (colleague, ["move", "delete"]),
        (owner, ["move", "delete"]),
        (admin, ["move", "delete"]),
    ):
        assert api.get("/workers/gn6-0").data["allowedActions"] == actions
        assert [row["allowedActions"] for row in api.get("/workers").data["items"]] == [actions]
    assert viewer.delete("/workers/gn6-0").error == "FORBIDDEN"
    assert viewer.post("/worker-groups/move", {"workerIds": ["gn6-0"], "groupId": None}).error == "FORBIDDEN"


def test_a_join_token_is_void_once_its_creator_loses_the_role(colleague: Api) -> None:
    token = join(colleague)
    Membership.objects.update(role=Role.VIEWER)
    assert Host("gn6", token).register().error == "JOIN_TOKEN_INVALID"


def test_a_user_of_several_projects_must_name_one(admin: Api, project: Any, other_project: Any) -> None:
    answer = admin.post("/workers/join-tokens", {"name": "lab"})
    assert answer.problems == {"projectId": "PROJECT_REQUIRED"}


def test_workers_of_a_host_become_one_environment(colleague: Api) -> None:
    hosts(colleague, gn6=2)
    [item] = colleague.get("/dev-environments").data["items"]
    assert (item["name"], item["backend"], item["gpuCount"], item["gpuType"]) == ("gn6", "agent", 2, "A100")
    assert (item["status"], item["selectable"], item["emulated"]) == ("running", True, False)
    assert (item["cpuCores"], item["memoryGb"], item["host"], item["ip"]) == (8, 64, "gn6", "10.0.0.1")
    environment = DevEnvironment.objects.get()
    assert environment.engine == {"workers": ["gn6-0", "gn6-1"], "gpus": [0, 1]}


def test_workers_of_a_host_without_gpus_are_emulated(colleague: Api) -> None:
    host = Host("cpu1", join(colleague), gpus=2, cpu=True)
    host.register()
    [item] = colleague.get("/dev-environments").data["items"]
    assert (item["gpuCount"], item["gpuType"], item["emulated"]) == (2, "", True)


def test_a_host_without_gpus_emulates_them_only_if_it_says_so(colleague: Api) -> None:
    Host("cpu1", join(colleague), cpu=True).register()
    Host("cpu2", join(colleague), cpu=True, facts={"emulated": True}).register()
    shown = [(one["gpuCount"], one["emulated"]) for one in colleague.get("/dev-environments").data["items"]]
    assert shown == [(0, False), (1, True)]
    made = colleague.post("/worker-groups", {"name": "cpu", "script": "train.py"}).data
    colleague.post("/worker-groups/move", {"workerIds": ["cpu1-0"], "groupId": made["id"]})
    env = colleague.get("/workers/cpu1-0/environment").data["env"]
    assert (env["WORLD_SIZE"], env["RANK"]) == ("1", "0")


def test_workers_are_in_numeric_order(colleague: Api) -> None:
    hosts(colleague, gn6=11)
    expected = [f"gn6-{number}" for number in range(11)]
    assert DevEnvironment.objects.get().engine["workers"] == expected
    assert colleague.get("/workers").ids == expected


def test_invalid_and_duplicate_ids_are_refused(colleague: Api) -> None:
    host = Host("gn6", join(colleague))
    bad = ["gn6", "gn6-", "-1", "gn6-01", "gn6-x", "a b-0/..", "gn6-1", "gn6-1"]
    assert host.register(*bad).problems == {
        **{f"workers.{index}.id": "WORKER_NAME_INVALID" for index in range(6)},
        "workers.7.id": "WORKER_DUPLICATE",
    }
    assert not Worker.objects.exists()


def test_an_id_of_a_living_worker_on_another_machine_is_refused(colleague: Api) -> None:
    first = hosts(colleague, gn6=1)["gn6"]
    second = Host("gn6", first.join_token, machine="another")
    answer = second.register()
    assert (answer.status, answer.error) == (409, "WORKER_ID_TAKEN")
    assert "gn6-0" in answer.body["message"]
    silence(seconds=60)
    assert second.register().status == 201
    [told] = first.beat()
    assert told["error"]["code"] == "WORKER_TOKEN_INVALID"


def test_unknown_fields_of_a_newer_agent_are_accepted(colleague: Api) -> None:
    host = Host("gn6", join(colleague), facts={"version": "9.9", "somethingNew": {"x": 1}})
    assert host.register().status == 201
    assert colleague.get("/workers/gn6-0").data["version"] == "9.9"
    assert "somethingNew" not in Worker.objects.get().facts
    host.facts = {"containers": "podman 5.4.2"}
    assert host.register().status == 201
    assert Worker.objects.get().facts["containers"] == "podman 5.4.2"
    host.facts = {"cpuCores": "many"}
    assert host.register().problems == {"facts.cpuCores": "WRONG_TYPE"}


def test_the_same_machine_may_register_again_and_gets_a_new_token(colleague: Api) -> None:
    host = hosts(colleague, gn6=1)["gn6"]
    before = host.tokens["gn6-0"]
    assert host.register().status == 201
    assert host.beat()[0]["error"] is None
    host.tokens["gn6-0"] = before
    assert host.beat()[0]["error"]["code"] == "WORKER_TOKEN_INVALID"
    assert Worker.objects.count() == 1


def test_worker_ids_are_unique_across_projects(colleague: Api, stranger: Api) -> None:
    hosts(colleague, gn6=1)
    silence(seconds=60)
    answer = Host("gn6", join(stranger, "project-two")).register()
    assert (answer.status, answer.error) == (409, "WORKER_ID_TAKEN")


def test_a_node_named_like_a_registered_environment_is_refused(colleague: Api, environments: Any) -> None:
    answer = Host("pytorch-dev-env", join(colleague)).register()
    assert (answer.status, answer.error) == (409, "NODE_NAME_TAKEN")
    assert not Worker.objects.exists()


def test_a_worker_shows_its_last_heartbeat(colleague: Api) -> None:
    host = hosts(colleague, gn6=1)["gn6"]
    usage = {"gpuUtilization": 97.5, "gpuMemoryUsedMb": 1000, "gpuMemoryTotalMb": 80000, "cpuPercent": 12.0}
    process = {"name": "task-x-2", "rank": 3, "state": "exited", "pid": 77, "exitCode": 1, "left": False}
    host.beat(process=process, usage=usage)
    item = colleague.get("/workers/gn6-0").data
    assert item["usage"] == {**usage, "memoryUsedMb": None}
    assert item["process"] == {"state": "exited", "pid": 77, "exitCode": 1, "taskId": "task-x", "attempt": 2}
    assert (item["status"], item["node"], item["number"], item["gpu"], item["version"]) == (
        "online", "gn6", 0, 0, "0.1.0",
    )  # fmt: skip
    assert 0 <= item["heartbeatAgeSeconds"] < 60
    assert item["group"] is item["rank"] is item["worldSize"] is None


def test_a_silent_worker_becomes_suspect_then_lost_and_its_environment_unusable(colleague: Api) -> None:
    host = hosts(colleague, gn6=2)["gn6"]
    silence("gn6-1", seconds=13)
    assert [item["status"] for item in colleague.get("/workers").data["items"]] == ["online", "suspect"]
    assert DevEnvironment.objects.get().status == "running"
    silence("gn6-1", seconds=16)
    assert colleague.get("/workers", status="lost").ids == ["gn6-1"]
    assert colleague.get("/workers", status="online").ids == ["gn6-0"]
    assert DevEnvironment.objects.get().status == "unhealthy"
    host.beat()
    environments.sync_health()
    assert colleague.get("/workers", status="lost").ids == []
    assert DevEnvironment.objects.get().status == "running"


def test_downtime_of_the_platform_makes_no_worker_lost(colleague: Api) -> None:
    host = hosts(colleague, gn6=1, gn7=1)
    long_ago = now() - timedelta(hours=1)
    Report.objects.update(at=long_ago)
    Listening.objects.update(since=long_ago, heard_at=long_ago)
    assert colleague.get("/workers", status="suspect").ids == ["gn6-0", "gn7-0"]
    host["gn6"].beat()  # somebody listens again
    environments.sync_health()
    assert [item["status"] for item in colleague.get("/workers").data["items"]] == ["online", "suspect"]
    assert {one.status for one in DevEnvironment.objects.all()} == {"running"}
    Listening.objects.update(since=now() - timedelta(seconds=20))
    environments.sync_health()
    assert colleague.get("/workers", status="lost").ids == ["gn7-0"]
    assert DevEnvironment.objects.get(name="gn7").status == "unhealthy"


def test_downtime_of_the_platform_does_not_revive_a_lost_worker(colleague: Api) -> None:
    host = hosts(colleague, gn6=1)["gn6"]
    silence(seconds=60)
    for moment in (now() - timedelta(hours=1), now()):  # it does not listen; it has just begun to
        Listening.objects.update(since=moment, heard_at=moment)
        environments.sync_health()
        assert DevEnvironment.objects.get().status == "unhealthy"
    host.beat()
    environments.sync_health()
    assert DevEnvironment.objects.get().status == "running"


def test_a_late_older_heartbeat_is_ignored(colleague: Api) -> None:
    host = hosts(colleague, gn6=1)["gn6"]
    host.beat(usage={"cpuPercent": 50.0})
    host.sequence -= 2
    host.beat(usage={"cpuPercent": 10.0})
    assert colleague.get("/workers/gn6-0").data["usage"]["cpuPercent"] == 50.0
    host.incarnation = "second"
    host.beat(usage={"cpuPercent": 20.0})
    assert colleague.get("/workers/gn6-0").data["usage"]["cpuPercent"] == 20.0


def test_a_worker_reports_only_for_itself(colleague: Api) -> None:
    host = hosts(colleague, gn6=2)["gn6"]
    mine, other = host.tokens["gn6-0"], host.tokens["gn6-1"]
    assert host.order("gn6-0", other).error == "WORKER_TOKEN_INVALID"
    assert host.order("gn6-0", "nonsense").status == 401
    assert host.order("gn6-0", mine).error == "ORDER_UNKNOWN"
    host.tokens["gn6-1"] = mine
    told = {one["id"]: one["error"] for one in host.beat()}
    assert told["gn6-0"] is None
    assert told["gn6-1"]["code"] == "WORKER_TOKEN_INVALID"
    assert host.ship("gn6-1", "task-x/1/0", 0, b"x").status == 401
    assert host.send("GET", "/workers", mine).status == 401, "nor is it anybody's API token"


def test_an_invalid_heartbeat_is_refused_with_its_problems(colleague: Api) -> None:
    host = hosts(colleague, gn6=1)["gn6"]
    body = {"workers": [{"id": "gn6-0", "token": "t", "incarnation": "x", "sequence": "one", "generation": 0}]}
    answer = host.send("POST", "/workers/heartbeat", "", body)
    assert (answer.status, answer.problems) == (400, {"workers.0.sequence": "WRONG_TYPE"})


def test_one_unknown_worker_does_not_affect_the_others(colleague: Api) -> None:
    host = hosts(colleague, gn6=2)["gn6"]
    Worker.objects.filter(pk="gn6-1").delete()
    told = host.beat()
    assert [one["error"] and one["error"]["code"] for one in told] == [None, "WORKER_UNKNOWN"]


def test_a_worker_is_removed_with_its_environment(colleague: Api, viewer: Api, stranger: Api) -> None:
    hosts(colleague, gn6=2)
    assert [person.delete("/workers/gn6-0").status for person in (viewer, stranger)] == [403, 404]
    assert colleague.delete("/workers/gn6-0").status == 200
    assert DevEnvironment.objects.get().engine["workers"] == ["gn6-1"]
    assert colleague.delete("/workers/gn6-1").status == 200
    assert not DevEnvironment.objects.exists()


def test_only_members_of_the_project_see_workers(colleague: Api, viewer: Api, stranger: Api, anonymous: Api) -> None:
    hosts(colleague, gn6=1)
    assert viewer.get("/workers").ids == ["gn6-0"]
    assert stranger.get("/workers").ids == []
    assert stranger.get("/workers/gn6-0").status == 404
    assert anonymous.get("/workers").status == 401


def test_the_list_can_be_searched_and_filtered(colleague: Api) -> None:
    hosts(colleague, gn6=2, gn7=1)
    group = colleague.post("/worker-groups", {"name": "pretrain", "workerIds": ["gn6-0"]}).data
    assert colleague.get("/workers", node="gn7").ids == ["gn7-0"]
    assert colleague.get("/workers", group=group["id"]).ids == ["gn6-0"]
    assert colleague.get("/workers", group="pretrain").ids == ["gn6-0"]
    assert colleague.get("/workers", group="none").ids == ["gn6-1", "gn7-0"]
    assert colleague.get("/workers", search="GN6").ids == ["gn6-0", "gn6-1"]
    assert colleague.get("/workers", ordering="-id", pageSize=1).ids == ["gn7-0"]


def test_repeated_log_uploads_are_stored_once(colleague: Api, settings: Any, tmp_path: Path) -> None:
    from apps.workers.engine.store import DatabaseStore
    from fermi.engines.agent.store import RankOrder

    settings.DATA_DIR = tmp_path
    host = hosts(colleague, gn6=1)["gn6"]
    assert host.ship("gn6-0", "task-x/1/0", 0, b"secret").error == "RANK_NOT_OF_WORKER"
    body = {"name": "task-x-1", "digest": "d", "spec": {}, "files": {}}
    DatabaseStore().put("task-x-1", "task-x", 1, [RankOrder("gn6-0", 0, 0, "gn6", "d", body)])
    assert host.ship("gn6-0", "task-x/1/0", 0, b"hello ").data == {"acknowledged": 6}
    assert host.ship("gn6-0", "task-x/1/0", 3, b"lo world\n").data == {"acknowledged": 12}
    assert host.ship("gn6-0", "task-x/1/0", 0, b"hello ").data == {"acknowledged": 12}
    gap = host.ship("gn6-0", "task-x/1/0", 99, b"later")
    assert (gap.status, gap.error, gap.body["data"]) == (409, "LOG_GAP", {"acknowledged": 12})
    assert host.ship("gn6-0", "task-x/1/1", 0, b"x").error == "RANK_NOT_OF_WORKER"
    assert host.ship("gn6-0", "task-x/1/x", 0, b"x").status == 404
    assert (tmp_path / "logs/task-x/1/0.log").read_bytes() == b"hello world\n"
    DatabaseStore().delete_attempt("task-x-1")
    assert host.ship("gn6-0", "task-x/1/0", 12, b"late").data == {"acknowledged": 16}


@pytest.mark.parametrize("workers", [1, 40])
def test_heartbeat_queries_do_not_grow_with_workers(
    workers: int, colleague: Api, django_assert_max_num_queries: Any
) -> None:
    host = hosts(colleague, gn6=workers)["gn6"]
    with django_assert_max_num_queries(8):
        host.beat(process={"name": "task-x-1", "rank": 0, "state": "running"})

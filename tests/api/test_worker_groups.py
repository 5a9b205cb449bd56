"""Groups of workers: settings, who takes which rank (requirement document 000), and starting their script."""

import json
from typing import Any

import pytest

from apps.accounts import secrets
from apps.accounts.models import AuditEvent
from apps.clusters.models import DevEnvironment, Lease
from apps.training.models import Task
from apps.training.states import TaskState
from apps.workers.models import Group, Worker
from tests.api.conftest import Api
from tests.workers import Host, hosts, join


def group(api: Api, *workers: str, **settings: Any) -> dict[str, Any]:
    body = {"name": "pretrain", "workerIds": list(workers), "script": "train.py", **settings}
    return api.post("/worker-groups", body).data


def table(api: Api, group_id: str) -> list[tuple[Any, ...]]:
    """As in the document: Worker, RANK, LOCAL_RANK, NODE_RANK."""
    rows = api.get(f"/worker-groups/{group_id}").data["workers"]
    return [(row["id"], row["rank"], row["localRank"], row["nodeRank"]) for row in rows]


def environments_of(api: Api, *workers: str) -> list[dict[str, str]]:
    found = [api.get(f"/workers/{key}/environment").data for key in workers]
    assert [one["problems"] for one in found] == [[]] * len(workers)
    return [one["env"] for one in found]


def test_four_workers_on_four_nodes_have_the_documents_ranks(colleague: Api) -> None:
    hosts(colleague, gn40=1, gn7=1, gn6=1, gn39=1)
    made = group(colleague, "gn40-0", "gn7-0", "gn6-0", "gn39-0", masterAddress="gn6", worldSize=4)
    assert table(colleague, made["id"]) == [
        ("gn6-0", 0, 0, 0), ("gn39-0", 1, 0, 1), ("gn40-0", 2, 0, 2), ("gn7-0", 3, 0, 3),
    ]  # fmt: skip
    seen = environments_of(colleague, "gn6-0", "gn39-0", "gn40-0", "gn7-0")
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert [[env[name] for name in names] for env in seen] == [
        ["0", "0", "0", "1", "4", "gn6", "29500"],
        ["1", "0", "1", "1", "4", "gn6", "29500"],
        ["2", "0", "2", "1", "4", "gn6", "29500"],
        ["3", "0", "3", "1", "4", "gn6", "29500"],
    ]


def test_two_workers_on_each_of_two_nodes_have_the_documents_ranks(colleague: Api) -> None:
    hosts(colleague, gn7=2, gn6=2)
    made = group(colleague, "gn7-1", "gn6-1", "gn7-0", "gn6-0", masterAddress="gn6")
    assert table(colleague, made["id"]) == [
        ("gn6-0", 0, 0, 0), ("gn6-1", 1, 1, 0), ("gn7-0", 2, 0, 1), ("gn7-1", 3, 1, 1),
    ]  # fmt: skip
    seen = environments_of(colleague, "gn6-0", "gn6-1", "gn7-0", "gn7-1")
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR")
    assert [[env[name] for name in names] for env in seen] == [
        ["0", "0", "0", "2", "4", "gn6"], ["1", "1", "0", "2", "4", "gn6"],
        ["2", "0", "1", "2", "4", "gn6"], ["3", "1", "1", "2", "4", "gn6"],
    ]  # fmt: skip


def test_a_new_group_has_the_documents_defaults(colleague: Api) -> None:
    made = colleague.post("/worker-groups", {"name": "pretrain"}).data
    assert (made["masterPort"], made["backend"], made["worldSize"], made["effectiveWorldSize"]) == (
        29500, "nccl", None, 0,
    )  # fmt: skip
    assert [problem["error"] for problem in made["problems"]] == ["GROUP_EMPTY"]
    assert made["allowedActions"] == ["edit", "delete"]


def test_the_resolved_backend_is_shown_next_to_the_configured_one(colleague: Api) -> None:
    hosts(colleague, gn6=1)
    Host("cpu1", join(colleague), cpu=True).register()
    Host("cpu2", join(colleague), facts={"emulated": True}).register()
    made = group(colleague, "gn6-0")
    assert (made["backend"], made["effectiveBackend"]) == ("nccl", "nccl")
    for worker in ("cpu1-0", "cpu2-0"):
        colleague.post("/worker-groups/move", {"workerIds": [worker], "groupId": made["id"]})
        shown = colleague.get(f"/worker-groups/{made['id']}").data
        assert (shown["backend"], shown["effectiveBackend"]) == ("nccl", "gloo")
        colleague.post("/worker-groups/move", {"workerIds": [worker], "groupId": None})


def test_the_world_size_defaults_to_the_number_of_workers(colleague: Api) -> None:
    hosts(colleague, gn6=2, gn7=1)
    made = group(colleague, "gn6-0", "gn6-1", "gn7-0", masterAddress="gn7")
    assert made["effectiveWorldSize"] == 3
    assert colleague.get("/workers/gn6-1").data["worldSize"] == 3


def test_a_smaller_world_size_takes_the_first_ranks(colleague: Api) -> None:
    hosts(colleague, gn6=2, gn7=2, gn8=1)
    workers = ["gn6-0", "gn6-1", "gn7-0", "gn7-1", "gn8-0"]
    made = group(colleague, *workers, masterAddress="gn6", worldSize=3)
    assert table(colleague, made["id"]) == [
        ("gn6-0", 0, 0, 0), ("gn6-1", 1, 1, 0), ("gn7-0", 2, 0, 1),
        ("gn7-1", None, None, None), ("gn8-0", None, None, None),
    ]  # fmt: skip
    [env] = environments_of(colleague, "gn7-0")
    assert (env["WORLD_SIZE"], env["RANK"], env["LOCAL_WORLD_SIZE"]) == ("3", "2", "1")
    assert colleague.get("/workers/gn8-0/environment").data == {"env": {}, "problems": []}
    colleague.post(f"/worker-groups/{made['id']}/start")
    task = Task.objects.get()
    assert (task.world_size, task.node_count) == (3, 2)
    assert [node["engine"]["workers"] for node in task.spec["nodes"]] == [["gn6-0", "gn6-1"], ["gn7-0"]]
    left = DevEnvironment.objects.get(name="gn8 (pretrain)").pk
    assert task.request["spareEnvironmentIds"] == [left], "gn7-1 cannot be one: its node is used in part"


@pytest.mark.parametrize(
    ("settings", "field", "code"),
    [
        ({"masterAddress": "gn9"}, "masterAddress", "MASTER_NOT_IN_GROUP"),
        ({"masterAddress": "gn6-0"}, "masterAddress", "MASTER_NOT_IN_GROUP"),
        ({"worldSize": 4}, "worldSize", "WORLD_SIZE_TOO_LARGE"),
        ({"worldSize": 0}, "worldSize", "FIELD_RANGE"),
        ({"masterPort": 80}, "masterPort", "PORT_OUT_OF_RANGE"),
        ({"backend": "mpi"}, "backend", "FIELD_CHOICE"),
        ({"env": {"RANK": "1"}}, "env.RANK", "ENV_RESERVED"),
        ({"workerIds": ["gn6-0", "gn6-0"]}, "workerIds.1", "WORKER_DUPLICATE"),
        ({"workerIds": ["gn6-7"]}, "workerIds.0", "WORKER_UNKNOWN"),
    ],
)
def test_invalid_settings_are_refused(colleague: Api, settings: Any, field: str, code: str) -> None:
    hosts(colleague, gn6=2, gn7=1)
    body = {"name": "pretrain", "workerIds": ["gn6-0", "gn6-1", "gn7-0"], **settings}
    answer = colleague.post("/worker-groups", body)
    assert (answer.status, answer.problems) == (400, {field: code})
    assert not Group.objects.exists()


def test_a_worker_id_in_place_of_a_node_name_is_explained(colleague: Api) -> None:
    hosts(colleague, gn6=1, gn7=1)
    answer = colleague.post("/worker-groups", {"name": "g", "workerIds": ["gn6-0", "gn7-0"], "masterAddress": "gn6-0"})
    assert "gn6" in answer.body["errors"][0]["hint"]
    assert "-编号" in answer.body["errors"][0]["hint"]


def test_a_worker_is_in_one_group_at_most(colleague: Api) -> None:
    hosts(colleague, gn6=2)
    first = group(colleague, "gn6-0")
    answer = colleague.post("/worker-groups", {"name": "other", "workerIds": ["gn6-1", "gn6-0"]})
    assert answer.problems == {"workerIds.1": "WORKER_IN_OTHER_GROUP"}
    other = colleague.post("/worker-groups", {"name": "other"}).data
    assert colleague.post("/worker-groups/move", {"workerIds": ["gn6-0"], "groupId": other["id"]}).status == 200
    assert table(colleague, first["id"]) == []
    assert [row[0] for row in table(colleague, other["id"])] == ["gn6-0"]


def test_moving_many_workers_is_all_or_nothing(colleague: Api) -> None:
    hosts(colleague, gn6=2, gn7=2)
    made = group(colleague)
    everyone = ["gn6-0", "gn6-1", "gn7-0", "gn7-1"]
    answer = colleague.post("/worker-groups/move", {"workerIds": [*everyone, "gn9-0"], "groupId": made["id"]})
    assert answer.problems == {"workerIds.4": "WORKER_UNKNOWN"}
    assert table(colleague, made["id"]) == []
    assert colleague.post("/worker-groups/move", {"workerIds": everyone, "groupId": made["id"]}).status == 200
    assert [row[0] for row in table(colleague, made["id"])] == everyone
    assert colleague.post("/worker-groups/move", {"workerIds": everyone, "groupId": None}).status == 200
    assert Worker.objects.filter(group=None).count() == 4


@pytest.mark.database
def test_environments_follow_the_groups_of_workers(colleague: Api) -> None:
    hosts(colleague, gn6=3, gn7=1)

    def known() -> dict[str, list[str]]:
        return {row.name: row.engine["workers"] for row in DevEnvironment.objects.all()}

    assert known() == {"gn6": ["gn6-0", "gn6-1", "gn6-2"], "gn7": ["gn7-0"]}
    made = group(colleague, "gn6-2", "gn6-0", "gn7-0")
    assert known() == {"gn6": ["gn6-1"], "gn6 (pretrain)": ["gn6-0", "gn6-2"], "gn7 (pretrain)": ["gn7-0"]}
    before = DevEnvironment.objects.get(name="gn6 (pretrain)").pk
    colleague.patch(f"/worker-groups/{made['id']}", {"name": "tune"})
    assert DevEnvironment.objects.get(name="gn6 (tune)").pk == before
    assert colleague.delete(f"/worker-groups/{made['id']}").status == 200
    assert known() == {"gn6": ["gn6-0", "gn6-1", "gn6-2"], "gn7": ["gn7-0"]}


def test_a_group_name_is_unique_in_its_project(colleague: Api) -> None:
    group(colleague)
    assert colleague.post("/worker-groups", {"name": "pretrain"}).error == "GROUP_NAME_TAKEN"
    other = colleague.post("/worker-groups", {"name": "other"}).data
    assert colleague.patch(f"/worker-groups/{other['id']}", {"name": "pretrain"}).error == "GROUP_NAME_TAKEN"


def test_all_problems_of_group_settings_are_reported(colleague: Api) -> None:
    hosts(colleague, gn6=1)
    made = group(colleague, "gn6-0")
    answer = colleague.patch(
        f"/worker-groups/{made['id']}",
        {"masterPort": "29500 ", "worldSize": 9, "masterAddress": "nowhere", "env": {"RANK": "1"}, "maxRestarts": 1000},
    )
    assert answer.problems == {
        "masterPort": "WRONG_TYPE",
        "maxRestarts": "FIELD_RANGE",
        "worldSize": "WORLD_SIZE_TOO_LARGE",
        "masterAddress": "MASTER_NOT_IN_GROUP",
        "env.RANK": "ENV_RESERVED",
    }
    assert colleague.get(f"/worker-groups/{made['id']}").data["masterPort"] == 29500


def test_each_role_has_its_rights(colleague: Api, viewer: Api, stranger: Api) -> None:
    hosts(colleague, gn6=1)
    made = group(colleague, "gn6-0")
    path = f"/worker-groups/{made['id']}"
    for person, status in ((viewer, 403), (stranger, 404)):
        assert person.patch(path, {"name": "x"}).status == status
        assert person.delete(path).status == status
        assert [person.post(f"{path}/{action}").status for action in ("start", "stop", "restart")] == [status] * 3
    assert viewer.get(path).data["name"] == "pretrain"
    assert viewer.get(path).data["allowedActions"] == []
    assert stranger.get(path).status == 404
    assert stranger.post("/worker-groups/move", {"workerIds": ["gn6-0"], "groupId": None}).problems == {
        "workerIds.0": "WORKER_UNKNOWN"
    }
    assert viewer.post("/worker-groups/move", {"workerIds": ["gn6-0"], "groupId": None}).status == 403


def test_a_group_with_missing_settings_cannot_be_started(colleague: Api) -> None:
    hosts(colleague, gn6=1, gn7=1)
    made = group(colleague, script="")
    path = f"/worker-groups/{made['id']}"
    assert colleague.post(f"{path}/start").problems == {"workers": "GROUP_EMPTY"}
    colleague.post("/worker-groups/move", {"workerIds": ["gn6-0", "gn7-0"], "groupId": made["id"]})
    codes = {problem["field"]: problem["error"] for problem in colleague.get(path).data["problems"]}
    assert codes == {"masterAddress": "GROUP_MASTER_REQUIRED", "script": "GROUP_SCRIPT_REQUIRED"}
    assert colleague.post(f"{path}/start").problems == codes
    colleague.patch(path, {"masterAddress": "gn7", "script": "train.py", "worldSize": 2})
    colleague.post("/worker-groups/move", {"workerIds": ["gn7-0"], "groupId": None})
    codes = {problem["field"]: problem["error"] for problem in colleague.get(path).data["problems"]}
    assert codes == {"masterAddress": "MASTER_NOT_IN_GROUP", "worldSize": "WORLD_SIZE_TOO_LARGE"}


def test_starting_a_group_creates_a_training_task(colleague: Api) -> None:
    hosts(colleague, gn6=2, gn7=1)
    made = group(
        colleague, "gn6-0", "gn6-1", "gn7-0", masterAddress="gn7", backend="gloo", args=["--epochs", "3"],
        env={"NCCL_DEBUG": "INFO"}, maxRestarts=1,
    )  # fmt: skip
    assert made["allowedActions"] == ["start", "edit", "delete"]
    started = colleague.post(f"/worker-groups/{made['id']}/start").data
    assert started["allowedActions"] == ["stop", "restart", "edit"]
    task = colleague.get(f"/training-tasks/{started['task']['id']}").data
    assert (task["taskName"], task["framework"], task["worldSize"], task["maxRestarts"]) == (
        "pretrain", "pytorch-ddp", 3, 1,
    )  # fmt: skip
    assert task["datasetId"] is task["datasetVersionId"] is task["modelId"] is None
    assert [node["name"] for node in task["nodes"]] == ["gn7 (pretrain)", "gn6 (pretrain)"]
    assert Task.objects.get().spec["backend"] == "gloo"
    again = colleague.post(f"/worker-groups/{made['id']}/start")
    assert (again.status, again.error) == (409, "GROUP_RUNNING")
    assert colleague.delete(f"/worker-groups/{made['id']}").error == "GROUP_RUNNING"
    assert Task.objects.count() == 1


def test_stopping_a_group_stops_its_task_and_a_restart_waits_for_it(colleague: Api) -> None:
    hosts(colleague, gn6=1)
    path = f"/worker-groups/{group(colleague, 'gn6-0')['id']}"
    assert colleague.post(f"{path}/stop").status == 200, "nothing to stop is nothing to do"
    first = colleague.post(f"{path}/start").data["task"]["id"]
    second = colleague.post(f"{path}/restart").data["task"]["id"]
    assert first != second
    assert Task.objects.get(pk=first).stop_requested_at is not None
    colleague.post(f"{path}/stop")
    assert Task.objects.get(pk=second).stop_requested_at is not None


def test_the_task_of_a_group_can_be_retried_and_cloned(colleague: Api) -> None:
    hosts(colleague, gn6=1)
    started = colleague.post(f"/worker-groups/{group(colleague, 'gn6-0')['id']}/start").data["task"]["id"]
    assert colleague.post(f"/training-tasks/{started}/clone").data["request"]["datasetId"] is None
    Task.objects.filter(pk=started).update(state=TaskState.FAILED, due_at=None)
    assert colleague.post(f"/training-tasks/{started}/retry").status == 201


@pytest.mark.database
def test_workers_in_use_cannot_be_moved(colleague: Api) -> None:
    hosts(colleague, gn6=2)
    made = group(colleague, "gn6-0")
    started = colleague.post(f"/worker-groups/{made['id']}/start").data["task"]["id"]
    answer = colleague.post("/worker-groups/move", {"workerIds": ["gn6-0"], "groupId": None})
    assert (answer.status, answer.problems) == (409, {"workerIds.0": "WORKER_IN_USE"})
    assert started in answer.body["message"]
    assert colleague.delete("/workers/gn6-0").error == "WORKER_IN_USE"
    joining = colleague.post("/worker-groups/move", {"workerIds": ["gn6-1"], "groupId": made["id"]})
    assert (joining.status, joining.error) == (409, "GROUP_RUNNING")
    Task.objects.update(state=TaskState.STOPPED, due_at=None)
    Lease.objects.create(environment=DevEnvironment.objects.get(name="gn6 (pretrain)"), holder="task-other")
    assert colleague.delete("/workers/gn6-0").error == "WORKER_IN_USE"
    Lease.objects.all().delete()
    assert colleague.delete("/workers/gn6-0").status == 200


def test_a_worker_without_a_group_shows_no_environment(colleague: Api) -> None:
    hosts(colleague, gn6=1)
    assert colleague.get("/workers/gn6-0/environment").error == "WORKER_WITHOUT_GROUP"


def test_list_queries_do_not_grow_with_groups(colleague: Api, django_assert_max_num_queries: Any) -> None:
    hosts(colleague, gn6=3, gn7=3)
    for name in ("a", "b", "c"):
        colleague.post("/worker-groups", {"name": name, "workerIds": [f"gn6-{'abc'.index(name)}"]})
    for path in ("/workers", "/worker-groups"):
        with django_assert_max_num_queries(8):
            colleague.get(path)


def test_workers_in_use_are_refused_one_by_one(colleague: Api) -> None:
    hosts(colleague, gn6=3)
    made = group(colleague, "gn6-0", "gn6-1")
    started = colleague.post(f"/worker-groups/{made['id']}/start").data["task"]["id"]
    answer = colleague.post("/worker-groups/move", {"workerIds": ["gn6-0", "gn6-2", "gn6-1"], "groupId": None})
    assert (answer.status, answer.error) == (409, "WORKER_IN_USE")
    assert answer.problems == {"workerIds.0": "WORKER_IN_USE", "workerIds.1": "WORKER_IN_USE"}
    assert all(started in problem["message"] for problem in answer.body["errors"])
    assert "2" in answer.body["message"]


# Keys and secrets -----------------------------------------------------------------------------------------------------

KEY = "sk-0123456789abcdefghij"


@pytest.mark.database
def test_group_variables_that_look_like_keys_are_hidden_from_viewers(colleague: Api, viewer: Api) -> None:
    hosts(colleague, gn6=1)
    made = group(colleague, "gn6-0", env={"WANDB_API_KEY": KEY, "PLAIN": "1"})
    path = f"/worker-groups/{made['id']}"
    [warning] = made["warnings"]
    assert warning["code"] == "ENV_LOOKS_SECRET"
    assert "WANDB_API_KEY" in warning["message"]
    assert made["env"] == {"WANDB_API_KEY": KEY, "PLAIN": "1"}
    for answer in (viewer.get(path), viewer.get("/worker-groups"), viewer.get("/workers/gn6-0/environment")):
        assert answer.status == 200
        assert KEY not in json.dumps(answer.body)
    assert viewer.get(path).data["env"] == {"WANDB_API_KEY": "••••••", "PLAIN": "1"}
    assert viewer.get("/workers/gn6-0/environment").data["env"]["WANDB_API_KEY"] == "••••••"
    assert colleague.get("/workers/gn6-0/environment").data["env"]["WANDB_API_KEY"] == KEY
    colleague.patch(path, {"env": {"WANDB_API_KEY": KEY + "x"}})
    assert KEY not in str(list(AuditEvent.objects.values_list("data", flat=True)))


def test_a_group_uses_secrets_by_name(owner: Api, colleague: Api, viewer: Api) -> None:
    hosts(colleague, gn6=1)
    owner._send("PUT", "/projects/project-one/secrets/wandb", {"value": KEY})
    made = group(colleague, "gn6-0", secretEnv={"WANDB_API_KEY": "wandb"})
    path = f"/worker-groups/{made['id']}"
    assert (made["secretEnv"], made["warnings"]) == ({"WANDB_API_KEY": "wandb"}, [])
    assert viewer.get("/workers/gn6-0/environment").data["env"]["WANDB_API_KEY"] == "<secret wandb>"
    for changes, problems in (
        ({"secretEnv": {"K": "wandbb"}}, {"secretEnv.K": "SECRET_UNKNOWN"}),
        ({"secretEnv": {"RANK": "wandb"}}, {"secretEnv.RANK": "ENV_RESERVED"}),
        ({"env": {"WANDB_API_KEY": "1"}}, {"secretEnv.WANDB_API_KEY": "ENV_TWICE"}),
    ):
        assert colleague.patch(path, changes).problems == problems
        body = {"name": "other", "secretEnv": {"WANDB_API_KEY": "wandb"}, **changes}
        assert colleague.post("/worker-groups", body).problems == problems
    colleague.post(f"{path}/start")
    task = Task.objects.get()
    assert task.request["secretEnv"] == {"WANDB_API_KEY": "wandb"}
    assert secrets.reveal_secrets("project-one", task.spec["secret_env"]) == {"WANDB_API_KEY": KEY}


def test_a_group_whose_secret_was_removed_fails_to_start_with_its_name(owner: Api, colleague: Api) -> None:
    hosts(colleague, gn6=1)
    owner._send("PUT", "/projects/project-one/secrets/wandb", {"value": KEY})
    made = group(colleague, "gn6-0", secretEnv={"WANDB_API_KEY": "wandb"})
    owner.delete("/projects/project-one/secrets/wandb")
    path = f"/worker-groups/{made['id']}"
    assert colleague.patch(path, {"script": "other.py"}).status == 200
    assert colleague.post(f"{path}/start").problems == {"secretEnv.WANDB_API_KEY": "SECRET_UNKNOWN"}

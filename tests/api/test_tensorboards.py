"""TensorBoards: who may open them, what their programs may read, and how they end."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Membership, Project, Role
from apps.clusters import leases
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.environments import own_secrets, reconcile
from apps.environments.models import Hosted
from apps.notices.models import Incident
from apps.tensorboard.models import TensorBoard
from apps.tensorboard.services import boards, feed
from apps.training.models import MetricPoint, Task
from apps.training.states import TaskState
from fermi.engines.environments import EnvironmentPhase, EnvironmentSpec
from fermi.jobs.spec import Cause, Problem
from fermi.planning import plugins
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.fakes.environments import Machine

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]
Answer = tuple[int, Any]
FAILED = {"output": "no such index", "why": "no such index", "exitCode": 1}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Machine:
    machine = Machine()
    monkeypatch.setattr(plugins, "get_environment_backend", lambda backend, connection: machine)
    monkeypatch.setattr(plugins, "can_make_environments", lambda backend: True)
    settings.OWN_URL = "http://localhost:8000"
    return machine


@pytest.fixture
def tasks(machine: Machine, colleague: Api) -> list[str]:
    return [colleague.post("/training-tasks", changed(taskName=name)).data["taskId"] for name in ("one", "two")]


def settle(passes: int = 8) -> None:
    """Do what the sweep does, without its waits."""
    for _ in range(passes):
        Hosted.objects.exclude(due_at=None).update(due_at=now(), claimed_at=None)
        if not reconcile.reconcile_due():
            return


def open_board(api: Api, *task_ids: str) -> dict[str, Any]:
    found: dict[str, Any] = api.post("/tensorboards", {"taskIds": list(task_ids)}).data
    return found


def get_token(machine: Machine, board: dict[str, Any]) -> str:
    run = Hosted.objects.get(pk=board["environmentId"]).run
    return machine.secrets[f"{board['environmentId']}-{run}"][own_secrets.TOKEN_VARIABLE]


def request_feed(token: str, where: str, method: str = "GET", begin: int | None = None, **query: Any) -> Answer:
    sent = {"Authorization": f"Bearer {token}"}
    query |= {} if begin is None else {"from": begin}
    answer = Client().generic(method, f"/tensorboard-feed/{where}", headers=sent, query_params=query)
    is_json = answer.headers.get("Content-Type", "").startswith("application/json")
    return answer.status_code, json.loads(answer.content) if is_json else answer.content


def serve(machine: Machine, board: dict[str, Any]) -> str:
    """Start it and have its program report that it serves; return its token."""
    settle()
    token = get_token(machine, board)
    assert request_feed(token, "serving", "POST")[0] == 204
    return token


def write(task: str, path: str, data: bytes, settings: Any) -> Path:
    file = Path(settings.DATA_DIR, "outputs", task, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def test_a_member_opens_a_tensorboard_which_becomes_ready(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    assert (board["state"], board["url"], board["taskIds"]) == ("starting", None, tasks)
    assert board["reason"]["code"] == "TENSORBOARD_STARTING"
    environment = DevEnvironment.objects.get(pk=board["environmentId"])
    assert (environment.gpu_count, environment.cordoned) == (0, True), "no task is placed in it"
    settle()
    assert colleague.get(f"/tensorboards/{board['id']}").data["state"] == "starting", "its program does not serve yet"
    serve(machine, board)
    ready = colleague.get(f"/tensorboards/{board['id']}").data
    assert (ready["state"], ready["reason"]) == ("ready", None)
    assert ready["url"] == f"/environments/{board['environmentId']}/open?door=tensorboard"
    assert ready["endsAt"]


def test_a_viewer_opens_none_and_a_stranger_sees_none(
    tasks: list[str], colleague: Api, viewer: Api, stranger: Api, anonymous: Api, owner: Api
) -> None:
    asked = {"taskIds": tasks}
    assert viewer.post("/tensorboards", asked).error == "FORBIDDEN"
    assert stranger.post("/tensorboards", asked).error == "NOT_FOUND"
    assert anonymous.post("/tensorboards", asked).error == "NOT_AUTHENTICATED"
    where = f"/tensorboards/{open_board(colleague, *tasks)['id']}"
    assert viewer.get(where).data["taskIds"] == tasks
    assert len(viewer.get("/tensorboards").ids) == len(owner.get("/tensorboards").ids) == 1
    assert stranger.get("/tensorboards").ids == []
    assert anonymous.get("/tensorboards").error == "NOT_AUTHENTICATED"
    assert stranger.get(where).error == stranger.delete(where).error == "NOT_FOUND"
    assert anonymous.get(where).error == anonymous.delete(where).error == "NOT_AUTHENTICATED"
    assert viewer.delete(where).error == "FORBIDDEN"


def test_the_same_tasks_in_any_order_have_one_tensorboard(tasks: list[str], colleague: Api, owner: Api) -> None:
    board = open_board(colleague, *tasks)
    assert open_board(owner, *reversed(tasks), tasks[0])["id"] == board["id"]
    assert open_board(owner, tasks[0])["id"] != board["id"]


def test_bad_requests_are_refused_and_name_the_field(
    tasks: list[str], colleague: Api, other_project: Project, machine: Machine
) -> None:
    assert colleague.post("/tensorboards", {"taskIds": []}).problems == {"taskIds": "FIELD_LENGTH"}
    many = colleague.post("/tensorboards", {"taskIds": [f"task-{number}" for number in range(21)]})
    assert (many.status, list(many.problems)) == (400, ["taskIds"])
    assert colleague.post("/tensorboards", {"taskIds": [tasks[0], "task-none"]}).error == "NOT_FOUND"
    assert colleague.user
    Membership.objects.create(project=other_project, user=colleague.user, role=Role.MEMBER)
    Task.objects.filter(pk=tasks[1]).update(project=other_project)
    answer = colleague.post("/tensorboards", {"taskIds": tasks})
    assert (answer.status, answer.problems) == (400, {"taskIds": "TENSORBOARD_TWO_PROJECTS"})
    assert not TensorBoard.objects.exists()


def test_a_person_has_five_at_most(tasks: list[str], colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MAX_PER_PERSON", 2)
    first = open_board(colleague, tasks[0])
    open_board(colleague, tasks[1])
    answer = colleague.post("/tensorboards", {"taskIds": tasks})
    assert (answer.status, answer.problems) == (409, {"taskIds": "TENSORBOARD_TOO_MANY"})
    assert first["id"] in json.dumps(answer.body), "it names the one to end"
    assert colleague.delete(f"/tensorboards/{first['id']}").status == 200
    assert open_board(colleague, *tasks)["state"] == "starting"


def test_one_that_was_ended_is_gone_and_the_tasks_get_another(
    tasks: list[str], machine: Machine, colleague: Api
) -> None:
    board = open_board(colleague, *tasks)
    token = serve(machine, board)
    assert colleague.delete(f"/tensorboards/{board['id']}").status == 200
    assert request_feed(token, "tasks")[0] == 401
    other = open_board(colleague, *tasks)
    assert other["id"] != board["id"]
    settle()
    assert not DevEnvironment.objects.filter(pk=board["environmentId"]).exists()
    assert board["environmentId"] not in machine.disks
    assert colleague.get(f"/tensorboards/{board['id']}").error == "NOT_FOUND"


def test_an_idle_one_ends_without_a_notice(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    serve(machine, board)
    before = now() - timedelta(minutes=31)
    Hosted.objects.update(active_at=before)
    settle(1)
    assert Hosted.objects.get().warned_at, "an environment is warned before, and so is this one, silently"
    Hosted.objects.update(active_at=before, warned_at=before + timedelta(seconds=1))
    settle()
    assert not TensorBoard.objects.exists()
    assert not machine.disks
    assert not Incident.objects.filter(kind="environment_idle").exists()


def test_one_that_failed_says_why_and_is_replaced(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    settle()
    machine.end_run(board["environmentId"], Cause("PACKAGES_FAILED", FAILED))
    settle()
    failed = colleague.get(f"/tensorboards/{board['id']}").data
    assert (failed["state"], failed["reason"]["code"]) == ("failed", "PACKAGES_FAILED")
    assert open_board(colleague, *tasks)["id"] != board["id"]


def test_failed_ones_and_those_without_tasks_end_by_themselves(
    tasks: list[str], machine: Machine, colleague: Api
) -> None:
    failed, empty, fine = (open_board(colleague, *keys) for keys in ([tasks[0]], [tasks[1]], tasks))
    settle()
    machine.end_run(failed["environmentId"], Cause("PACKAGES_FAILED", FAILED))
    settle()
    TensorBoard.objects.filter(pk=empty["id"]).update(tasks=["task-deleted"])
    assert boards.end_unused() == 1, "its reason can be read for some minutes"
    Hosted.objects.filter(pk=failed["environmentId"]).update(state_since=now() - timedelta(minutes=11))
    assert boards.end_unused() == 1
    assert boards.end_unused() == 0
    settle()
    assert colleague.get("/tensorboards").ids == [fine["id"]]


def test_one_whose_environment_a_task_holds_does_not_end(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    settle()
    TensorBoard.objects.filter(pk=board["id"]).update(tasks=["task-deleted"])
    key = board["environmentId"]
    assert leases.acquire_leases([key], "task-x") == [(key, "")], "it takes no task unless a user lets it"
    DevEnvironment.objects.filter(pk=key).update(cordoned=False)
    assert leases.acquire_leases([key], "task-x") is None
    assert colleague.delete(f"/tensorboards/{board['id']}").error == "ENVIRONMENT_HELD"
    assert boards.end_unused() == 0


def test_an_engine_of_containers_needs_an_image(
    tasks: list[str], machine: Machine, colleague: Api, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(spec: EnvironmentSpec) -> list[Problem]:
        return [] if spec.image else [Problem("image", "IMAGE_NEEDED", {})]

    monkeypatch.setattr(machine, "problems", check)
    answer = colleague.post("/tensorboards", {"taskIds": tasks})
    assert answer.problems == {"taskIds": "TENSORBOARD_IMAGE_NEEDED"}
    settings.TENSORBOARD_IMAGE = "registry.example.org/tensorboard:1"
    board = open_board(colleague, *tasks)
    assert DevEnvironment.objects.get(pk=board["environmentId"]).image == "registry.example.org/tensorboard:1"


def test_without_an_address_of_the_platform_none_is_opened(tasks: list[str], colleague: Api, settings: Any) -> None:
    settings.OWN_URL = settings.PUBLIC_URL = settings.RANKS_URL = ""
    answer = colleague.post("/tensorboards", {"taskIds": tasks})
    assert (answer.status, answer.problems) == (409, {"taskIds": "TENSORBOARD_NO_CLUSTER"})


def test_its_token_reads_its_tasks_and_nothing_else(
    tasks: list[str], machine: Machine, colleague: Api, settings: Any
) -> None:
    write(tasks[0], "runs/a/events.out.tfevents.1.host", b"0123456789", settings)
    write(tasks[0], "model.pt", b"weights", settings)
    write(tasks[1], "events.out.tfevents.1.host", b"other", settings)
    token = serve(machine, open_board(colleague, tasks[0]))
    one = f"tasks/{tasks[0]}"
    listed = {"path": "runs/a/events.out.tfevents.1.host", "size": 10}
    assert request_feed(token, f"{one}/files") == (200, {"files": [listed]})
    assert request_feed(token, f"{one}/content", path=listed["path"], begin=4) == (200, b"456789")
    assert request_feed(token, f"{one}/content", path=listed["path"], begin=10) == (200, b"")
    for path in ("model.pt", "../other/events.out.tfevents.1", "/etc/events.out.tfevents.1", ""):
        assert request_feed(token, f"{one}/content", path=path)[0] == 404
    assert request_feed(token, f"{one}/content", path=listed["path"], begin=-1)[0] == 400
    for part in ("files", "content", "points"):
        assert request_feed(token, f"tasks/{tasks[1]}/{part}", path="events.out.tfevents.1.host")[0] == 404
    assert request_feed(token, "tasks", "POST")[0] == request_feed(token, f"{one}/files", "DELETE")[0] == 405
    assert Api(token=token).get("/training-tasks").status == 401, "it opens nothing of the API"
    assert request_feed(colleague.token, "tasks")[0] == 401, "and no person's token opens the feed"
    assert request_feed(token + "x", "tasks")[0] == request_feed("", "tasks")[0] == 401


def test_the_token_of_an_earlier_run_reads_nothing(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    token = serve(machine, board)
    assert colleague.post(f"/dev-environments/{board['environmentId']}/restart").status == 200
    assert request_feed(token, "tasks")[0] == 401
    settle()
    assert colleague.get(f"/tensorboards/{board['id']}").data["state"] == "starting", "the new run does not serve yet"
    assert request_feed(get_token(machine, board), "tasks")[0] == 200


def test_no_answer_shows_its_secrets(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    token = serve(machine, board)
    key = own_secrets.make_proxy_key(board["environmentId"], 1)
    one = f"/dev-environments/{board['environmentId']}"
    answers = [colleague.get(path) for path in (f"/tensorboards/{board['id']}", one, f"{one}/life", "/tensorboards")]
    shown = json.dumps([answer.body for answer in answers])
    stored = json.dumps([Hosted.objects.values("spec").get(), machine.asked], default=str)
    assert not [secret for secret in (token, key) if secret in shown + stored]
    assert colleague.post(f"{one}/clone", {"name": "copy"}).error == "ENVIRONMENT_ACTION_NOT_ALLOWED"


def test_tasks_are_listed_under_readable_names(tasks: list[str], machine: Machine, colleague: Api) -> None:
    token = serve(machine, open_board(colleague, *tasks))
    Task.objects.filter(pk=tasks[0]).update(name="../学习率 1/2")
    found = request_feed(token, "tasks")[1]["tasks"]
    assert [task["folder"] for task in found] == ["_学习率 1_2", "two"]
    assert not any(task["isFinal"] for task in found)
    ended = now() - feed.SETTLED_AFTER - timedelta(seconds=1)
    Task.objects.filter(pk__in=tasks).update(name="same", state=TaskState.SUCCEEDED, ended_at=ended)
    found = request_feed(token, "tasks")[1]["tasks"]
    assert [task["folder"] for task in found] == [f"same {key}" for key in tasks]
    assert all(task["isFinal"] for task in found)
    Task.objects.filter(pk=tasks[0]).delete()
    assert [task["id"] for task in request_feed(token, "tasks")[1]["tasks"]] == tasks[1:], "deleted ones are left out"


def test_stored_points_are_read_page_by_page(
    tasks: list[str], machine: Machine, colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_POINTS", 2)
    common = {"task_id": tasks[0], "attempt": 1, "at": now()}
    values: list[dict[str, Any]] = [{"loss": 1.5, "note": "text"}, {"loss": "NaN"}, {"loss": 0.5}]
    made = [MetricPoint.objects.create(**common, rank=0, step=step, values=one) for step, one in enumerate(values)]
    MetricPoint.objects.create(**common, rank=1, step=1, values={"loss": 9.0})
    token = serve(machine, open_board(colleague, tasks[0]))
    page = request_feed(token, f"tasks/{tasks[0]}/points")[1]
    assert [(point["step"], point["values"]) for point in page["points"]] == [(0, {"loss": 1.5})]
    assert (page["last"], page["more"]) == (made[1].pk, True)
    rest = request_feed(token, f"tasks/{tasks[0]}/points", after=page["last"])[1]
    assert ([point["values"] for point in rest["points"]], rest["more"]) == ([{"loss": 0.5}], False)
    assert request_feed(token, f"tasks/{tasks[0]}/points", after="x")[0] == 400


def test_its_environment_counts_among_the_projects_own(tasks: list[str], machine: Machine, colleague: Api) -> None:
    board = open_board(colleague, *tasks)
    settle()
    assert machine.newest(board["environmentId"]).phase is EnvironmentPhase.RUNNING
    assert board["environmentId"] in colleague.get("/dev-environments").ids

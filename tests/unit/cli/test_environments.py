"""`fermi environments` as it speaks to the API."""

import io
import json
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from fermi.carriage_returns import find_newest_state
from fermi.cli.commands import environments
from fermi.cli.main import make_group
from tests.fakes.api import FakeApi, Request, data, page
from tests.unit.cli.api_responses import environment
from tests.unit.cli.conftest import Command

PROJECT = {"id": "project-1", "name": "nlp", "role": "member"}
TEMPLATE = {
    "id": "template-1", "name": "jupyter", "description": "", "projectId": None, "clusterId": None, "zone": None,
    "kind": "jupyter", "image": "", "packages": ["numpy"], "gpuType": "", "gpuCount": 1, "emulated": False,
    "cpuCores": 4, "memoryGb": 16, "sharedMemoryGb": 0, "diskGb": 50, "ports": [{"name": "web", "port": 80}],
    "env": {"A": "1"}, "secretEnv": {}, "startScript": "", "idleStopMinutes": 60, "createdBy": "admin",
    "createdAt": "2026-11-01T00:00:00Z",
}  # fmt: skip


def hosted(state: str, wanted: str = "running", **changes: Any) -> dict[str, Any]:
    own = {
        "state": state, "since": "2026-11-21T00:00:00Z", "reason": None, "doing": None, "wanted": wanted,
        "allowedActions": ["stop"], "templateId": "template-1", "templateName": "jupyter", "run": 1,
        "idleStopMinutes": 60, "activeAt": None, "stopsAt": None, "keepUntil": None, "taskId": None,
        "afterwards": None, "doors": [{"name": "jupyter", "port": None}, {"name": "web", "port": 80}],
        "kernels": [{"id": "k", "name": "train.ipynb", "busy": True, "since": None}], "connections": 0,
        "cost": {"gpuHours": 1.5, "amount": 18.0, "currency": "CNY"},
    }  # fmt: skip
    return environment(1, "mine", status=state, hosted={**own, **changes})


@pytest.fixture(autouse=True)
def known(api: FakeApi) -> None:
    api.on("GET", "/projects", page([PROJECT]))
    api.on("GET", "/environment-templates", page([TEMPLATE]))
    api.on("GET", "/environment-templates/template-1", data(TEMPLATE))
    api.on("GET", "/dev-environments", page([hosted("running")]))


def test_differences_from_the_template_are_sent_and_lists_extended(api: FakeApi, command: Command) -> None:
    api.on("POST", "/dev-environments/make", data(hosted("creating"), 201))
    done = command("environments", "make", "jupyter", "--name", "mine", "--gpus", "2", "--shared-memory", "8",
                   "--package", "torch", "--env", "B=2", "--port", "tensorboard=6006", "--idle-stop", "never",
                   "--zone", "z", "-o", "json")  # fmt: skip
    assert done.code == 0, done.err
    [request] = api.list_requests("POST", "/dev-environments/make")
    assert request.body == {
        "templateId": "template-1", "name": "mine", "projectId": "project-1", "gpuCount": 2, "sharedMemoryGb": 8,
        "packages": ["numpy", "torch"], "env": {"A": "1", "B": "2"}, "zone": "z", "idleStopMinutes": None,
        "ports": [{"name": "web", "port": 80}, {"name": "tensorboard", "port": 6006}],
    }  # fmt: skip
    assert len(request.headers["Idempotency-Key"]) == 32
    for wrong in (["--idle-stop", "soon"], ["--port", "web=x"], ["--env", "B"], ["--cpus", "0"]):
        assert command("environments", "make", "jupyter", *wrong).code == 2


def test_waiting_shows_each_new_reason(api: FakeApi, command: Command) -> None:
    installing = {"code": "INSTALLING_PACKAGES", "message": "Installing 2 packages."}
    looks = [hosted("creating"), hosted("starting", doing=installing), hosted("starting", doing=installing)]
    api.on("POST", "/dev-environments/make", data(hosted("creating"), 201))
    api.on("GET", "/dev-environments/env-001", *map(data, [*looks, hosted("running")]))
    done = command("environments", "make", "jupyter", "--wait")
    assert (done.code, done.err.splitlines()) == (
        0,
        ["env-001 is creating", "env-001 is starting: Installing 2 packages.", "env-001 is running"],
    )
    for word in ("env-001", "running", "18.00 CNY", "web", "train.ipynb"):
        assert word in done.out
    assert "{" not in done.out


def test_waiting_for_a_failed_environment_fails(api: FakeApi, command: Command) -> None:
    reason = {"code": "PACKAGES_FAILED", "message": "No matching distribution.", "hint": "Look at the name."}
    api.on("POST", "/dev-environments/env-001/start", data(hosted("failed")))
    failed = hosted("failed", "stopped", reason=reason)
    api.on("GET", "/dev-environments/env-001", data(hosted("failed")), data(hosted("starting")), data(failed))
    done = command("environments", "start", "mine", "--wait")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "env-001 is failed: No matching distribution."


def test_actions_name_their_environment(api: FakeApi, command: Command) -> None:
    at = "/dev-environments/env-001"
    for action in ("start", "stop", "restart", "keep", "resize", "clone"):
        api.on("POST", f"{at}/{action}", data(hosted("running")))
    api.on("DELETE", at, data(hosted("deleted", "deleted")))
    assert command("environments", "stop", "mine").err == "env-001 is stopping; its disk is kept.\n"
    assert command("environments", "restart", "mine").code == 0
    assert command("environments", "keep", "mine", "--hours", "1.5").code == 0
    assert command("environments", "resize", "mine", "--gpus", "0", "--memory", "32").code == 0
    assert command("environments", "resize", "mine").code == 2
    assert command("environments", "clone", "mine", "other").code == 0
    assert command("environments", "delete", "mine", "--yes").code == 0
    bodies = [request.body for request in api.requests if request.method == "POST"]
    assert bodies == [None, None, {"hours": 1.5}, {"gpuCount": 0, "memoryGb": 32}, {"name": "other"}]
    assert len(api.list_requests("DELETE", at)) == 1


def test_warm_shows_the_standby_process_and_its_memory(api: FakeApi, command: Command) -> None:
    standing = {"isWanted": True, "state": "standing", "memoryBytes": 412 << 20, "until": "2026-11-21T06:30:00Z",
                "reason": None}  # fmt: skip
    api.on("PATCH", "/dev-environments/env-001", data(environment(1, "mine", warm=True, standby=standing)))
    api.on("PUT", "/projects/project-1/warm", data({**PROJECT, "warm": True}))
    assert "holds 412 MiB" in command("environments", "warm", "mine", "on").out
    assert command("environments", "warm", "mine", "default").code == 0
    assert command("environments", "warm", "--project", "nlp", "on").code == 0
    assert [request.body for request in api.requests if request.method in ("PATCH", "PUT")] == [
        {"warm": True}, {"warm": None}, {"warm": True},
    ]  # fmt: skip
    for wrong in (["mine"], ["on"], ["mine", "perhaps"], ["--project", "nlp", "default"]):
        assert command("environments", "warm", *wrong).code == 2


def test_logs_are_read_to_the_end(api: FakeApi, command: Command) -> None:
    def read(request: Request) -> Any:
        at = int(request.query["cursor"])
        return data({"text": ["one\n", "\x1b[2Jtwo\n", ""][at], "cursor": min(at + 1, 2), "end": at >= 1})

    api.on("GET", "/dev-environments/env-001/logs", read)
    assert command("environments", "logs", "mine").out == "one\ntwo\n"
    assert command("environments", "logs", "mine", "--raw").out == "one\n\x1b[2Jtwo\n"


def test_a_progress_bar_in_a_log_shows_its_newest_state(api: FakeApi, command: Command) -> None:
    def read(request: Request) -> Any:
        at = int(request.query["cursor"])
        return data({"text": ["\r 1%\r 2", "%\r 3%\nhalf", " a line"][at], "cursor": at + 1, "end": at == 2})

    api.on("GET", "/dev-environments/env-001/logs", read)
    assert command("environments", "logs", "mine").out == " 3%\nhalf a line\n"


def test_only_the_newest_state_of_a_bar_is_parsed_again(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def counted(line: bytes) -> tuple[int, bytes]:
        looked.append(len(line))
        return find_newest_state(line)

    def read(request: Request) -> Any:
        at = int(request.query["cursor"])
        return data({"text": f"\r{at:3}%" if at < 200 else "\nend", "cursor": at + 1, "end": at == 200})

    monkeypatch.setattr(environments, "find_newest_state", counted)
    api.on("GET", "/dev-environments/env-001/logs", read)
    assert command("environments", "logs", "mine").out == "199%\nend\n"
    assert max(looked) <= 2 * len("\r199%")


def test_templates_are_created_changed_and_deleted(api: FakeApi, command: Command, tmp_path: Any) -> None:
    api.on("POST", "/environment-templates", data(TEMPLATE, 201))
    api.on("PATCH", "/environment-templates/template-1", data(TEMPLATE))
    api.on("DELETE", "/environment-templates/template-1", data(None))
    file = tmp_path / "t.yaml"
    file.write_text("kind: jupyter\npackages: [torch]\n", "utf-8")
    made = command("environments", "templates", "create", "vision", "-f", str(file), "--project", "nlp", "-o", "json")
    assert json.loads(made.out) == TEMPLATE
    assert command("environments", "templates", "change", "jupyter", "-f", str(file)).code == 0
    assert command("environments", "templates", "delete", "jupyter").code == 0
    assert command("environments", "templates", "create").code == 2
    assert "everyone" in command("environments", "templates").out
    assert "tensorboard" not in command("environments", "templates", "show", "jupyter").out
    whole = {"kind": "jupyter", "packages": ["torch"]}
    assert [request.body for request in api.requests if request.method in ("POST", "PATCH")] == [
        {**whole, "name": "vision", "projectId": "project-1"},
        whole,
    ]


def test_the_shell_completes_commands_and_names(api: FakeApi) -> None:
    def offered(*words: str) -> list[str]:
        *before, begun = words
        completing = ShellComplete(make_group(), {}, "fermi", "_FERMI_COMPLETE")
        return [item.value for item in completing.get_completions([*before], begun)]

    assert offered("she") == ["shell"]
    assert offered("environments", "re") == ["resize", "restart"]
    assert offered("environments", "stop", "mi") == ["mine"]
    assert offered("run", "--env", "env") == ["env-001"]
    assert offered("environments", "make", "jup") == ["jupyter"]
    api.close()
    assert offered("shell", "mi") == []


def known_packages(**changes: Any) -> dict[str, Any]:
    return {
        "environmentId": "env-001", "name": "mine", "state": "known", "looking": False,
        "lookedAt": "2026-11-21T00:00:00Z", "python": "/opt/conda/bin/python", "version": "3.11.9",
        "torch": {"version": "2.5.1+cu124", "cuda": "12.4", "nccl": "2.21.5"}, "packageCount": 275, "reason": None,
        **changes,
    }  # fmt: skip


def difference(name: str, first: str, second: str, kind: str = "package", fatal: bool = False) -> dict[str, Any]:
    return {"kind": kind, "name": name, "fatal": fatal, "values": {"env-001": first, "env-002": second}}


OTHER = {"environmentId": "env-002", "name": "other"}
LACKING = [
    {"name": "einops", "version": "0.8.0", "environmentIds": ["env-002"], "requirement": "einops==0.8.0"},
    {"name": "triton", "version": "3.1", "environmentIds": ["env-002"], "requirement": ""},
]


def compared(**changes: Any) -> dict[str, Any]:
    return {
        "environments": [known_packages(), known_packages(**OTHER)], "looking": False, "lacking": LACKING,
        "differences": [difference("torch", "2.5.1", "2.4.0", "torch", fatal=True)]
        + [difference(f"kit{number}", "1", "") for number in range(25)],
        **changes,
    }  # fmt: skip


@pytest.fixture
def two(api: FakeApi) -> None:
    api.on("GET", "/dev-environments", page([environment(1, "mine"), environment(2, "other")]))


@pytest.mark.usefixtures("two")
def test_packages_are_compared_once_surveyed(api: FakeApi, command: Command) -> None:
    looking = compared(looking=True, differences=[], lacking=[])
    api.on("GET", "/dev-environments/packages", data(looking), data(compared()))
    done = command("environments", "packages", "mine", "other", "--anew", "--python", "mine-kernel")
    assert done.code == 0, done.err
    first, second = api.list_requests("GET", "/dev-environments/packages")
    assert (first.query["ids"], first.query["anew"]) == ("env-001,env-002", "true")
    assert "anew" not in second.query
    for word in ("3.11.9", "2.21.5", "/opt/conda/bin/python", "torch", "2.4.0", "training fails", "kit9",
                 "5 more packages differ", "fermi environments level env-001 env-002"):  # fmt: skip
        assert word in done.out
    assert "kit24" in command("environments", "packages", "mine", "other", "--all").out


@pytest.mark.usefixtures("two")
def test_an_environment_that_cannot_be_surveyed_gives_the_reason(api: FakeApi, command: Command) -> None:
    reason = {"code": "INSIDE_NO_PYTHON", "message": "No Python was found.", "hint": "Use another image."}
    failed = known_packages(**OTHER, state="failed", reason=reason, torch={}, version="", python="", packageCount=0)
    api.on("GET", "/dev-environments/packages", data(compared(environments=[known_packages(), failed], differences=[])))
    done = command("environments", "packages", "mine", "other")
    assert done.code == 1
    assert "No Python was found." in done.out


def installed(state: str, **changes: Any) -> dict[str, Any]:
    items = [
        {"environmentId": key, "name": name, "state": state, "exit": None, "output": "", "reason": None,
         "endedAt": None, **changes}
        for key, name in (("env-001", "mine"), ("env-002", "other"))
    ]  # fmt: skip
    over = state in ("done", "failed")
    return {"id": "install-1", "packages": [], "askedBy": "me", "createdAt": "2026-11-21T00:00:00Z", "over": over,
            "items": items}  # fmt: skip


@pytest.mark.usefixtures("two")
def test_missing_packages_are_installed_on_confirmation(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("GET", "/dev-environments/packages", data(compared()))
    api.on("POST", "/dev-environments/packages/level", data(installed("waiting"), 201))
    api.on("GET", "/dev-environments/packages/level/install-1", data(installed("running")),
           data(installed("done", exit=0, output="Successfully installed einops-0.8.0\n")))  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert command("environments", "level", "mine", "other").code != 0
    assert api.list_requests("POST", "/dev-environments/packages/level") == []
    done = command("environments", "level", "mine", "other", "--yes")
    assert done.code == 0, done.err
    [request] = api.list_requests("POST", "/dev-environments/packages/level")
    assert request.body == {"ids": ["env-001", "env-002"], "packages": ["einops==0.8.0"], "python": ""}
    assert "Left alone: triton" in done.err
    assert done.err.count("mine: running") == 1
    assert "Successfully installed einops-0.8.0" in done.out


@pytest.mark.usefixtures("two")
def test_named_packages_are_installed_without_a_comparison(api: FakeApi, command: Command) -> None:
    api.on("POST", "/dev-environments/packages/level", data(installed("failed", exit=1, output="no such package"), 201))
    done = command("environments", "level", "mine", "other", "--package", "timm", "--package", "einops==0.8.0", "-y")
    assert done.code == 1
    assert "no such package" in done.out
    [request] = api.list_requests("POST", "/dev-environments/packages/level")
    assert request.body["packages"] == ["timm", "einops==0.8.0"]
    assert api.list_requests("GET", "/dev-environments/packages") == []


@pytest.mark.usefixtures("two")
def test_nothing_is_installed_where_nothing_is_missing(api: FakeApi, command: Command) -> None:
    api.on("GET", "/dev-environments/packages", data(compared(lacking=[])))
    done = command("environments", "level", "mine", "other", "-y")
    assert (done.code, api.list_requests("POST", "/dev-environments/packages/level")) == (0, [])

"""Environments that are to be warm: who may switch it, what stands by when, and what is told of it. The environments
are folders of this machine, entered by real processes."""

import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import AuditEvent, Project, User
from apps.clusters import discovery
from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease
from apps.common.clock import now
from apps.environments import standby
from apps.environments.models import Standby
from apps.training.core import release
from apps.training.models import Task
from fermi.engines import standby as inside
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.engines.local import check
from fermi.engines.local.engine import LocalBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import JobSpec, Node, RunLocation
from fermi.planning import plugins
from fermi.runner import processes
from fermi.runner.channel import read_state
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.inside_engines import Inside
from tests.polling import until

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")
ENVIRONMENT, PROJECT_WARM = "/dev-environments/env-001", "/projects/{}/warm"


class Lab:
    """env-001, with this machine's Python."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.entered = Inside(folder, FERMI_PYTHON=sys.executable), list[str]()

    def enter(self, node: Node) -> InsideSession:
        self.entered.append(node.id)
        if node.id != "env-001":
            raise BackendError("INSIDE_NO_PYTHON", permanent=True, environment=node.name)
        return self.inside.enter()

    def count_standby(self) -> int | None:
        folders = (self.inside.home / ".fermi/standby").glob("*")
        return next((said["pid"] for folder in folders if (said := read_state(str(folder)))), None)

    def close(self) -> None:
        self.inside.end_container()
        if pid := self.count_standby():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "data"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    found = Lab(tmp_path / "lab")

    def ways(backend: LocalBackend, job: JobSpec) -> dict[str, RunLocations]:
        return {node.id: RunLocations(RunLocation(True, "WAY_INSIDE_RUNS")) for node in job.nodes}

    monkeypatch.setattr(check, "standby", lambda image: "environment")
    monkeypatch.setattr(LocalBackend, "enter", lambda backend, node: found.enter(node))
    monkeypatch.setattr(LocalBackend, "find_run_locations", ways)
    yield found
    found.close()


def carry_out() -> int:
    """What threads of a worker do; returns how often an environment was asked."""
    count = 0
    while standby.run_due_check():
        count += 1
    return count


def read_standby(api: Api, environment: str = ENVIRONMENT) -> Any:
    return api.get(environment).data["standby"]


def old(**changes: Any) -> None:
    Standby.objects.update(looked_at=now() - standby.VALID_FOR - timedelta(seconds=1), **changes)


@pytest.mark.database
def test_a_preview_starts_one_standby_process_and_reports_its_memory(owner: Api, colleague: Api, lab: Lab) -> None:
    request_body = changed(distributedConfig={"enabled": True, "nodeIds": ["env-001"], "masterNode": "env-001"})
    assert colleague.post("/training-tasks/preview", request_body).status == 200
    assert (carry_out(), read_standby(colleague)["state"]) == (0, "off")
    assert owner.patch(ENVIRONMENT, {"warm": True}).data["warm"] is True
    assert read_standby(colleague)["state"] == "importing"
    assert carry_out() == 1
    found = read_standby(colleague)
    assert (found["isWanted"], found["state"], found["reason"]) == (True, "standing", None)
    assert found["memoryBytes"] > 50 << 20
    assert found["until"]
    first = lab.count_standby()
    for _ in range(3):
        colleague.post("/training-tasks/preview", request_body)
    assert carry_out() == 0, "what is known is not asked again"

    assert first
    os.kill(first, signal.SIGKILL)
    old(until=now())
    assert read_standby(colleague)["state"] == "idle"
    colleague.post("/training-tasks/preview", request_body)
    assert carry_out() == 1, "a preview brings it back"
    second = lab.count_standby()
    assert second not in (None, first)

    owner.patch(ENVIRONMENT, {"warm": False})
    assert carry_out() == 1
    until(lambda: processes.read_start_time(second or 0) is None, what="its memory is given back")
    assert read_standby(colleague) == {
        "isWanted": False,
        "state": "off",
        "memoryBytes": None,
        "until": None,
        "reason": None,
    }
    colleague.post("/training-tasks/preview", request_body)
    assert carry_out() == 0
    said = AuditEvent.objects.filter(action="environment.change").order_by("pk").values_list("data", flat=True)
    assert [one.get("warm") for one in said] == [True, False]


@pytest.mark.database
def test_warm_defaults_to_the_projects_setting(owner: Api, colleague: Api, project: Project, lab: Lab) -> None:
    assert owner.patch("/dev-environments/env-002", {"warm": False}).status == 200
    answer = owner.put(PROJECT_WARM.format(project.pk), {"warm": True})
    assert (answer.status, answer.data["warm"]) == (200, True)
    assert owner.get(f"/projects/{project.pk}").data["warm"]
    states = {one["id"]: one["standby"]["isWanted"] for one in colleague.get("/dev-environments").data["items"]}
    assert (states["env-001"], states["env-002"]) == (True, False)
    assert Standby.objects.filter(pk="env-002").count() == 0
    assert AuditEvent.objects.filter(action="project.warm", project=project).count() == 1
    asked = Standby.objects.exclude(due_at=None).count()
    assert asked >= 1
    assert owner.put(PROJECT_WARM.format(project.pk), {"warm": True}).status == 200
    assert AuditEvent.objects.filter(action="project.warm").count() == 1


@pytest.mark.parametrize("who", ["viewer", "colleague", "stranger"])
def test_users_who_cannot_change_an_environment_cannot_switch_warm(
    who: str, request: Any, project: Project, lab: Lab
) -> None:
    api: Api = request.getfixturevalue(who)
    refused = 404 if who == "stranger" else 403
    assert api.patch(ENVIRONMENT, {"warm": True}).status == refused
    assert api.put(PROJECT_WARM.format(project.pk), {"warm": True}).status == refused
    assert not Standby.objects.exists()


def test_a_maintainer_of_another_project_cannot_switch_warm(stranger: Api, project: Project, lab: Lab) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)  # tasks of any project may run there
    assert stranger.get(ENVIRONMENT).status == 200
    assert stranger.patch(ENVIRONMENT, {"warm": True}).status == 404, "it is shared for training, not for changing"
    assert stranger.put(PROJECT_WARM.format(project.pk), {"warm": True}).status == 404
    assert not Standby.objects.exists()


def test_the_owner_of_an_environment_can_switch_warm(colleague: Api, lab: Lab) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(owner=User.objects.get(username="colleague"))
    assert colleague.patch(ENVIRONMENT, {"warm": True}).data["standby"]["isWanted"]
    assert colleague.patch(ENVIRONMENT, {"warm": None, "cordoned": True}).status == 403


def test_the_reason_why_it_is_not_warm_is_shown(owner: Api, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("env-001", "env-002"):
        owner.patch(f"/dev-environments/{key}", {"warm": True})
    found = inside.StandbyStatus("failed", error={"code": "STANDBY_WITHOUT_TORCH", "python": "/usr/bin/python3"})
    monkeypatch.setattr(inside, "request_standby", lambda session, modules, seconds: found)
    assert carry_out() == 2
    first, second = (read_standby(owner, f"/dev-environments/{key}") for key in ("env-001", "env-002"))
    assert (first["state"], first["reason"]["code"]) == ("failed", "STANDBY_WITHOUT_TORCH")
    assert "/usr/bin/python3 没有安装 PyTorch" in first["reason"]["message"]
    assert (second["state"], second["reason"]["code"]) == ("failed", "INSIDE_NO_PYTHON")


@pytest.mark.database
def test_a_standby_process_is_started_again_after_a_task(lab: Lab, colleague: Api) -> None:
    config = {"enabled": True, "nodeIds": ["env-001"], "masterNode": "env-001"}
    made = colleague.post("/training-tasks", changed(distributedConfig=config))
    assert made.status == 201, made.body
    task = Task.objects.get(pk=made.data["taskId"])
    assert task.inside
    assert not Standby.objects.exists()
    DevEnvironment.objects.filter(pk="env-001").update(warm=True)
    Lease.objects.create(environment_id="env-001", holder=task.pk)
    assert release.release_environments(task) == 1
    assert Standby.objects.get(pk="env-001").due_at


@pytest.mark.database
def test_a_restarted_container_has_no_standby_process(owner: Api, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        inside, "request_standby", lambda session, modules, seconds: inside.StandbyStatus("standing", 412 << 20)
    )
    owner.patch(ENVIRONMENT, {"warm": True})
    carry_out()
    assert read_standby(owner)["memoryBytes"] == 412 << 20
    DevEnvironment.objects.filter(pk="env-001").update(engine={"inside": {"life": "another"}})
    assert read_standby(owner)["state"] == "idle"


def test_the_local_machine_reports_its_own_standby_process(owner: Api, settings: Any) -> None:
    owner.patch(ENVIRONMENT, {"warm": True})
    settings.STAND_BY = True
    assert read_standby(owner) == {
        "isWanted": True, "state": "engine", "memoryBytes": None, "until": None, "reason": None,
    }  # fmt: skip
    settings.STAND_BY = False
    assert read_standby(owner)["reason"]["code"] == "STANDBY_SWITCHED_OFF"
    assert not Standby.objects.exists()


def test_engines_report_where_a_standby_process_runs() -> None:
    assert {name: plugins.get_check(name).standby("") for name in plugins.BACKENDS} == {
        "local": "engine", "kubernetes": "environment", "slurm": "", "agent": "engine",
    }  # fmt: skip
    assert plugins.get_check("agent").standby("training:1") == "environment"


def test_a_removed_environment_loses_its_standby_record(owner: Api, lab: Lab) -> None:
    owner.patch(ENVIRONMENT, {"warm": True})
    long_ago = now() - discovery.KEEP_GONE_FOR - timedelta(days=1)
    DevEnvironment.objects.filter(pk="env-001").update(gone_at=long_ago, status=EnvironmentStatus.STOPPED)
    assert discovery.delete_gone_environments() == 1
    assert not Standby.objects.exists()


@pytest.mark.parametrize("said", [{}, {"state": "warm"}, {"state": 3}])
def test_malformed_standby_answers_are_ignored(said: dict[str, Any]) -> None:
    with pytest.raises(InsideError):
        inside.parse_standby(said)


def test_numbers_and_codes_from_an_environment_are_bounded() -> None:
    assert inside.parse_standby({"state": "standing", "memory": True}).memory is None
    assert inside.parse_standby({"state": "standing", "memory": 1 << 60}).memory is None
    error = inside.parse_standby({"state": "unusable", "code": "ROOT", "params": {"why": "x" * 9000}}).error
    assert error == {"code": "STANDBY_FAILED", "why": "x" * 300}

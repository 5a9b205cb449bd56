"""Environments that the platform makes: templates, lives, limits, costs."""

from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.models import AuditEvent, Project
from apps.clusters import leases
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.clock import now
from apps.environments import reconcile, services
from apps.environments.models import Gpu, Hosted, Run, Template
from apps.environments.services import CreateRequest
from apps.environments.states.reasons import EnvironmentReason
from apps.notices.models import Incident
from apps.scheduling.models import Limits, Price, UserLimits
from fermi.engines.environments import Activity, EnvironmentPhase, Kernel
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause
from fermi.planning import plugins
from tests.api.conftest import Api
from tests.fakes.environments import Machine

pytestmark = pytest.mark.database
MADE = {"name": "lab", "projectId": "project-one", "templateId": "template-jupyter"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return use(Machine(), monkeypatch)


def use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(plugins, "get_environment_backend", lambda backend, connection: machine)
    monkeypatch.setattr(plugins, "can_make_environments", lambda backend: True)
    return machine


@pytest.fixture
def template(machine: Machine, cluster: Cluster) -> Template:
    AvailabilityZone.objects.create(pk="zone-a", name="a")
    return Template.objects.create(
        pk="template-jupyter", name="JupyterLab", cpu_cores=2, memory_gb=4, ports=[{"name": "board", "port": 6006}]
    )


@pytest.fixture
def made(template: Template, colleague: Api) -> str:
    """An environment of the colleague's that runs."""
    key = colleague.post("/dev-environments/make", MADE).data["id"]
    settle()
    return str(key)


def settle(passes: int = 8) -> None:
    """What the sweep does, without its waits."""
    for _ in range(passes):
        Hosted.objects.exclude(due_at=None).update(due_at=now(), claimed_at=None)
        if not reconcile.reconcile_due():
            return


def hosted(api: Api, key: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/dev-environments/{key}").data["hosted"]
    return found


def test_a_member_creates_opens_stops_and_starts_an_environment(
    template: Template, machine: Machine, colleague: Api
) -> None:
    answer = colleague.post("/dev-environments/make", MADE)
    assert answer.status == 201
    assert answer.data["status"] == "creating"
    assert not answer.data["selectable"]
    key = answer.data["id"]
    settle()
    found = colleague.get(f"/dev-environments/{key}").data
    assert (found["status"], found["selectable"], found["cpuCores"]) == ("running", True, 2)
    assert found["hosted"]["doors"] == [{"name": "jupyter", "port": None}, {"name": "board", "port": 6006}]
    assert "stop" in found["hosted"]["allowedActions"]
    assert colleague.post(f"/dev-environments/{key}/stop").data["status"] == "stopping"
    settle()
    found = colleague.get(f"/dev-environments/{key}").data
    assert (found["status"], found["hosted"]["reason"]["code"]) == ("stopped", "ENVIRONMENT_STOPPED")
    assert key in machine.disks, "what is stopped keeps its disk"
    colleague.post(f"/dev-environments/{key}/start")
    settle()
    assert hosted(colleague, key)["run"] == 2
    assert list(machine.runs) == [f"{key}-1", f"{key}-2"]
    life = colleague.get(f"/dev-environments/{key}/life").data
    assert [one["code"] for one in life["events"]][:3] == [
        "ENVIRONMENT_MADE", "ENVIRONMENT_IS_STARTING", "ENVIRONMENT_IS_RUNNING",
    ]  # fmt: skip
    assert [run["outcome"] and run["outcome"]["code"] for run in life["runs"]] == ["ENVIRONMENT_STOPPED", None]
    assert AuditEvent.objects.filter(action="environment.stop", target=key).exists()


def test_a_deleted_environment_goes_once_its_run_has_ended_and_its_cost_stays(
    made: str, machine: Machine, colleague: Api
) -> None:
    machine.lazily = True
    assert colleague.delete(f"/dev-environments/{made}").data["hosted"]["wanted"] == "deleted"
    settle()
    assert hosted(colleague, made)["state"] == "stopping", "the engine has not confirmed that its processes are gone"
    machine.end_run(made)
    settle()
    assert colleague.get(f"/dev-environments/{made}").status == 404
    assert not machine.disks
    assert Run.objects.get(environment=made).outcome == EnvironmentReason.DELETED
    assert colleague.post("/dev-environments/make", MADE).status == 201, "its name is free again"


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "clone", "keep", "resize"])
def test_viewers_read_and_strangers_see_no_managed_environments(
    made: str, viewer: Api, stranger: Api, verb: str
) -> None:
    body = {"clone": {"name": "x"}, "keep": {"hours": 2}, "resize": {"memoryGb": 8}}.get(verb)
    assert viewer.post(f"/dev-environments/{made}/{verb}", body).status == 403
    assert stranger.post(f"/dev-environments/{made}/{verb}", body).status == 404
    assert hosted(viewer, made)["allowedActions"] == []


def test_viewers_cannot_delete_and_strangers_see_no_logs(
    made: str, viewer: Api, stranger: Api, owner: Api, anonymous: Api
) -> None:
    assert viewer.delete(f"/dev-environments/{made}").status == 403
    for path in ("", "/logs", "/life"):
        assert stranger.get(f"/dev-environments/{made}{path}").status == 404
        assert anonymous.get(f"/dev-environments/{made}{path}").status == 401
        assert viewer.get(f"/dev-environments/{made}{path}").status == 200
    assert owner.delete(f"/dev-environments/{made}").status == 200
    assert stranger.post("/dev-environments/make", {**MADE, "name": "y"}).problems == {"projectId": "PROJECT_UNKNOWN"}
    assert viewer.post("/dev-environments/make", {**MADE, "name": "y"}).status == 403


def test_an_environment_held_by_a_task_cannot_be_stopped(made: str, colleague: Api) -> None:
    assert leases.acquire_leases([made], "task-x") is None
    for verb in ("stop", "restart", "resize"):
        answer = colleague.post(f"/dev-environments/{made}/{verb}", {"memoryGb": 9} if verb == "resize" else None)
        assert (answer.status, answer.error) == (409, "ENVIRONMENT_HELD")
        assert "task-x" in answer.body["message"]
    assert colleague.delete(f"/dev-environments/{made}").error == "ENVIRONMENT_HELD"
    leases.release_leases("task-x")
    assert colleague.post(f"/dev-environments/{made}/stop").status == 200
    assert leases.acquire_leases([made], "task-y") == [(made, "")], "one that is going takes no task"


def test_creation_reports_all_problems(template: Template, colleague: Api) -> None:
    asked = {**MADE, "zone": "nowhere", "env": {"RANK": "1"}, "secretEnv": {"KEY": "none"}, "packages": ["-r x"],
             "ports": [{"name": "jupyter", "port": 1}, {"name": "a", "port": 1}]}  # fmt: skip
    assert colleague.post("/dev-environments/make", asked).problems == {
        "zone": "ZONE_UNKNOWN", "env.RANK": "ENV_RESERVED", "secretEnv.KEY": "SECRET_UNKNOWN",
        "packages.0": "PACKAGE_INVALID", "ports.0.name": "PORT_NAME_TWICE", "ports.1.port": "PORT_TWICE",
    }  # fmt: skip
    answer = colleague.post("/dev-environments/make", {**MADE, "image": "missing"})
    assert answer.problems == {"image": "FIELD_INVALID"}, "what its engine says, too"
    assert not Hosted.objects.exists()


def test_a_preview_reports_problems_of_several_environments_together(template: Template, owner: Api) -> None:
    Limits.objects.create(project_id="project-one", max_environments=1, updated_at=now())
    assert owner.user
    asked = [CreateRequest("template-jupyter", "project-one", name) for name in ("a", "a")]
    one, two = services.validate_environments(owner.user, asked)
    assert not one.problems
    assert [problem.code for problem in two.problems] == ["ENVIRONMENT_NAME_TAKEN", "LIMIT_ENVIRONMENTS"]


def test_one_idempotency_key_creates_one_environment(template: Template, colleague: Api) -> None:
    first = colleague.post("/dev-environments/make", MADE, Idempotency_Key="k")
    again = colleague.post("/dev-environments/make", MADE, Idempotency_Key="k")
    assert first.data["id"] == again.data["id"]
    other = colleague.post("/dev-environments/make", {**MADE, "name": "other"}, Idempotency_Key="k")
    assert other.error == "IDEMPOTENCY_CONFLICT"
    assert first.data["id"] in other.body["message"]
    assert colleague.post("/dev-environments/make", MADE).problems == {"name": "ENVIRONMENT_NAME_TAKEN"}


def test_each_gpu_belongs_to_one_environment_and_its_holder_is_named(
    template: Template, colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Machine(gpus=4), monkeypatch)
    one = colleague.post("/dev-environments/make", {**MADE, "name": "one", "gpuCount": 3, "gpuType": "A100"}).data
    answer = colleague.post("/dev-environments/make", {**MADE, "name": "two", "gpuCount": 2})
    assert answer.problems == {"gpuCount": "ENVIRONMENT_GPUS_TAKEN"}
    assert "one" in answer.body["message"]
    settle()
    assert DevEnvironment.objects.get(pk=one["id"]).engine == {"gpus": [0, 1, 2]}
    emulated = {**MADE, "name": "three", "gpuCount": 8, "emulated": True}
    assert colleague.post("/dev-environments/make", emulated).status == 201
    colleague.post(f"/dev-environments/{one['id']}/stop")
    settle()
    assert not Gpu.objects.exists()
    two = colleague.post("/dev-environments/make", {**MADE, "name": "two", "gpuCount": 2}).data["id"]
    assert sorted(Gpu.objects.filter(hosted=two).values_list("number", flat=True)) == [0, 1]
    assert colleague.post(f"/dev-environments/{one['id']}/start").problems == {"gpuCount": "ENVIRONMENT_GPUS_TAKEN"}


def test_a_limit_error_names_limit_usage_and_who_may_raise_it(
    made: str, colleague: Api, owner: Api, admin: Api, project: Project
) -> None:
    limits = {"maxEnvironments": 5, "userMaxEnvironments": 1, "maxEnvironmentGpus": 2, "userMaxEnvironmentGpus": 2}
    found = admin.put("/projects/project-one/limits", limits).data
    assert {name: found[name] for name in limits} == limits
    assert found["use"]["environments"] == 1
    answer = colleague.post("/dev-environments/make", {**MADE, "name": "more"})
    assert answer.problems == {"": "LIMIT_USER_ENVIRONMENTS"}
    assert owner.post("/dev-environments/make", {**MADE, "name": "more", "gpuCount": 3}).problems == {
        "gpuCount": "LIMIT_USER_ENVIRONMENT_GPUS"
    }
    own = {"maxEnvironments": 2, "maxEnvironmentGpus": 1}
    assert owner.put("/projects/project-one/limits/users/colleague", own).data["use"]["environments"] == 1
    assert colleague.post("/dev-environments/make", {**MADE, "name": "more", "gpuCount": 1}).status == 201
    assert UserLimits.objects.get().max_environments == 2


def test_new_sizes_apply_at_the_next_start(made: str, machine: Machine, colleague: Api) -> None:
    answer = colleague.post(f"/dev-environments/{made}/resize", {"memoryGb": 16, "diskGb": 50}).data
    assert (answer["memoryGb"], answer["hosted"]["diskGb"]) == (4, 50)
    colleague.post(f"/dev-environments/{made}/restart")
    settle()
    found = colleague.get(f"/dev-environments/{made}").data
    assert (found["status"], found["memoryGb"], found["hosted"]["run"]) == ("running", 16, 2)
    events = [one["code"] for one in colleague.get(f"/dev-environments/{made}/life").data["events"]]
    assert "ENVIRONMENT_RESIZED" in events
    assert "ENVIRONMENT_RESTART_ASKED" in events


def test_a_clone_has_the_same_settings_and_its_own_disk(made: str, machine: Machine, colleague: Api) -> None:
    colleague.post(f"/dev-environments/{made}/resize", {"memoryGb": 16})
    answer = colleague.post(f"/dev-environments/{made}/clone", {"name": "twin"})
    assert (answer.status, answer.data["memoryGb"]) == (201, 16)
    settle()
    assert machine.disks == {made, answer.data["id"]}


def test_an_idle_environment_is_warned_and_then_stopped_with_the_reason(
    made: str, machine: Machine, colleague: Api
) -> None:
    Hosted.objects.filter(pk=made).update(idle_stop_minutes=60, active_at=now() - timedelta(minutes=55))
    settle(1)
    told = Incident.objects.get(kind="environment_idle")
    assert (told.owner, told.key) == (colleague.user, made)
    kept = colleague.post(f"/dev-environments/{made}/keep", {"hours": 2}).data["hosted"]
    assert kept["stopsAt"] == kept["keepUntil"]
    assert Incident.objects.get(kind="environment_idle").over_at
    an_hour = now() - timedelta(hours=3)
    Hosted.objects.filter(pk=made).update(keep_until=None, active_at=an_hour, warned_at=an_hour + timedelta(minutes=50))
    machine.newest(made).activity = Activity(kernels=(Kernel("k", "a.ipynb", busy=True),))
    settle(1)
    assert hosted(colleague, made)["state"] == "running", "a kernel is at work"
    machine.newest(made).activity = Activity(connections=1)
    Hosted.objects.filter(pk=made).update(active_at=an_hour)
    settle(1)
    assert hosted(colleague, made)["state"] == "running", "somebody is connected"
    machine.newest(made).activity = Activity()
    assert leases.acquire_leases([made], "task-x") is None
    Hosted.objects.filter(pk=made).update(active_at=an_hour)
    settle(1)
    assert hosted(colleague, made)["state"] == "running", "a task trains there"
    leases.release_leases("task-x")
    Hosted.objects.filter(pk=made).update(active_at=an_hour, task="task-y", afterwards="keep")
    settle(1)
    found = hosted(colleague, made)
    assert (found["state"], found["stopsAt"]) == ("running", None), "it was made for a task that has not ended"
    services.finish_for_task("task-y")
    Hosted.objects.filter(pk=made).update(active_at=an_hour, warned_at=an_hour + timedelta(minutes=50))
    settle()
    found = hosted(colleague, made)
    assert (found["state"], found["reason"]["code"]) == ("stopped", "ENVIRONMENT_IDLE")
    assert "60" in found["reason"]["message"]
    assert made in machine.disks


def test_cost_follows_the_price_of_each_hour(template: Template, colleague: Api, machine: Machine) -> None:
    key = colleague.post("/dev-environments/make", {**MADE, "gpuCount": 2, "gpuType": "A100"}).data["id"]
    settle()
    moment = now()
    Price.objects.create(gpu_type="A100", per_gpu_hour=1, since=moment - timedelta(days=9))
    Price.objects.create(gpu_type="A100", per_gpu_hour=3, since=moment - timedelta(hours=1))
    Run.objects.update(running_at=moment - timedelta(hours=3), ended_at=moment)
    [item] = colleague.get("/dev-environments").data["items"]
    assert item["hosted"]["cost"] == {"gpuHours": 6.0, "amount": 2 * 2 * 1 + 2 * 3, "currency": "CNY"}
    [run] = colleague.get(f"/dev-environments/{key}/life").data["runs"]
    assert (run["gpuHours"], run["amount"]) == (6.0, 10.0)


def test_an_environment_that_ends_by_itself_is_restarted_a_few_times_and_then_failed(
    made: str, machine: Machine, colleague: Api
) -> None:
    for number in range(4):
        machine.end_run(made, Cause(EnvironmentReason.LOST))
        settle(2)
        Run.objects.update(ended_at=now() - timedelta(minutes=5))
        settle()
        assert Hosted.objects.get().run == min(number + 2, 4)
    found = hosted(colleague, made)
    assert (found["state"], found["wanted"], found["reason"]["code"]) == ("failed", "stopped", "ENVIRONMENT_LOST")
    colleague.post(f"/dev-environments/{made}/start")
    settle()
    assert hosted(colleague, made)["state"] == "running"


def test_an_unreachable_engine_changes_no_state(made: str, machine: Machine, colleague: Api) -> None:
    machine.away = BackendError("ENGINE_UNREACHABLE", why="no route")
    settle(2)
    found = hosted(colleague, made)
    assert (found["state"], found["reason"]["code"]) == ("running", "ENGINE_UNREACHABLE")
    assert Cluster.objects.get().away_since
    machine.away = None
    settle(2)
    assert hosted(colleague, made)["reason"] is None


def test_a_permanent_rejection_by_the_engine_fails_the_environment_at_once(
    template: Template, machine: Machine, colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise BackendError("ENGINE_FORBIDDEN", permanent=True, why="no")

    monkeypatch.setattr(machine, "start", refused)
    key = colleague.post("/dev-environments/make", MADE).data["id"]
    machine.forbidden.add(f"{key}-1")
    settle()
    found = hosted(colleague, key)
    assert (found["state"], found["reason"]["code"]) == ("failed", "ENGINE_FORBIDDEN")


def test_one_bad_row_does_not_stop_the_others(
    made: str, machine: Machine, colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = colleague.post("/dev-environments/make", {**MADE, "name": "other"}).data["id"]
    Hosted.objects.filter(pk=made).update(state="stopped", wanted="running", spec={"nonsense": 1})
    settle()
    assert hosted(colleague, other)["state"] == "running"


@pytest.mark.parametrize(
    ("afterwards", "becomes"),
    [("delete", None), ("stop", "stopped"), ("keep", "running")],
    ids=["delete", "stop", "keep"],
)
def test_an_environment_made_for_a_task_is_kept_or_deleted_as_requested(
    template: Template, colleague: Api, machine: Machine, afterwards: str, becomes: str | None
) -> None:
    assert colleague.user
    asked = CreateRequest("template-jupyter", "project-one", "for-a-task")
    made = services.create_environment(colleague.user, asked, task="task-x", afterwards=afterwards)
    settle()
    assert leases.acquire_leases([made.pk], "task-other") is None
    assert services.finish_for_task("task-x") == (0 if afterwards == "keep" else 1), "another task holds it"
    leases.release_leases("task-other")
    assert services.finish_for_task("task-x") == 0
    assert services.finish_for_task("task-x") == 0
    settle()
    found = Hosted.objects.filter(pk=made.pk).first()
    assert (found and found.state) == becomes


def test_its_fields_follow_its_host(made: str, machine: Machine, colleague: Api) -> None:
    machine.newest(made).facts = {
        "host": "node-7",
        "ip": "10.0.0.7",
        "versions": {"python": "3.11"},
        "engine": {"pod": "p"},
    }
    settle(1)
    found = colleague.get(f"/dev-environments/{made}").data
    assert (found["host"], found["ip"], found["versions"]) == ("node-7", "10.0.0.7", {"python": "3.11"})
    assert DevEnvironment.objects.get().engine["pod"] == "p"


def test_fields_that_its_run_sets_cannot_be_edited(made: str, owner: Api) -> None:
    assert owner.patch(f"/dev-environments/{made}", {"status": "stopped"}).error == "ENVIRONMENT_FOLLOWS_ITS_LIFE"
    assert owner.patch(f"/dev-environments/{made}", {"cordoned": True}).data["cordoned"]


def test_a_registered_environment_cannot_be_started_or_stopped(
    environments: dict[str, Any], owner: Api, machine: Machine
) -> None:
    assert owner.get("/dev-environments/env-001").data["hosted"] is None
    assert owner.post("/dev-environments/env-001/stop").error == "ENVIRONMENT_NOT_OURS"
    assert owner.delete("/dev-environments/env-001").data is None


def test_its_log_is_paged_by_bytes_without_splitting_characters(made: str, colleague: Api) -> None:
    page = colleague.get(f"/dev-environments/{made}/logs", limit=8).data
    assert page == {"text": "hello ", "cursor": 6, "end": False}
    assert colleague.get(f"/dev-environments/{made}/logs", cursor=6).data["text"] == "你好\n"


def test_templates_belong_to_administrators_or_to_a_project(
    template: Template, admin: Api, colleague: Api, viewer: Api, stranger: Api
) -> None:
    body = {"name": "mine", "kind": "custom", "startScript": "sleep 9"}
    assert colleague.post("/environment-templates", body).status == 403
    assert viewer.post("/environment-templates", {**body, "projectId": "project-one"}).status == 403
    assert stranger.post("/environment-templates", {**body, "projectId": "project-one"}).status == 400
    mine = colleague.post("/environment-templates", {**body, "projectId": "project-one"}).data
    assert colleague.post("/environment-templates", {**body, "projectId": "project-one"}).status == 409
    assert admin.post("/environment-templates", body).data["projectId"] is None
    path = f"/environment-templates/{mine['id']}"
    assert stranger.get(path).status == 404
    assert viewer.patch(path, {"memoryGb": 2}).status == 403
    assert colleague.patch(path, {"env": {"RANK": "1"}}).problems == {"env.RANK": "ENV_RESERVED"}
    assert colleague.patch(path, {"memoryGb": 8, "zone": "a"}).data["zone"]["name"] == "a"
    assert colleague.patch(path, {"env": {"KEY": "mine"}}).data["env"] == {"KEY": "mine"}
    assert viewer.get(path).data["env"] == {}, "values are for those who may use them"
    assert set(stranger.get("/environment-templates").ids) & {mine["id"], "template-jupyter"} == {"template-jupyter"}
    assert stranger.delete(path).status == 404
    assert colleague.delete("/environment-templates/template-jupyter").status == 403
    assert colleague.delete(path).status == 200


def test_secrets_are_passed_to_the_engine_and_stored_nowhere_else(
    template: Template, machine: Machine, owner: Api
) -> None:
    owner.put("/projects/project-one/secrets/key", {"value": "hush"})
    key = owner.post("/dev-environments/make", {**MADE, "secretEnv": {"TOKEN": "key"}}).data["id"]
    settle()
    assert machine.secrets[f"{key}-1"] == {"TOKEN": "hush"}
    assert "hush" not in str([*Run.objects.values(), *Hosted.objects.values()])


def test_list_queries_do_not_grow_with_managed_environments(
    made: str, colleague: Api, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        colleague.post("/dev-environments/make", {**MADE, "name": f"n{number}"})
    settle()
    with django_assert_max_num_queries(16):
        assert len(colleague.get("/dev-environments").data["items"]) == 6


def zones_of(key: str) -> tuple[str, str]:
    """What its engine is to keep it to, and where it is shown."""
    row = Hosted.objects.select_related("environment__zone").get(pk=key)
    return row.spec["zone"], row.environment.zone.name


@pytest.mark.parametrize("borne", [None, set(), {"a", "b"}])
def test_an_environment_without_a_requested_zone_is_not_pinned_to_one(
    template: Template, machine: Machine, colleague: Api, borne: set[str] | None
) -> None:
    machine.known_zones = borne
    key = colleague.post("/dev-environments/make", MADE).data["id"]
    assert zones_of(key)[0] == ""
    settle()
    machine.newest(key).facts = {"zone": "b"}
    settle()
    assert zones_of(key) == ("", "b"), "it is shown where it is"
    assert Run.objects.get(environment=key).zone == AvailabilityZone.objects.get(name="b").pk


def test_an_environment_is_pinned_to_a_requested_zone_that_its_machines_have(
    template: Template, machine: Machine, colleague: Api, cluster: Cluster
) -> None:
    def made(name: str, **more: str) -> str:
        return str(colleague.post("/dev-environments/make", {**MADE, "name": name, **more}).data["id"])

    own = AvailabilityZone.objects.get_or_create(name=cluster.name)[0]
    machine.known_zones = {"a", "b"}
    assert zones_of(made("one", zone="a"))[0] == "a"
    assert zones_of(made("two", zone=own.pk))[0] == "", "the platform's own name for machines without a zone"
    AvailabilityZone.objects.create(name="c")
    refused = colleague.post("/dev-environments/make", {**MADE, "zone": "c"})
    (error,) = refused.body["errors"]
    assert (refused.status, error["error"], error["field"]) == (400, "ZONE_NOT_IN_CLUSTER", "zone")
    assert "a, b" in error["message"]
    machine.known_zones = set()
    assert zones_of(made("three", zone="c"))[0] == "", "no machine bears a zone"
    machine.known_zones = None
    assert zones_of(made("four", zone="c"))[0] == "c", "the engine cannot tell"


def test_an_environment_is_pinned_to_the_zones_of_its_project(
    template: Template, machine: Machine, colleague: Api, cluster: Cluster
) -> None:
    zone = AvailabilityZone.objects.get_or_create(name=cluster.name)[0]
    Limits.objects.create(project_id="project-one", zones=[zone.pk], updated_at=now())
    machine.known_zones = {cluster.name}
    key = colleague.post("/dev-environments/make", MADE).data["id"]
    assert zones_of(key) == (cluster.name, cluster.name)


def test_a_disk_size_that_the_engine_cannot_change_is_refused(made: str, machine: Machine, colleague: Api) -> None:
    machine.fixed_disks = True
    refused = colleague.post(f"/dev-environments/{made}/resize", {"diskGb": 9})
    assert (refused.status, refused.body["errors"][0]["field"]) == (400, "diskGb")
    assert Hosted.objects.get(pk=made).spec["disk_gb"] == 0
    assert colleague.post(f"/dev-environments/{made}/resize", {"memoryGb": 8}).status == 200, "its disk stays as it is"


def test_an_environment_whose_pod_is_replaced_is_starting(made: str, machine: Machine, colleague: Api) -> None:
    waits = Cause("ENGINE_UNREACHABLE", {"why": "its pod is being replaced"})
    machine.newest(made).phase, machine.newest(made).waiting = EnvironmentPhase.STARTING, waits
    settle()
    found = colleague.get(f"/dev-environments/{made}").data
    assert (found["status"], found["selectable"]) == ("starting", False)
    assert found["hosted"]["reason"]["code"] == "ENGINE_UNREACHABLE"
    machine.newest(made).waiting = None
    machine.come_up(made)
    settle()
    found = colleague.get(f"/dev-environments/{made}").data
    assert (found["status"], found["hosted"]["run"]) == ("running", 1)


def test_an_environment_whose_daemon_misses_one_answer_still_runs(made: str, machine: Machine, colleague: Api) -> None:
    machine.newest(made).phase = EnvironmentPhase.STARTING
    settle()
    assert hosted(colleague, made)["state"] == "running"

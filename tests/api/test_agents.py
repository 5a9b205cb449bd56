"""An agent's token spends what its purse allows; what goes beyond waits for a person."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project
from apps.agents import enforcement
from apps.agents.models import Proposal, Purse
from apps.agents.policy import REFUSED_RESOURCES, RULES, Rule, find_rule
from apps.agents.request_masks import MASKED_FIELDS, OPEN_FIELDS, SHOWN_FIELDS
from apps.agents.services import proposals
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import MAX_ROWS
from apps.notices.models import Incident
from apps.scheduling.models import Reservation, Usage
from apps.training.models import Event, Task
from apps.training.states import TaskState
from fermi.jobs.credentials import MASK
from tests.api.conftest import Answer, Api
from tests.api.test_mlflow_runs import Mlflow
from tests.api.test_service_accounts import make_account
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

PROJECT = "project-one"
HALF_HOUR = changed(distributedConfig=None, environmentIds=["env-001"], maxRunSeconds=1800)  # of 2 GPUs: one GPU-hour


def make_agent(person: Api, **purse: Any) -> tuple[Api, str]:
    made = person.post("/agent-tokens", {"name": "helper", "agent": "coder", "projectIds": [PROJECT], **purse})
    assert made.status == 201, made.body
    return Api(token=made.data["token"]), made.data["id"]


def propose(person: Api, **purse: Any) -> tuple[Api, str]:
    agent, _ = make_agent(person, **{"gpuHours": 0.5, **purse})
    assert agent.post("/training-tasks", HALF_HOUR).error == "PURSE_EXCEEDED"
    return agent, Proposal.objects.get().pk


def test_an_agent_trains_within_its_purse_and_a_person_approves_what_goes_beyond(colleague: Api) -> None:
    agent, key = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    shown = agent.get(f"/agent-tokens/{key}").data
    assert (shown["left"]["gpuHours"], shown["reserved"]["gpuHours"], shown["unfinishedTasks"]) == (0.0, 1.0, 1)

    refused = agent.post("/training-tasks", {**HALF_HOUR, "taskName": "second"})
    assert (refused.status, refused.error) == (403, "PURSE_EXCEEDED")
    assert [one["error"] for one in refused.body["errors"]] == ["PURSE_EXCEEDED", "PURSE_GPU_HOURS"]
    assert Task.objects.count() == 1
    [proposal] = agent.get("/proposals").data["items"]
    assert proposal["id"] in refused.body["errors"][0]["message"]
    assert (proposal["plan"]["gpus"], proposal["plan"]["gpuHours"]) == (2, 1.0)
    assert proposal["difference"] == {
        "taskId": task, "changes": [{"field": "taskName", "before": HALF_HOUR["taskName"], "after": "second"}]
    }  # fmt: skip
    assert Incident.objects.get(kind="proposal").owner_id == colleague.user.pk  # type: ignore[union-attr]

    approved = colleague.post(f"/proposals/{proposal['id']}/approve").data
    assert (approved["state"], approved["status"], approved["decidedBy"]) == ("approved", 201, "colleague")
    made = Task.objects.get(pk=approved["result"]["data"]["taskId"])
    assert (made.owner.username, made.name) == ("colleague", "second")
    assert colleague.post(f"/proposals/{proposal['id']}/approve").data["result"] == approved["result"]
    assert Task.objects.count() == 2
    assert agent.get(f"/agent-tokens/{key}").data["unfinishedTasks"] == 1, "the person pays for what was approved"


def test_the_same_request_is_proposed_once(colleague: Api) -> None:
    agent, key = propose(colleague)
    assert agent.post("/training-tasks", HALF_HOUR).error == "PURSE_EXCEEDED"
    assert [one.pk for one in Proposal.objects.all()] == [key]


def test_the_open_proposals_of_a_token_are_bounded(colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _ = propose(colleague)
    monkeypatch.setitem(MAX_ROWS, "proposals", 1)
    refused = agent.post("/training-tasks", {**HALF_HOUR, "taskName": "second"})
    assert (refused.status, refused.error) == (403, "PROPOSALS_FULL")


@pytest.mark.parametrize(
    ("purse", "request_", "code"),
    [
        ({"gpuHours": 9}, {**HALF_HOUR, "maxRunSeconds": None}, "PURSE_NEEDS_MAX_RUN"),
        ({"money": "5.00"}, HALF_HOUR, "PURSE_PRICE_UNKNOWN"),
        ({"preemptibleOnly": True}, HALF_HOUR, "PURSE_PREEMPTIBLE"),
        ({"maxRunning": 0}, HALF_HOUR, "PURSE_RUNNING"),
        ({"environments": ["env-003"]}, HALF_HOUR, "PURSE_ENVIRONMENTS"),
    ],
)
def test_each_limit_of_a_purse_is_named(colleague: Api, purse: Any, request_: Any, code: str) -> None:
    agent, _ = make_agent(colleague, **purse)
    body = {name: value for name, value in request_.items() if value is not None}
    assert [one["error"] for one in agent.post("/training-tasks", body).body["errors"]] == ["PURSE_EXCEEDED", code]
    assert not Task.objects.exists()


def test_a_task_that_ended_counts_with_what_it_used(colleague: Api) -> None:
    agent, key = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    moment = now()
    Task.objects.filter(pk=task).update(state=TaskState.SUCCEEDED)
    Usage.objects.create(
        task=task, task_name="t", kind="training", project_id=PROJECT, owner="colleague", environment_name="e",
        zone="z", gpus=2, since=moment - timedelta(seconds=900), until=moment, training=900,
    )  # fmt: skip
    shown = agent.get(f"/agent-tokens/{key}").data
    assert (shown["spent"]["gpuHours"], shown["left"]["gpuHours"]) == (0.5, 0.5)
    assert agent.post("/training-tasks", {**HALF_HOUR, "maxRunSeconds": 900}).status == 201


def test_a_spent_purse_pauses_its_tasks_once_and_a_person_may_resume_them(colleague: Api) -> None:
    agent, _ = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    assert enforcement.pause_spent_purses() == 0
    Purse.objects.update(gpu_hours=0)
    assert [enforcement.pause_spent_purses() for _ in range(2)] == [1, 0]
    assert Task.objects.get(pk=task).paused_at
    assert Event.objects.filter(task=task, code="PURSE_SPENT").exists()
    assert agent.post(f"/training-tasks/{task}/resume").error == "PURSE_EXCEEDED"
    assert colleague.post(f"/training-tasks/{task}/resume").status == 200
    assert enforcement.pause_spent_purses() == 0


def test_an_agent_may_stop_but_not_resume_what_it_did_not_create(colleague: Api) -> None:
    agent, _ = make_agent(colleague, gpuHours=1)
    task = colleague.post("/training-tasks", HALF_HOUR).data["taskId"]
    colleague.post(f"/training-tasks/{task}/pause")
    assert agent.post(f"/training-tasks/{task}/resume").error == "PURSE_EXCEEDED"
    proposal = Proposal.objects.get()
    assert (proposal.operation, proposal.project_id) == ("resumeTask", PROJECT)
    assert colleague.post(f"/proposals/{proposal.pk}/approve").data["status"] == 200
    assert Task.objects.get(pk=task).paused_at is None
    assert agent.post(f"/training-tasks/{task}/stop").status == 200


def test_an_agent_neither_decides_proposals_nor_widens_its_rights(colleague: Api) -> None:
    agent, key = propose(colleague)
    ApiToken.objects.filter(purse__isnull=False).update(scopes=["agents:write", "tokens:write", "tasks:write"])
    assert agent.post(f"/proposals/{key}/approve").error == "PURSE_REFUSED"
    assert agent.post("/tokens", {"name": "wide"}).error == "PURSE_REFUSED"
    assert agent.post("/agent-tokens", {"name": "wide", "projectIds": [PROJECT]}).error == "PURSE_REFUSED"
    assert agent.patch(f"/agent-tokens/{Purse.objects.get().pk}", {"gpuHours": 100}).error == "PURSE_REFUSED"
    assert Proposal.objects.get().state == "open"


def test_a_maintainer_decides_for_the_project_and_others_do_not(
    owner: Api, colleague: Api, viewer: Api, stranger: Api, anonymous: Api
) -> None:
    _, key = propose(colleague)
    for other, status in ((viewer, 404), (stranger, 404), (anonymous, 401)):
        assert other.post(f"/proposals/{key}/approve").status == status
        assert other.get(f"/proposals/{key}").status == status
        assert other.get(f"/agent-tokens/{Purse.objects.get().pk}").status == status
    declined = owner.post(f"/proposals/{key}/decline").data
    assert (declined["state"], declined["decidedBy"]) == ("declined", "owner")
    refused = colleague.post(f"/proposals/{key}/approve")
    assert (refused.status, refused.error) == (409, "PROPOSAL_DECIDED")
    assert not Task.objects.exists()


def test_an_approval_that_was_cut_off_creates_one_task_when_it_is_repeated(
    colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = propose(colleague)
    with monkeypatch.context() as patched:
        perform = proposals.execution.perform_request

        def crash(*args: Any) -> Any:
            perform(*args)
            raise SystemError

        patched.setattr(proposals.execution, "perform_request", crash)
        assert colleague.post(f"/proposals/{key}/approve").status == 500
    assert colleague.get(f"/proposals/{key}").data["status"] is None
    repeated = colleague.post(f"/proposals/{key}/approve").data
    assert repeated["result"]["data"]["taskId"] == Task.objects.get().pk


def test_a_cut_off_approval_of_anything_else_is_repeated_only_if_asked_for(colleague: Api) -> None:
    agent, _ = make_agent(colleague, scopes=["tasks:write"])
    task = colleague.post("/training-tasks", HALF_HOUR).data["taskId"]
    agent.post(f"/training-tasks/{task}/resume")
    key = Proposal.objects.get().pk
    Proposal.objects.update(state="approved")
    assert colleague.post(f"/proposals/{key}/approve").error == "PROPOSAL_CUT_OFF"
    assert colleague.post(f"/proposals/{key}/approve", {"again": True}).data["status"] == 200


def test_a_proposal_expires(colleague: Api) -> None:
    _, key = propose(colleague)
    Proposal.objects.update(expires_at=now() - timedelta(seconds=1))
    assert colleague.post(f"/proposals/{key}/approve").error == "PROPOSAL_DECIDED"
    assert proposals.expire_proposals() == 1
    assert colleague.get(f"/proposals/{key}").data["state"] == "expired"


def test_the_approved_request_has_the_rights_that_the_person_has_now(owner: Api, colleague: Api) -> None:
    _, key = propose(colleague)
    owner.patch(f"/projects/{PROJECT}/members/colleague", {"role": "viewer"})
    approved = owner.post(f"/proposals/{key}/approve").data
    assert (approved["status"], Task.objects.count()) == (403, 0)


def test_only_members_of_the_projects_make_agents_and_not_beyond_their_own_scopes(
    viewer: Api, stranger: Api, colleague: Api
) -> None:
    body = {"name": "x", "projectIds": [PROJECT]}
    assert viewer.post("/agent-tokens", body).status == 403
    assert stranger.post("/agent-tokens", body).status == 404
    assert colleague.post("/agent-tokens", {**body, "scopes": ["tokens:write"]}).status == 400
    _, narrow = ApiToken.objects.create(user=colleague.user, expiry=None, name="n", scopes=["agents:write"])
    refused = Api(token=narrow).post("/agent-tokens", {**body, "scopes": ["tasks:write"]})
    assert (refused.status, refused.error) == (403, "SCOPE_MISSING")


def reserve_elsewhere(agent: Api, other_project: Project) -> str:
    """Propose a reservation for the agent's project of an environment that its person has in another one."""
    DevEnvironment.objects.filter(pk="env-003").update(project=other_project, shared=True)
    begin = now() + timedelta(days=1)
    body = {
        "projectId": PROJECT,
        "environmentIds": ["env-003"],
        "beginsAt": begin.isoformat(),
        "endsAt": (begin + timedelta(hours=1)).isoformat(),
    }
    assert agent.post("/reservations", body).error == "PURSE_EXCEEDED"
    proposal = Proposal.objects.get()
    assert proposal.project_id == PROJECT
    return proposal.pk


@pytest.mark.parametrize(("approver", "status"), [("owner", 403), ("colleague", 201)])
def test_what_a_maintainer_approves_reaches_no_other_project_of_the_person(
    owner: Api, colleague: Api, other_project: Project, approver: str, status: int
) -> None:
    assert colleague.user
    Membership.objects.create(project=other_project, user=colleague.user, role="maintainer")
    agent, _ = make_agent(colleague, scopes=["reservations:write"])
    key = reserve_elsewhere(agent, other_project)
    who = {"owner": owner, "colleague": colleague}[approver]
    assert who.post(f"/proposals/{key}/approve").data["status"] == status
    assert Reservation.objects.count() == (status == 201)


def test_a_token_of_a_project_approves_nothing_that_happens_in_another(colleague: Api, other_project: Project) -> None:
    assert colleague.user
    Membership.objects.create(project=other_project, user=colleague.user, role="maintainer")
    scopes = ["agents:write", "reservations:write"]
    narrow = Api(token=colleague.post("/tokens", {"name": "n", "scopes": scopes, "projects": [PROJECT]}).data["token"])
    agent, _ = make_agent(narrow, scopes=["reservations:write"])
    key = reserve_elsewhere(agent, other_project)
    assert narrow.post(f"/proposals/{key}/approve").data["status"] == 403
    assert not Reservation.objects.exists()


def test_a_maintainer_reads_what_an_agent_did_in_the_own_projects_alone(
    owner: Api, colleague: Api, other_project: Project
) -> None:
    assert colleague.user
    Membership.objects.create(project=other_project, user=colleague.user, role="member")
    made = colleague.post("/agent-tokens", {"name": "both", "projectIds": [PROJECT, other_project.pk]}).data
    for project in (PROJECT, other_project.pk):
        AuditEvent.objects.create(token=made["id"], action="task.create", target="t", project_id=project)
    path = f"/agent-tokens/{made['id']}/events"
    assert [one["project"] for one in owner.get(path).data["items"]] == [PROJECT]
    assert len(colleague.get(path).data["items"]) == 2
    narrow = colleague.post("/tokens", {"name": "n", "scopes": ["agents:read"], "projects": [PROJECT]}).data["token"]
    assert [one["project"] for one in Api(token=narrow).get(path).data["items"]] == [PROJECT]


def test_service_accounts_make_no_agents(owner: Api) -> None:
    """A pipeline's token of minutes would make one that never ends."""
    account = make_account(owner, role="maintainer")
    assert account.post("/agent-tokens", {"name": "x", "projectIds": [PROJECT]}).status == 403
    assert not Purse.objects.exists()


def test_an_agents_token_ends_no_later_than_the_platform_and_the_token_that_makes_it_allow(
    colleague: Api, settings: Any
) -> None:
    body = {"name": "x", "projectIds": [PROJECT], "scopes": ["tasks:read"]}
    scopes = ["agents:write", "tasks:read"]
    short = colleague.post("/tokens", {"name": "n", "scopes": scopes, "expiresInDays": 1}).data
    for days in ({}, {"expiresInDays": 30}):
        made = Api(token=short["token"]).post("/agent-tokens", {**body, **days}).data
        assert made["expiresAt"] == short["expiresAt"]
    assert colleague.post("/agent-tokens", body).data["expiresAt"] is None
    settings.TOKEN_MAX_DAYS = 7
    assert colleague.post("/agent-tokens", {**body, "expiresInDays": 8}).error == "TOKEN_DAYS_TOO_MANY"
    assert colleague.post("/agent-tokens", body).data["expiresAt"] is not None


def test_a_revoked_agent_is_refused_and_its_tasks_go_on(owner: Api, colleague: Api) -> None:
    agent, key = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    assert owner.delete(f"/agent-tokens/{key}").status == 200
    assert agent.get("/training-tasks").status == 401
    assert Task.objects.get(pk=task).stop_requested_at is None


def test_the_token_is_shown_once_and_never_audited(colleague: Api) -> None:
    agent, key = make_agent(colleague)
    assert "token" not in colleague.get(f"/agent-tokens/{key}").data
    assert agent.token not in str(list(AuditEvent.objects.values()))


def test_what_an_agent_did_is_listed_and_can_be_undone(colleague: Api, stranger: Api) -> None:
    agent, key = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    [event] = colleague.get(f"/agent-tokens/{key}/events").data["items"]
    assert (event["action"], event["target"]) == ("task.create", task)
    assert (event["undo"], event["undoRefusal"]) == ("stop", None)
    assert stranger.post(f"/audit-events/{event['id']}/undo").status == 404
    assert colleague.post(f"/audit-events/{event['id']}/undo").data["taskId"] == task
    assert Task.objects.get(pk=task).stop_requested_at
    assert colleague.post(f"/audit-events/{event['id']}/undo").error == "UNDO_DONE"
    [event] = colleague.get(f"/agent-tokens/{key}/events").data["items"]
    assert (event["undo"], event["undoRefusal"]["code"]) == (None, "UNDO_DONE")
    created = AuditEvent.objects.get(action="agent-token.create")
    assert colleague.post(f"/audit-events/{created.pk}/undo").status in (404, 409)
    assert colleague.post("/audit-events/none/undo").status == 404


@pytest.mark.parametrize(
    ("action", "changes", "code"),
    [
        ("task.create", {"state": "succeeded"}, "UNDO_TASK_ENDED"),
        ("task.stop", {"state": "running"}, "UNDO_STILL_STOPPING"),
        ("task.stop", {"state": "stopped"}, "UNDO_NO_CHECKPOINT"),
        ("task.pause", {"paused_at": None}, "UNDO_CHANGED_SINCE"),
        ("task.resume", {"paused_at": now()}, "UNDO_CHANGED_SINCE"),
        ("run.change", {}, "UNDO_UNKNOWN"),
    ],
)
def test_why_an_event_cannot_be_undone_is_listed_and_refused_alike(
    colleague: Api, action: str, changes: dict[str, Any], code: str
) -> None:
    agent, key = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    Task.objects.filter(pk=task).update(**changes)
    event = AuditEvent.objects.get(token=key)
    AuditEvent.objects.filter(pk=event.pk).update(action=action)
    [shown] = colleague.get(f"/agent-tokens/{key}/events").data["items"]
    assert (shown["undo"], shown["undoRefusal"]["code"]) == (None, code)
    assert colleague.post(f"/audit-events/{event.pk}/undo").error == code
    Task.objects.filter(pk=task).delete()


def test_an_event_of_a_deleted_task_cannot_be_undone(colleague: Api) -> None:
    agent, key = make_agent(colleague, gpuHours=1)
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    Task.objects.filter(pk=task).delete()
    [shown] = colleague.get(f"/agent-tokens/{key}/events").data["items"]
    assert shown["undoRefusal"]["code"] == "UNDO_TASK_GONE"


def test_secrets_of_a_proposed_request_are_encrypted_and_masked_and_approving_sends_them(colleague: Api) -> None:
    agent, _ = make_agent(colleague, gpuHours=0.1)
    secret = "hunter2-of-the-agent"
    body = {
        **{name: value for name, value in HALF_HOUR.items() if name != "hyperparameters"},
        "env": {"MODE": secret},
        "entrypoint": {"module": "train", "args": ["--lr", "0.1", "--api-key", secret, f"--token={secret}"]},
    }
    refused = agent.post("/training-tasks", body)
    assert refused.error == "PURSE_EXCEEDED"
    stored = Proposal.objects.get()
    assert secret not in str(Proposal.objects.values())
    for reader in (agent, colleague):
        answer = reader.get(f"/proposals/{stored.pk}")
        assert secret not in str(answer.body)
        assert answer.data["body"]["env"] == {"MODE": MASK}
        assert answer.data["body"]["entrypoint"]["args"][:3] == ["--lr", "0.1", "--api-key"]
    approved = colleague.post(f"/proposals/{stored.pk}/approve", {"note": "once"}).data
    assert (approved["status"], approved["note"]) == (201, "once")
    task = Task.objects.get(pk=approved["result"]["data"]["taskId"])
    assert task.request["env"] == {"MODE": secret}
    assert task.request["entrypoint"]["args"][3] == secret


def test_a_proposal_that_another_key_encrypted_cannot_be_approved(colleague: Api, settings: Any) -> None:
    _, key = propose(colleague)
    settings.SECRET_KEY = "another"
    assert colleague.user
    assert proposals.get_decidable(colleague.user, key)
    with pytest.raises(ApiError, match="PROPOSAL_UNREADABLE"):
        proposals.approve_proposal(colleague.user, key)
    assert Proposal.objects.get().state == "open"


def test_a_refusal_names_its_proposal_and_a_decision_closes_the_notice_and_keeps_the_note(colleague: Api) -> None:
    agent, key = propose(colleague)
    refused = agent.post("/training-tasks", HALF_HOUR)
    assert refused.body["proposal"] == {"id": key, "address": proposals.get_address(key)}
    created = AuditEvent.objects.get(action="proposal.create")
    assert (created.token, created.token_name) == (Purse.objects.get().pk, "helper")
    assert agent.get(f"/proposals/{key}").data["mayDecide"] is False
    assert colleague.get(f"/proposals/{key}").data["mayDecide"] is True
    declined = colleague.post(f"/proposals/{key}/decline", {"note": "too long"}).data
    assert (declined["state"], declined["note"]) == ("declined", "too long")
    assert agent.get(f"/proposals/{key}").data["note"] == "too long"
    assert Incident.objects.get(kind="proposal").over_at


def test_each_field_of_a_request_that_may_be_proposed_is_shown_or_masked_on_purpose(admin: Api) -> None:
    document = json.loads(admin.get("/schema").body)
    found: set[str] = set()

    def collect(shape: Any) -> None:
        shape = document["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]] if "$ref" in shape else shape
        for part in ("allOf", "anyOf", "oneOf"):
            for one in shape.get(part, ()):
                collect(one)
        for name, inner in shape.get("properties", {}).items():
            found.add(name)
            collect(inner)
        for inner in (shape.get("items"), shape.get("additionalProperties")):
            if isinstance(inner, dict):
                collect(inner)

    for path in document["paths"].values():
        for method, entry in path.items():
            if not isinstance(entry, dict) or "operationId" not in entry:
                continue
            rule = find_rule(entry["operationId"], entry.get("x-scope"), method.upper())
            if rule in (Rule.CHECKED, Rule.OWN, Rule.PROPOSED):
                for content in entry.get("requestBody", {}).get("content", {}).values():
                    collect(content["schema"])
    assert found - SHOWN_FIELDS - OPEN_FIELDS - MASKED_FIELDS == set()
    assert len(SHOWN_FIELDS) + len(OPEN_FIELDS) + len(MASKED_FIELDS) == len(SHOWN_FIELDS | OPEN_FIELDS | MASKED_FIELDS)


def test_every_operation_that_changes_something_has_a_rule(admin: Api) -> None:
    paths = json.loads(admin.get("/schema").body)["paths"]
    operations = {
        entry["operationId"]: entry["x-scope"]
        for path in paths.values()
        for method, entry in path.items()
        if isinstance(entry, dict) and "x-scope" in entry and method != "get"
    }
    missing = {
        name
        for name, scope in operations.items()
        if name not in RULES and scope.endswith((":write", ":open"))
        if scope.partition(":")[0] not in REFUSED_RESOURCES
    }
    assert not missing
    assert not {name for name, rule in RULES.items() if rule is not Rule.FREE and name not in operations}


@pytest.mark.django_db(transaction=True)
def test_of_two_tasks_at_once_only_one_fits_the_last_hour(colleague: Api) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite writes one at a time")
    agent, _ = make_agent(colleague, gpuHours=1)
    start = Barrier(4)

    def send(number: int) -> Answer:
        start.wait()
        try:
            return agent.post("/training-tasks", {**HALF_HOUR, "taskName": f"n{number}"})
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send, range(4)))
    assert sorted(answer.status for answer in answers) == [201, 403, 403, 403]
    assert (Task.objects.count(), Proposal.objects.count()) == (1, 3)


def test_a_token_reads_its_own_name_rights_and_purse(colleague: Api) -> None:
    agent, key = make_agent(colleague, gpuHours=1, scopes=["tasks:write"])
    token = agent.get("/auth/me").data["token"]
    assert token == {"id": key, "name": "helper", "scopes": ["tasks:write"], "projects": [PROJECT], "tasks": None}
    assert agent.get("/agent-tokens/own").data["left"] == {"gpuHours": 1.0, "money": None}
    assert agent.get("/agent-tokens").error == "SCOPE_MISSING"
    assert colleague.get("/agent-tokens/own").data is None


def test_a_token_with_a_purse_writes_no_runs_to_mlflow_and_sending_runs_to_trackers_spends_nothing(
    colleague: Api,
) -> None:
    agent, key = make_agent(colleague, gpuHours=1, scopes=["tasks:write", "tracking:write", "runs:write"])
    task = agent.post("/training-tasks", HALF_HOUR).data["taskId"]
    Purse.objects.update(gpu_hours=0)
    made = Mlflow(agent.token).refuse("POST", "mlflow/runs/create", {"experiment_id": "0", "run_name": "own"})
    assert made == (403, "PERMISSION_DENIED"), "only ranks write runs"
    assert agent.post(f"/training-tasks/{task}/tracker-runs/sync", {}).error not in ("PURSE_EXCEEDED", "PURSE_REFUSED")
    assert not Proposal.objects.exists()
    assert colleague.get(f"/agent-tokens/{key}").data["unfinishedTasks"] == 1

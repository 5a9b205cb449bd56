"""`fermi agents`, `proposals` and `exchange-rules` against the real API over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import Membership, Project
from apps.agents.models import Proposal
from apps.agents.policy import RULES, Rule
from fermi.cli import texts
from fermi.cli.proposal_sentences import describe_request
from tests.api.conftest import Api, Command, CommandResult
from tests.api.test_tasks_create import changed

PROJECT = "project-one"
HALF_HOUR = changed(distributedConfig=None, environmentIds=["env-001"], maxRunSeconds=1800)  # of 2 GPUs: one GPU-hour


def list_items(result: CommandResult) -> list[dict[str, Any]]:
    return list(json.loads(result.out)["items"])


def test_a_token_of_an_agent_is_created_changed_and_revoked(
    colleague: Api, owner: Api, command: Command, environments: Any
) -> None:
    made = command(colleague, "agents", "create", "helper", "--agent", "coder", "--project", "one", "--gpu-hours", "2",
                   "--max-running", "1", "--env", "env-001", "--preemptible", "--days", "7")  # fmt: skip
    assert made.code == 0, made.err
    token = made.out.strip()
    assert token.startswith("fermi_")
    assert token not in made.err
    assert "not shown again" in made.err
    agent = Api(token=token)
    purse = agent.get("/agent-tokens/own").data["purse"]
    assert purse == {
        "gpuHours": 2.0, "money": None, "preemptibleOnly": True, "maxRunning": 1, "environments": ["env-001"]
    }  # fmt: skip
    listed = command(colleague, "agents")
    assert "2.00 of 2.00" in listed.out
    assert "coder" in listed.out
    assert command(colleague, "agents", "change", "helper").code == 2
    assert command(colleague, "agents", "change", "helper", "--days", "3").code == 2
    assert command(colleague, "agents", "change", "helper", "--money", "5", "--no-limit", "money").code == 2
    changed_purse = command(colleague, "agents", "change", "helper", "--no-limit", "gpu-hours", "--money", "5.5",
                            "--any-priority", "-o", "json")  # fmt: skip
    assert json.loads(changed_purse.out)["purse"] == {
        "gpuHours": None, "money": 5.5, "preemptibleOnly": False, "maxRunning": 1, "environments": ["env-001"]
    }  # fmt: skip
    assert "no limit" in command(colleague, "agents", "show", "helper").out
    assert command(agent, "agents", "change", "helper", "--money", "500").code == 3
    assert command(colleague, "agents", "revoke", "helper", "--gpu-hours", "1").code == 2
    assert command(colleague, "agents", "revoke", "helper").code == 0
    assert agent.get("/auth/me").status == 401
    assert command(colleague, "agents", "revoke", "helper").code == 4
    assert command(colleague, "agents", "create").code == 2
    assert list_items(command(owner, "agents", "-o", "json")) == []


def test_a_stranger_finds_no_token_and_no_project(
    colleague: Api, stranger: Api, command: Command, environments: Any
) -> None:
    key = json.loads(command(colleague, "agents", "create", "helper", "-o", "json").out)["id"]
    assert command(stranger, "agents", "show", key).code == 4
    assert command(stranger, "agents", "revoke", key).code == 4
    assert command(stranger, "agents", "create", "mine", "--project", PROJECT).code == 4


@pytest.mark.parametrize("way", ["http", "command"])
def test_the_configuration_of_a_client_has_the_token_and_the_address(
    colleague: Api, command: Command, live_server: LiveServer, way: str
) -> None:
    made = command(colleague, "agents", "create", "helper", "--mcp", *([way] if way == "command" else []))
    server = json.loads(made.out)["mcpServers"]["fermi"]
    token = server["env"]["FERMI_TOKEN"] if way == "command" else server["headers"]["Authorization"].split()[1]
    assert Api(token=token).get("/agent-tokens/own").data["name"] == "helper"
    assert live_server.url in json.dumps(server)
    assert token not in made.err


@pytest.fixture
def proposal(colleague: Api, command: Command, environments: Any, dataset: Any, model: Any) -> str:
    """The id of a proposal of an agent whose purse has half a GPU-hour."""
    made = command(colleague, "agents", "create", "helper", "--agent", "coder", "--gpu-hours", "0.5")
    agent = Api(token=made.out.strip())
    assert agent.post("/training-tasks", {**HALF_HOUR, "maxRunSeconds": 60, "taskName": "small"}).status == 201
    assert agent.post("/training-tasks", HALF_HOUR).error == "PURSE_EXCEEDED"
    return Proposal.objects.get().pk


def test_a_person_sees_what_an_agent_wants_and_approves_it_once(
    colleague: Api, stranger: Api, command: Command, proposal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"Train “{HALF_HOUR['taskName']}”." in command(colleague, "proposals").out
    shown = command(colleague, "proposals", "show", proposal).out
    for part in ("Train “", "coder", "colleague", "1 node, 2 GPUs", "at most 1", "30m", "Beyond the purse", "GPU-hours",
                 "Changes against", "maxRunSeconds", "60"):  # fmt: skip
        assert part in shown
    assert command(stranger, "proposals", "show", proposal).code == 4
    assert command(stranger, "proposals", "approve", proposal, "--yes").code == 4
    unattended = command(colleague, "proposals", "approve", proposal)
    assert unattended.code == 2
    assert "--yes" in unattended.err
    assert command(colleague, "proposals", "approve", proposal, "--reason", "x").code == 2
    done = command(colleague, "proposals", "approve", proposal, "--yes", "--note", "once")
    assert done.code == 0, done.err
    assert "Created task-" in done.err
    found = Proposal.objects.get()
    assert (found.state, found.note) == ("approved", "once")
    again = command(colleague, "proposals", "approve", proposal, "--yes")
    assert again.err == done.err
    assert command(colleague, "proposals", "decline", proposal).code == 2
    assert list_items(command(colleague, "proposals", "-o", "json")) == []
    [listed] = list_items(command(colleague, "proposals", "--state", "approved", "--agent", "helper", "-o", "json"))
    assert listed["id"] == proposal


def test_a_declined_proposal_has_its_reason(colleague: Api, command: Command, proposal: str) -> None:
    assert command(colleague, "proposals", "decline", proposal, "--note", "x").code == 2
    assert command(colleague, "proposals", "decline").code == 2
    assert command(colleague, "proposals", "decline", proposal, "--reason", "too long").code == 0
    shown = command(colleague, "proposals", "show", proposal).out
    assert "declined" in shown
    assert "too long" in shown


def test_an_approved_request_that_fails_says_why(colleague: Api, command: Command, proposal: str) -> None:
    Membership.objects.filter(user=colleague.user).update(role="viewer")
    done = command(colleague, "proposals", "approve", proposal, "--yes")
    assert done.code == 2
    assert "its request failed" in done.err
    assert "change your role" in done.err


def test_an_agent_may_read_its_proposal_and_not_decide_it(colleague: Api, command: Command, proposal: str) -> None:
    key = Proposal.objects.get().purse
    made = command(colleague, "agents", "create", "other", "--gpu-hours", "0.5")
    assert command(Api(token=made.out.strip()), "proposals", "show", proposal).code == 4
    assert command(Api(token=made.out.strip()), "proposals", "approve", proposal, "--yes").code in (3, 4)
    assert command(colleague, "agents", "revoke", key).code == 0
    assert command(colleague, "proposals", "show", proposal).code == 0


def test_each_operation_that_may_be_proposed_has_a_sentence() -> None:
    texts.set_language("en")
    for operation, rule in RULES.items():
        if rule in (Rule.OWN, Rule.PROPOSED):
            item: Any = {
                "plan": None,
                "body": {},
                "path": "/api/v1/things/x-1",
                "operation": operation,
                "method": "POST",
            }
            assert operation not in describe_request(item), operation


def test_rules_of_pipelines_are_created_listed_and_deleted(
    owner: Api, colleague: Api, command: Command, project: Project, settings: Any, tmp_path: Path
) -> None:
    settings.EXCHANGE_ISSUERS = ["https://id.example.org"]
    assert command(owner, "service-accounts", "create", "ci").code == 0
    rule = {
        "name": "main", "serviceAccount": "ci", "issuer": "https://id.example.org", "audience": "fermi",
        "conditions": {"repository": "acme/model"}, "scopes": ["tasks:write"], "minutes": 10,
    }  # fmt: skip
    (tmp_path / "rule.yaml").write_text(json.dumps(rule))
    made = command(owner, "exchange-rules", "create", "rule.yaml")
    assert made.code == 0, made.err
    assert "repository=acme/model" in command(owner, "exchange-rules", "list", "--project", "one").out
    [found] = list_items(command(owner, "exchange-rules", "-o", "json"))
    assert {name: found[name] for name in rule} == rule
    (tmp_path / "again.yaml").write_text(json.dumps({**found, "name": "again"}))
    assert command(owner, "exchange-rules", "create", "again.yaml").code == 0
    assert command(owner, "exchange-rules", "delete").code == 2
    assert command(owner, "exchange-rules", "delete", found["id"]).code == 0
    assert command(owner, "exchange-rules", "delete", found["id"]).code == 4
    (tmp_path / "wrong.yaml").write_text(json.dumps({**rule, "minutes": 0}))
    assert command(owner, "exchange-rules", "create", "wrong.yaml").code == 2
    assert command(colleague, "exchange-rules", "create", "rule.yaml").code == 3

"""`fermi mcp`, started over standard input and output by the official client, against the real API over HTTP."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import Membership, Project, User
from apps.training.models import Task
from fermi.cli.commands.agents import build_mcp_configuration
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

READING = {
    "get_account", "preview_task", "list_tasks", "get_task", "explain_task", "list_checkpoints", "explain_queue",
    "read_logs",
}  # fmt: skip
"""The tools that `tasks:read` suffices for."""


def make_server(url: str, token: str, folder: Path) -> StdioServerParameters:
    """Return how an agent's client starts the command, as `fermi agents create --mcp command` prints it."""
    found = build_mcp_configuration(url, token, "command")["mcpServers"]["fermi"]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FERMI_")},
        **found["env"],
        "XDG_CONFIG_HOME": str(folder),
    }
    assert found["command"] == "fermi"
    return StdioServerParameters(command=sys.executable, args=["-m", "fermi.cli", *found["args"]], env=env)


def use(server: StdioServerParameters, calls: Sequence[tuple[str, dict[str, Any]]] = ()) -> tuple[set[str], list[Any]]:
    """Return the tools that the command offers, and for each call whether it failed, and its answer."""

    async def talk() -> tuple[set[str], list[Any]]:
        async with Client(server) as client:
            names = {one.name for one in (await client.list_tools()).tools}
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
            return names, [(bool(one.is_error), json.loads(one.content[0].text)) for one in results]  # type: ignore[union-attr]

    return asyncio.run(asyncio.wait_for(talk(), 120))


@pytest.fixture
def task(colleague: Api, environments: Any, dataset: Any, model: Any) -> str:
    made = colleague.post("/training-tasks", changed(distributedConfig=None, environmentIds=["env-001"]))
    return str(made.data["taskId"])


def test_the_command_offers_a_narrow_token_only_the_tools_of_its_scopes(
    colleague: Api, live_server: LiveServer, task: str, tmp_path: Path
) -> None:
    made = colleague.post("/tokens", {"name": "reader", "scopes": ["tasks:read"]}).data["token"]
    names, answers = use(
        make_server(live_server.url, made, tmp_path),
        [("get_task", {"task_id": task}), ("stop_task", {"task_id": task})],
    )
    assert names == READING
    (_, found), (is_refused, refusal) = answers
    assert found["task"]["id"] == task
    assert is_refused
    assert refusal["error"]["code"] == "SCOPE_MISSING"
    assert Task.objects.get(pk=task).stop_requested_at is None


def test_a_token_of_one_project_finds_no_task_of_another(
    owner: Api, other_project: Project, live_server: LiveServer, task: str, tmp_path: Path
) -> None:
    Membership.objects.create(project=other_project, user=User.objects.get(username="owner"), role="maintainer")
    body = {"name": "other", "scopes": ["tasks:write"], "projects": [other_project.pk]}
    made = owner.post("/tokens", body).data["token"]
    _, [(is_refused, answer)] = use(make_server(live_server.url, made, tmp_path), [("stop_task", {"task_id": task})])
    assert is_refused
    assert answer["error"]["status"] == 404


def test_the_command_has_the_purse_of_an_agents_token(
    colleague: Api, live_server: LiveServer, task: str, tmp_path: Path
) -> None:
    body = {"name": "coder", "projectIds": ["project-one"], "gpuHours": 0.5, "scopes": ["tasks:write", "agents:read"]}
    made = colleague.post("/agent-tokens", body).data["token"]
    request = {
        "name": "beyond", "environments": ["env-001"], "framework": "pytorch-ddp", "dataset_id": "dataset-001",
        "dataset_version_id": "version-001", "model_id": "model-001", "more": {"maxRunSeconds": 36_000},
    }  # fmt: skip
    names, [(_, account), (is_refused, answer)] = use(
        make_server(live_server.url, made, tmp_path), [("get_account", {}), ("submit_task", request)]
    )
    assert names == READING | {"submit_task", "clone_task", "resume_task", "stop_task", "get_proposal"}
    assert account["purse"]["gpuHoursLeft"] == 0.5
    assert is_refused
    assert answer["error"]["code"] == "PURSE_EXCEEDED"
    assert answer["error"]["proposal"] == colleague.get("/proposals").data["items"][0]["id"]

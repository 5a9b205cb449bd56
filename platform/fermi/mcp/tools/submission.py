"""Tools that preview, create and copy tasks."""

import secrets
from collections.abc import Mapping
from typing import Any

from pydantic import Field, JsonValue

from fermi.mcp.caller import Caller
from fermi.mcp.outside_text import clean_text, mark_message, mark_text
from fermi.mcp.tools.definition import (
    Answer,
    Arguments,
    Id,
    TaskArguments,
    Word,
    drop_none,
    fit,
    suggest,
    tool,
)
from fermi.mcp.tools.task_summary import suggest_for

Key = Word
Argument = Field(max_length=8000)


class RequestArguments(Arguments):
    """A task request in short; `more` has every other field of the API."""

    name: str = Field(min_length=1, max_length=200, description="Name of the task.")
    environments: list[Id] = Field(
        default_factory=list, max_length=1000, description="Ids of environments; the first is the master node."
    )
    framework: Word | None = Field(None, description="Such as pytorch-ddp; needed for more than one environment.")
    script: str | None = Field(None, max_length=1000, description="Python script in the workspace or code snapshot.")
    module: str | None = Field(None, max_length=1000, description="Python module instead of a script.")
    args: list[str] = Field(default_factory=list, max_length=1000, description="Arguments of the script or module.")
    dataset_id: Id | None = None
    dataset_version_id: Id | None = None
    model_id: Id | None = None
    project: Id | None = None
    hyperparameters: dict[str, JsonValue] = Field(
        default_factory=dict, max_length=1000, description="Such as totalSteps, batchSize, learningRate."
    )
    env: dict[str, str] = Field(default_factory=dict, max_length=1000, description="Environment variables.")
    max_restarts: int | None = Field(None, ge=0, le=1000)
    resume_from: str | None = Field(None, max_length=4096, description="Path of a checkpoint to start from.")
    more: dict[str, JsonValue] = Field(
        default_factory=dict,
        max_length=100,
        description="Other fields of POST /training-tasks by their API names, such as maxRunSeconds, code, tags, "
        "secretEnv, onHang; objects are merged into what the fields above give.",
    )

    def build_body(self) -> dict[str, Any]:
        """Return the body of POST /training-tasks."""
        body: dict[str, Any] = {
            "taskName": self.name, "launchMode": "existing", "datasetId": self.dataset_id,
            "datasetVersionId": self.dataset_version_id, "modelId": self.model_id,
        }  # fmt: skip
        if len(self.environments) > 1 or self.framework:
            body["distributedConfig"] = drop_none({
                "enabled": True, "nodeIds": self.environments, "framework": self.framework,
                "masterNode": self.environments[0] if self.environments else None,
            })  # fmt: skip
        elif self.environments:
            body["environmentIds"] = self.environments
        named = drop_none({"script": self.script, "module": self.module})
        if named:
            body["entrypoint"] = {**named, "args": self.args}
        body |= drop_none({
            "projectId": self.project, "hyperparameters": self.hyperparameters, "env": self.env,
            "maxRestarts": self.max_restarts, "resumeFrom": self.resume_from,
        })  # fmt: skip
        return merge(body, self.more)


def merge(target: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target with the changes merged into it as RFC 7396 says: objects are merged, null removes."""
    merged = dict(target)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            inner = merged.get(name)
            merged[name] = merge(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[name] = value
    return merged


@tool("tasks:read", arguments=RequestArguments)
async def preview_task(caller: Caller, arguments: RequestArguments) -> Answer:
    """Check a task request without creating anything: all problems at once, warnings, ranks, when it would start and
    what it costs per hour."""
    body = arguments.build_body()
    answer = _summarise_preview(await caller.call("POST", "/training-tasks/preview", body=body))
    if not answer["problems"]:
        answer["next"] = [suggest("submit_task", "NO_PROBLEMS", **arguments.model_dump(exclude_defaults=True))]
    return answer


def _summarise_preview(found: Mapping[str, Any]) -> Answer:
    chosen = found["chosen"] or {}
    return {
        "problems": fit([summarise_problem(one) for one in found["problems"]], 2000),
        "problemCount": len(found["problems"]),
        "warnings": fit([mark_message(one, most=300) for one in found["warnings"]], 1200),
    } | drop_none({
        "nodes": found["nodeCount"], "processes": found["worldSize"], "masterNode": found["masterNode"],
        "startsNow": chosen.get("startsNow"), "begins": chosen.get("begins"), "numberInQueue": chosen.get("number"),
        "costPerHour": found["hourly"], "command": mark_text(" ".join(found["command"] or ()), most=500)
        if found["command"] else None,
    })  # fmt: skip


def summarise_problem(problem: Mapping[str, Any]) -> Answer:
    """Return a problem of a request: field, code, and what the API says of it."""
    marked = mark_message({"code": problem.get("error"), **problem}, most=400) or {}
    return drop_none({"field": clean_text(str(problem.get("field", "")), 200), **marked})


class SubmitArguments(RequestArguments):
    idempotency_key: str | None = Field(
        None,
        min_length=8,
        max_length=100,
        description="Repeat a submission whose answer was lost with the same key: nothing is created twice.",
    )


@tool("tasks:write", arguments=SubmitArguments, changes=True)
async def submit_task(caller: Caller, arguments: SubmitArguments) -> Answer:
    """Create a training task. It starts as soon as its environments are free. Spends GPU time: preview_task first."""
    return await _create(caller, arguments.build_body(), arguments.idempotency_key)


async def _create(caller: Caller, body: Mapping[str, Any], key: str | None) -> Answer:
    headers = {"Idempotency-Key": key or f"mcp-{secrets.token_hex(12)}"}
    return _summarise_creation(await caller.call("POST", "/training-tasks", body=body, headers=headers))


def _summarise_creation(made: Mapping[str, Any]) -> Answer:
    task_id = made["taskId"]
    info = made.get("distributedInfo") or {}
    return {
        "id": task_id,
        "status": made["status"],
        **drop_none(
            {"nodes": info.get("nodeCount"), "gpus": info.get("totalGpus"), "framework": info.get("framework")}
        ),
        "warnings": fit([mark_message(one, most=300) for one in made.get("warnings", ())], 1500),
        "next": [suggest("get_task", "CREATED", task_id=task_id, wait_seconds=60, until="running")],
    }


class CloneArguments(TaskArguments):
    name: str | None = Field(None, min_length=1, max_length=200, description="Name of the new task.")
    hyperparameters: dict[str, JsonValue] = Field(
        default_factory=dict, max_length=1000, description="Hyperparameters that differ; null removes one."
    )
    environments: list[Id] = Field(default_factory=list, max_length=1000, description="Other environments.")
    resume_from: str | None = Field(
        None, max_length=4096, description="Path of a checkpoint, as explain_task or list_files names it."
    )
    changes: dict[str, JsonValue] = Field(
        default_factory=dict, max_length=100, description="Other fields of the request, merged (RFC 7396)."
    )
    dry_run: bool = Field(False, description="Preview the changed request only.")
    idempotency_key: str | None = Field(None, min_length=8, max_length=100)


@tool("tasks:write", arguments=CloneArguments, changes=True)
async def clone_task(caller: Caller, arguments: CloneArguments) -> Answer:
    """Create a task from the request of another one with changed parameters, environments or checkpoint."""
    found = await caller.call("POST", f"/training-tasks/{arguments.task_id}/clone")
    body = merge(found["request"], arguments.changes)
    if arguments.hyperparameters:
        body = merge(body, {"hyperparameters": arguments.hyperparameters})
    if arguments.environments:
        body = _replace_environments(body, arguments.environments)
    body |= drop_none({"taskName": arguments.name, "resumeFrom": arguments.resume_from})
    if arguments.dry_run:
        return _summarise_preview(await caller.call("POST", "/training-tasks/preview", body=body))
    return await _create(caller, body, arguments.idempotency_key)


def _replace_environments(body: dict[str, Any], environments: list[str]) -> dict[str, Any]:
    config = body.get("distributedConfig")
    if not config and len(environments) == 1:
        return body | {"environmentIds": environments}
    body = {name: value for name, value in body.items() if name != "environmentIds"}
    kept = {name: value for name, value in (config or {}).items() if name != "select"}
    return body | {
        "distributedConfig": {**kept, "enabled": True, "nodeIds": environments, "masterNode": environments[0]}
    }


class ResumeArguments(TaskArguments):
    leave_out: list[Id] = Field(default_factory=list, max_length=100, description="Environments to go on without.")
    use_spares: bool = Field(False, description="Replace those that are left out by the task's spare environments.")


@tool("tasks:read", "tasks:write", arguments=ResumeArguments, changes=True)
async def resume_task(caller: Caller, arguments: ResumeArguments) -> Answer:
    """Continue a task from its newest checkpoint: a paused one goes back into the queue, an ended one continues as a
    new task, a running one in its next attempt."""
    path = f"/training-tasks/{arguments.task_id}"
    task = await caller.call("GET", path)
    if task["paused"]:
        task = await caller.call("POST", f"{path}/resume")
        return {"id": task["taskId"], "status": task["status"], "next": suggest_for(task)}
    body = {"leaveOut": arguments.leave_out, "useSpares": arguments.use_spares}
    return _summarise_creation(await caller.call("POST", f"{path}/restart", body=body))


TOOLS = (preview_task, submit_task, clone_task, resume_task)

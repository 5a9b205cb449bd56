"""Tools for what there is to train on and with."""

from typing import Any

from pydantic import Field

from fermi.mcp.caller import Caller
from fermi.mcp.outside_text import mark_text
from fermi.mcp.tools.definition import ANSWER_BYTES, Answer, Arguments, Id, Word, drop_none, fit, suggest, tool

MAX_LISTED = 50


class GetAccountArguments(Arguments):
    pass


@tool(arguments=GetAccountArguments)
async def get_account(caller: Caller, arguments: GetAccountArguments) -> Answer:
    """Whose token this is: user name, the projects with the user's role in each, and the purse: what is spent, reserved
    by unfinished tasks, and left. A task that needs more than is left becomes a proposal for a person."""
    me = await caller.call("GET", "/auth/me")
    purse = await caller.call("GET", "/agent-tokens/own") if me.get("token") else None
    projects = [
        {"id": one["id"], "name": mark_text(one["name"], most=100), "role": one["role"]} for one in me["projects"]
    ]
    return {
        "username": me["username"],
        "administrator": me["isAdministrator"],
        **({"purse": _summarise_purse(purse)} if purse else {}),
        "projects": fit(projects, ANSWER_BYTES - 300),
        "projectCount": len(projects),
    }


def _summarise_purse(purse: dict[str, Any]) -> Answer:
    """Return the limits and sums of a purse; a number that nothing bounds is left out."""
    limits = purse["purse"]
    return drop_none(
        {
            "gpuHours": limits["gpuHours"],
            "gpuHoursSpent": round(purse["spent"]["gpuHours"], 4),
            "gpuHoursReserved": _round(purse["reserved"]["gpuHours"]),
            "gpuHoursLeft": _round(purse["left"]["gpuHours"]),
            "money": limits["money"],
            "moneyLeft": purse["left"]["money"],
            "currency": purse["currency"] if limits["money"] is not None else None,
            "preemptibleOnly": limits["preemptibleOnly"] or None,
            "maxRunning": limits["maxRunning"],
            "unfinishedTasks": purse["unfinishedTasks"],
            "environments": None if limits["environments"] is None else limits["environments"][:MAX_LISTED],
            "openProposals": purse["openProposals"],
        }
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


class ListEnvironmentsArguments(Arguments):
    project: Id | None = Field(None, description="Only of this project.")
    gpu_type: Word | None = Field(None, description="Only with this GPU type, such as A100.")
    min_gpus: int | None = Field(None, ge=1, le=100_000, description="Only with at least this many GPUs.")
    zone: Id | None = None
    search: Word | None = Field(None, max_length=100, description="Part of a name or id.")
    page: int = Field(1, ge=1, le=100_000)
    limit: int = Field(20, ge=1, le=100)


@tool("environments:read", arguments=ListEnvironmentsArguments)
async def list_environments(caller: Caller, arguments: ListEnvironmentsArguments) -> Answer:
    """Machines ("dev environments") that tasks can run on: GPUs, zone, and whether each is free now. Tasks may also be
    submitted to those that are in use: they wait."""
    query = {
        "project": arguments.project, "gpuType": arguments.gpu_type, "minGpus": arguments.min_gpus,
        "zone": arguments.zone, "search": arguments.search, "page": arguments.page, "pageSize": arguments.limit,
    }  # fmt: skip
    found = await caller.call("GET", "/dev-environments", query)
    items = fit([_summarise_environment(one) for one in found["items"]], ANSWER_BYTES - 300)
    free = [one["id"] for one in items if one["free"]]
    rest = found["total"] > (arguments.page - 1) * arguments.limit + len(items)
    following = []
    if rest and len(items) == len(found["items"]):
        following.append(suggest("list_environments", "MORE", **_repeat(arguments), page=arguments.page + 1))
    elif rest:
        following.append(suggest("list_environments", "MORE", **_repeat(arguments, limit=len(items))))
    if free:
        following.append(suggest("preview_task", "FREE", environments=free[:1]))
    return {"environments": items, "total": found["total"], "next": following}


def _repeat(arguments: Arguments, **changes: Any) -> dict[str, Any]:
    return arguments.model_dump(exclude_none=True, exclude={"page"}) | changes


def _summarise_environment(one: Any) -> Answer:
    return drop_none({
        "id": one["id"], "name": mark_text(one["name"], most=100), "project": one["projectId"],
        "gpuType": one["gpuType"], "gpuCount": one["gpuCount"], "emulated": one["emulated"] or None,
        "zone": one["zone"] and one["zone"]["id"], "status": one["status"],
        "free": one["selectable"] and not one["heldBy"], "heldBy": one["heldBy"],
        "why": (one["notSelectableReason"] or {}).get("code"), "memoryGb": one["memoryGb"],
    })  # fmt: skip


class ListInputsArguments(Arguments):
    project: Id | None = None
    search: Word | None = Field(None, max_length=100)


@tool("data:read", arguments=ListInputsArguments)
async def list_inputs(caller: Caller, arguments: ListInputsArguments) -> Answer:
    """Datasets with their versions, models, and frameworks: the ids that preview_task and submit_task need."""
    query = {"project": arguments.project, "search": arguments.search, "pageSize": 20}
    datasets = await caller.call("GET", "/datasets", query)
    models = await caller.call("GET", "/models", query)
    frameworks = await caller.call("GET", "/frameworks", {"pageSize": 50})
    versions = [
        {"dataset_id": one["id"], "dataset_version_id": version["id"], "name": mark_text(one["name"], most=100),
         "version": mark_text(version["name"], most=60), "status": version["status"], "tokens": version["trainTokens"]}
        for one in datasets["items"] for version in one["versions"][:3]
    ]  # fmt: skip
    return {
        "datasets": fit(versions, 1500),
        "datasetCount": datasets["total"],
        "models": fit(
            [{"model_id": one["id"], "name": mark_text(one["name"], most=100)} for one in models["items"]], 1200
        ),
        "modelCount": models["total"],
        "frameworks": [one["value"] for one in frameworks["items"]],
        "next": [suggest("list_environments", "WHERE")],
    }


TOOLS = (get_account, list_environments, list_inputs)

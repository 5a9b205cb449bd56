"""Options of a connection that hold for all tasks, or differ by project and by priority class. Pure.

    "queue": "gpus"
    "queue": {"default": "gpus", "projects": {"nlp": "nlp-gpus"}, "priorities": {"urgent": "express"}}

A class wins over a project, and a project over the default. A project is named by its id or its name. Where none of
them matches, the option counts as not set.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fermi.jobs.spec import JobSpec
from fermi.scheduler.snapshot import PRIORITY_NUMBERS


def build_class_schema(value: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Return the JSON Schema of an object with a value for some of the priority classes."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: dict(value) for name in PRIORITY_NUMBERS},
        "description": description,
    }


def build_option_schema(value: Mapping[str, Any], description: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a value, or of an object that gives it for each task."""
    choice = {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {
            "default": dict(value),
            "projects": {"type": "object", "additionalProperties": dict(value)},
            "priorities": build_class_schema(value, "by priority class"),
        },
    }
    return {"anyOf": [dict(value), choice], **({"description": description} if description else {})}


def resolve_options(connection: Mapping[str, Any], job: JobSpec, names: Iterable[str]) -> dict[str, Any]:
    """Return the connection for this job: each of these options is one text, or None."""
    chosen = {
        name: _resolve_option(connection.get(name), job.priority, job.project, job.project_name) for name in names
    }
    return {**connection, **chosen}


def resolve_project_options(connection: Mapping[str, Any], project: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the connection for a project, for what has no priority."""
    return {**connection, **{name: _resolve_option(connection.get(name), "", project) for name in names}}


def list_option_values(option: Any) -> list[str]:
    """Return all values that an option may have, each once."""
    if not isinstance(option, Mapping):
        return [str(option)] if option else []
    differing = [*(option.get("projects") or {}).values(), *(option.get("priorities") or {}).values()]
    return list(dict.fromkeys(str(value) for value in (option.get("default"), *differing) if value))


def _resolve_option(option: Any, priority: str, *names: str) -> Any:
    if not isinstance(option, Mapping):
        return option
    projects = option.get("projects") or {}
    found = (
        (option.get("priorities") or {}).get(priority),
        *(projects.get(name) for name in names if name),
        option.get("default"),
    )
    return next((value for value in found if value), None)

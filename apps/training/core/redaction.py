"""Hides a task's variables from viewers if their values look like keys. Users who may submit to the project may read
them."""

from collections.abc import Mapping
from typing import Any

from apps.accounts import access
from apps.accounts.models import Role, User
from fermi.jobs import credentials


def find_hidden_variables(request: Mapping[str, Any], project: str, user: User | None) -> dict[str, str]:
    """Return the variables of a task's request that `user` may not read, with their values. `user` None: as for a
    viewer."""
    env = request.get("env") or {}
    found = {name: value for name, value in env.items() if credentials.looks_secret(name, value)}
    if found and user and access.get_role(user, project) is not Role.VIEWER:
        return {}
    return found


def redact_request(stored: Mapping[str, Any], project: str, user: User | None) -> Mapping[str, Any]:
    """Return the task's request as `user` may read it; None: as a viewer may."""
    found = find_hidden_variables(stored, project, user)
    return {**stored, "env": credentials.mask_secrets(stored["env"])} if found else stored

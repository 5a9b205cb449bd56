"""Secrets of projects: set and replaced by name, used by name, never shown.

Only `reveal_secrets` returns values; it is called where they are handed to an engine. The audit trail has their names
only.
"""

import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from apps.accounts import access, audit, encryption
from apps.accounts.models import Project, Role, Secret, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from fermi.jobs.spec import Problem

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class SecretUnavailableError(Exception):
    """A value cannot be read: `code` is SECRET_MISSING or SECRET_UNREADABLE."""

    def __init__(self, code: str, secret: str, variable: str) -> None:
        super().__init__(f"{code}: {secret}")
        self.code = code
        self.params = {"secret": secret, "variable": variable}


def list_secrets(project: Project) -> QuerySet[Secret, Any]:
    """Return the names of the project's secrets, with who set them and when."""
    return Secret.objects.filter(project=project).values(
        "name",
        createdAt=F("created_at"),
        createdBy=F("created_by__username"),
        updatedAt=F("updated_at"),
        updatedBy=F("updated_by__username"),
    )


def find_unknown_secrets(project_id: str, secret_names: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each variable in `secret_names` (name of the secret by variable) whose secret does not
    exist. Values are read when an attempt starts."""
    if not secret_names:
        return []
    known = set(Secret.objects.filter(project_id=project_id).values_list("name", flat=True))
    listed = ", ".join(sorted(known)) or "–"
    return [
        Problem(f"secretEnv.{variable}", "SECRET_UNKNOWN", {"secret": name, "known": listed})
        for variable, name in secret_names.items()
        if name not in known
    ]


@transaction.atomic
def set_secret(user: User, project: Project, name: str, value: str) -> dict[str, Any]:
    """Create or replace a secret and return its row. Tasks get the new value with their next attempt."""
    access.require_role(user, project, Role.MAINTAINER)
    if not _NAME_PATTERN.fullmatch(name):
        raise ApiError(400, "SECRET_NAME_INVALID", "name", name=name)
    mine = Secret.objects.filter(project=project)
    if not mine.filter(name=name).exists():
        check_row_limit("secrets", mine)
    moment = now()
    changed = {"value": encryption.encrypt_value(value), "updated_at": moment, "updated_by": user}
    _, made = Secret.objects.update_or_create(
        project=project,
        name=name,
        defaults=changed,
        create_defaults={**changed, "created_at": moment, "created_by": user},
    )
    audit.record_event(user, "secret.create" if made else "secret.replace", name, project=project)
    found: dict[str, Any] = list_secrets(project).get(name=name)
    return found


@transaction.atomic
def delete_secret(user: User, project: Project, name: str) -> None:
    """Delete a secret. Raises ApiError 404 if it does not exist."""
    access.require_role(user, project, Role.MAINTAINER)
    if not Secret.objects.filter(project=project, name=name).delete()[0]:
        raise ApiError(404, "NOT_FOUND")
    audit.record_event(user, "secret.delete", name, project=project)


def reveal_secrets(project_id: str, secret_names: Mapping[str, str]) -> dict[str, str]:
    """Return the present values by variable; `secret_names` has the names of the secrets by variable. Raises
    SecretUnavailableError."""
    if not secret_names:
        return {}
    rows = Secret.objects.filter(project_id=project_id, name__in=set(secret_names.values()))
    sealed = dict(rows.values_list("name", "value"))
    found = {}
    for variable, name in secret_names.items():
        if name not in sealed:
            raise SecretUnavailableError("SECRET_MISSING", name, variable)
        try:
            found[variable] = encryption.decrypt_value(sealed[name])
        except encryption.DecryptionError:
            raise SecretUnavailableError("SECRET_UNREADABLE", name, variable) from None
    return found

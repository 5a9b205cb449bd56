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
from apps.common.row_bounds import check_rows
from fermi.jobs.spec import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Unavailable(Exception):
    """A value cannot be read: `code` is SECRET_MISSING or SECRET_UNREADABLE."""

    def __init__(self, code: str, secret: str, variable: str) -> None:
        super().__init__(f"{code}: {secret}")
        self.code = code
        self.params = {"secret": secret, "variable": variable}


def listing(project: Project) -> QuerySet[Secret, Any]:
    """Return the names of the project's secrets, with who set them and when."""
    return Secret.objects.filter(project=project).values(
        "name",
        createdAt=F("created_at"),
        createdBy=F("created_by__username"),
        updatedAt=F("updated_at"),
        updatedBy=F("updated_by__username"),
    )


def unknown(project_id: str, wanted: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each variable in `secret_names` (name of the secret by variable) whose secret does not
    exist. Values are read when an attempt starts."""
    if not wanted:
        return []
    known = set(Secret.objects.filter(project_id=project_id).values_list("name", flat=True))
    listed = ", ".join(sorted(known)) or "–"
    return [
        Problem(f"secretEnv.{variable}", "SECRET_UNKNOWN", {"secret": name, "known": listed})
        for variable, name in wanted.items()
        if name not in known
    ]


@transaction.atomic
def put(user: User, project: Project, name: str, value: str) -> dict[str, Any]:
    """Create or replace a secret and return its row. Tasks get the new value with their next attempt."""
    access.require(user, project, Role.MAINTAINER)
    if not _NAME.fullmatch(name):
        raise ApiError(400, "SECRET_NAME_INVALID", "name", name=name)
    mine = Secret.objects.filter(project=project)
    if not mine.filter(name=name).exists():
        check_rows("secrets", mine)
    moment = now()
    changed = {"value": encryption.seal(value), "updated_at": moment, "updated_by": user}
    _, made = Secret.objects.update_or_create(
        project=project,
        name=name,
        defaults=changed,
        create_defaults={**changed, "created_at": moment, "created_by": user},
    )
    audit.record(user, "secret.create" if made else "secret.replace", name, project=project)
    found: dict[str, Any] = listing(project).get(name=name)
    return found


@transaction.atomic
def remove(user: User, project: Project, name: str) -> None:
    """Delete a secret. Raises ApiError 404 if it does not exist."""
    access.require(user, project, Role.MAINTAINER)
    if not Secret.objects.filter(project=project, name=name).delete()[0]:
        raise ApiError(404, "NOT_FOUND")
    audit.record(user, "secret.delete", name, project=project)


def reveal(project_id: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the present values by variable; `secret_names` has the names of the secrets by variable. Raises
    SecretUnavailableError."""
    if not wanted:
        return {}
    rows = Secret.objects.filter(project_id=project_id, name__in=set(wanted.values()))
    sealed = dict(rows.values_list("name", "value"))
    found = {}
    for variable, name in wanted.items():
        if name not in sealed:
            raise Unavailable("SECRET_MISSING", name, variable)
        try:
            found[variable] = encryption.unseal(sealed[name])
        except encryption.Unreadable:
            raise Unavailable("SECRET_UNREADABLE", name, variable) from None
    return found

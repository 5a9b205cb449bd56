"""Checks whether the source of a snapshot has changed since, without storing anything or fetching contents."""

from collections.abc import Mapping
from typing import Any

from apps.accounts import secrets
from apps.accounts.models import Project
from apps.code import from_environment, git

TIMEOUT_SECONDS = 3.0
"""Timeout of the environment or the Git server."""


def has_changed(project: Project, source: Mapping[str, Any], snapshot: str, commit: str) -> bool | None:
    """Return True if the source (`Fetch.source`) differs from the snapshot and commit that were taken of it, and None
    if only a fetch can tell. Raises FetchError and SecretUnavailableError."""
    if "environment" in source:
        return from_environment.read_snapshot_id(project, source, TIMEOUT_SECONDS) != snapshot
    asked = source["git"]
    named = asked.get("secret")
    secret = secrets.reveal_secrets(project.pk, {"code.git": named})["code.git"] if named else ""
    found = git.find_commit(asked["url"], asked["revision"], secret, TIMEOUT_SECONDS)
    return found != commit if found and commit else None

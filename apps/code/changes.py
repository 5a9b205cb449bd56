"""Whether the source of a snapshot has changed since: a look that stores nothing and fetches no content."""

from collections.abc import Mapping
from typing import Any

from apps.accounts import secrets
from apps.accounts.models import Project
from apps.code import from_environment, git

SECONDS = 3.0
"""For what an environment or a git server says."""


def has_changed(project: Project, source: Mapping[str, Any], snapshot: str, commit: str) -> bool | None:
    """Compares the source, as `Fetch.source` names it, with the snapshot and the commit that were taken of it. None:
    only a fetch can tell. Raises FetchError, and vault.Unavailable."""
    if "environment" in source:
        return from_environment.identify(project, source, SECONDS) != snapshot
    asked = source["git"]
    named = asked.get("secret")
    secret = secrets.reveal(project.pk, {"code.git": named})["code.git"] if named else ""
    found = git.find_commit(asked["url"], asked["revision"], secret, SECONDS)
    return found != commit if found and commit else None

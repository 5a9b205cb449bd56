"""Fetches code that the platform reads itself, from Git or from an environment.

fetching, due ──claim (compare-and-set on due_at)──▶ fetching, due again after CLAIM_SPAN ──▶ ready | failed

If the process dies, the fetch is due again when its claim lapses, and starts anew; it makes the same snapshot.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.accounts import audit, secrets
from apps.accounts.models import Project, User
from apps.code import from_environment, from_folder, git
from apps.code.errors import FetchError
from apps.code.models import Fetch, FetchStatus, Snapshot
from apps.common import claims, wakeups
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit

CHANGE_CHECK_TIMEOUT_SECONDS = 3.0
"""Timeout of the environment or the Git server."""


log = logging.getLogger(__name__)

CLAIM_SPAN = timedelta(seconds=30)
"""Renewed during a try (`apps.common.claims`)."""
DEADLINE = timedelta(minutes=30)
MAX_TRIES = 5
RETRY_DELAY = timedelta(seconds=10)


def create_fetch(user: User, project: Project, source: dict[str, Any]) -> Fetch:
    """Create a fetch and wake a worker for it."""
    moment = now()
    with transaction.atomic():
        check_row_limit("code-fetches", Fetch.objects.filter(created_by=user, status=FetchStatus.FETCHING))
        made = Fetch.objects.create(
            project=project,
            created_by=user,
            source=source,
            created_at=moment,
            deadline_at=moment + DEADLINE,
            due_at=moment,
        )
        audit.record_event(user, "code.fetch", made.pk, project=project, source=_redact_source(source))
        wakeups.enqueue_after_commit("code.fetch", made.pk)
    return made


def list_due_fetches() -> list[str]:
    """Return the ids of fetches that are due."""
    return list(Fetch.objects.filter(status=FetchStatus.FETCHING, due_at__lte=now()).values_list("pk", flat=True))


def run_fetch(fetch_id: str) -> bool:
    """Fetch the code and store the result. Returns False if another process has it, or if it is not due."""
    row = Fetch.objects.select_related("project", "created_by").filter(pk=fetch_id).first()
    if row is None or row.status != FetchStatus.FETCHING or row.due_at is None or row.due_at > now():
        return False
    claim = claims.claim_row(row, CLAIM_SPAN, tries=row.tries + 1)
    if claim is None:
        return False
    with claim.kept():
        try:
            found = _build_final_values(FetchStatus.READY, snapshot=_take_snapshot(row))
        except FetchError as error:
            failed = {"code": error.code, **error.params}
            found = _build_final_values(FetchStatus.FAILED, error=failed)
            if error.retry and row.tries + 1 < MAX_TRIES and now() + RETRY_DELAY < row.deadline_at:
                found = {"due_at": now() + RETRY_DELAY * 2**row.tries, "error": failed}
        except secrets.SecretUnavailableError as absent:
            found = _build_final_values(FetchStatus.FAILED, error={"code": absent.code, **absent.params})
        except ApiError as error:
            problem = error.problems[0]
            found = _build_final_values(FetchStatus.FAILED, error={"code": problem.code, **problem.params})
        except Exception as error:
            log.exception("fetch %s", row.pk)
            why = f"{type(error).__name__}: {error}"
            found = _build_final_values(FetchStatus.FAILED, error={"code": "CODE_FETCH_BROKE", "why": why})
        claim.write(**found)
    return True


def _take_snapshot(row: Fetch) -> Snapshot:
    if "environment" in row.source:
        return from_environment.create_snapshot(row.created_by, row.project, row.source)
    asked = row.source["git"]
    named = asked.get("secret")
    secret = secrets.reveal_secrets(row.project_id, {"code.git": named})["code.git"] if named else ""
    with git.fetch_revision(asked["url"], asked["revision"], secret) as found:
        origin = {
            "kind": "git",
            "url": git.redact_url(asked["url"]),
            "revision": asked["revision"],
            "commit": found.commit,
            "branch": found.branch,
            "dirty": False,
        }
        return from_folder.create_snapshot(row.created_by, row.project, found.folder, origin)


def _build_final_values(status: FetchStatus, **values: Any) -> dict[str, Any]:
    return {"error": None, **values, "status": status, "due_at": None}


def _redact_source(source: dict[str, Any]) -> dict[str, Any]:
    asked = source.get("git")
    return {**source, "git": {**asked, "url": git.redact_url(asked["url"])}} if asked else source


def describe_source(source: dict[str, Any]) -> str:
    """Return the source as shown to people: the repository's address without credentials, or `environment:path`."""
    return git.redact_url(source["git"]["url"]) if "git" in source else f"{source['name']}:{source['path']}"


def has_changed(project: Project, source: Mapping[str, Any], snapshot: str, commit: str) -> bool | None:
    """Return True if the source (`Fetch.source`) differs from the snapshot and commit that were taken of it, and None
    if only a fetch can tell. Raises FetchError and SecretUnavailableError."""
    if "environment" in source:
        return from_environment.read_snapshot_id(project, source, CHANGE_CHECK_TIMEOUT_SECONDS) != snapshot
    asked = source["git"]
    named = asked.get("secret")
    secret = secrets.reveal_secrets(project.pk, {"code.git": named})["code.git"] if named else ""
    found = git.find_commit(asked["url"], asked["revision"], secret, CHANGE_CHECK_TIMEOUT_SECONDS)
    return found != commit if found and commit else None

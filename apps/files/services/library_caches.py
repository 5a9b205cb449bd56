"""Measures the projects' caches of libraries, and keeps them below their limits."""

import logging
import os
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.common import wakeups
from apps.common.clock import now
from apps.files.models import LibraryCache
from fermi.engines import library_cache
from fermi.engines.library_cache import CacheCleanup, CacheUnit
from fermi.jobs.user_paths import HOMES_FOLDER

log = logging.getLogger(__name__)

MAX_LISTED = 20
MAX_PATH_CHARACTERS = 200
NO_LIMIT = 1 << 62


def get_limit(project: Project) -> int | None:
    """Return the most bytes that the project's cache may have; None: no limit."""
    limits = getattr(project, "limits", None)
    if limits is not None and limits.max_cache_bytes is not None:
        return int(limits.max_cache_bytes)
    return settings.CACHE_MAX_GB << 30 if settings.CACHE_MAX_GB else None


def request_cleanup(user: User, project: Project, keep_bytes: int) -> None:
    """Have a worker remove what no running task uses until the cache has at most `keep_bytes` bytes (maintainer)."""
    access.require_role(user, project, Role.MAINTAINER)
    audit.record_event(user, "cache.clean", project.pk, project=project, keepBytes=keep_bytes)
    wakeups.enqueue_after_commit("training.caches", project.pk, str(keep_bytes))


def clean_caches(
    find_busy_since: Callable[[str], float | None], project_id: str = "", keep_bytes: int | None = None
) -> None:
    """Measure and clean the caches of all projects, or of one. `find_busy_since` returns when the oldest running task
    of a project began (unix seconds), None where none runs; `keep_bytes`: instead of the project's limit."""
    for project in _list_projects([project_id] if project_id else _list_homes()):
        limit = get_limit(project)
        most = NO_LIMIT if limit is None else limit
        if keep_bytes is not None:
            most = min(most, keep_bytes)
        try:
            _clean_cache(project, most, limit, lambda key=project.pk: find_busy_since(key))  # type: ignore[misc]
        except IntegrityError:  # the project was deleted meanwhile
            continue


def _list_homes() -> list[str]:
    try:
        return os.listdir(settings.DATA_DIR / HOMES_FOLDER)
    except OSError:
        return []


def _list_projects(keys: Collection[str]) -> list[Project]:
    return list(Project.objects.filter(pk__in=keys).select_related("limits").order_by("pk"))


def _clean_cache(project: Project, most: int, limit: int | None, find_busy_since: Callable[[], float | None]) -> None:
    moment = now()
    try:
        done = library_cache.clean_cache(settings.DATA_DIR / HOMES_FOLDER, project.pk, most, find_busy_since)
    except FileNotFoundError:
        LibraryCache.objects.filter(project=project).delete()
        return
    except OSError as error:
        why = error.strerror or str(error)
        LibraryCache.objects.update_or_create(project=project, defaults={"error": why, "measured_at": moment})
        return
    freed = sum(unit.size for unit in done.removed)
    values = {**_describe(done), "error": "", "measured_at": moment}
    values["excess"] = 0 if limit is None else max(0, done.left.size - limit)
    if done.removed:
        values |= {"cleaned_at": moment, "freed": freed}
        log.info("%s: removed %d of its cache, %d bytes", project.pk, len(done.removed), freed)
    LibraryCache.objects.update_or_create(project=project, defaults=values)


def _describe(done: CacheCleanup) -> dict[str, Any]:
    largest = sorted(done.left.units, key=lambda unit: -unit.size)[:MAX_LISTED]
    return {
        "size": done.left.size,
        "count": len(done.left.units),
        "is_complete": done.left.is_complete,
        "largest": [_serialize_unit(unit) for unit in largest],
    }


def _serialize_unit(unit: CacheUnit) -> dict[str, Any]:
    """Return a unit as it is stored: names of files may have bytes that are no text."""
    path = os.fsencode(unit.path).decode(errors="replace")
    used_at = datetime.fromtimestamp(max(0.0, unit.used_at), UTC)
    return {"path": path[:MAX_PATH_CHARACTERS], "size": unit.size, "usedAt": used_at.isoformat(timespec="seconds")}

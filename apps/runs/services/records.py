"""What people say of runs: tags, notes, and which are archived; of one run, or of many at once."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.runs.models import Run, RunTag
from apps.runs.selectors import get_record
from apps.training.public import Task, TaskKind, delete_task, find_task, stop_task
from fermi.jobs.errors import LaunchError
from fermi.jobs.spec import Problem
from fermi.planning.tags import MAX_TAGS

MAX_TASKS = 1000
"""Tasks of one request."""
MAX_ACTION_SECONDS = 20.0
"""How long one request stops or deletes tasks; those that are left are refused."""


class BulkAction(StrEnum):
    """What can be done with many runs at once."""

    ADD_TAGS = "addTags"
    REMOVE_TAGS = "removeTags"
    ARCHIVE = "archive"
    UNARCHIVE = "unarchive"
    STOP = "stop"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of one task of a request. `refusal`: why nothing was done; None: it was done."""

    task: str
    refusal: ApiError | None = None


def change_record(user: User, task_id: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Set the tags, the note or whether a run is archived, and return its record. Raises ApiError 404 or 403."""
    task = find_task(user, task_id, Role.MEMBER)
    with transaction.atomic():
        if "tags" in changes:
            wanted = set(changes["tags"])
            rows = RunTag.objects.filter(task=task)
            rows.exclude(name__in=wanted).delete()
            _add_tags([task.pk], wanted - set(rows.values_list("name", flat=True)))
        if "note" in changes:
            Run.objects.update_or_create(task=task, defaults={"note": changes["note"]})
        if "archived" in changes:
            _set_archived([task.pk], changes["archived"])
        audit.record_event(user, "run.change", task.pk, project=task.project_id, fields=sorted(changes))
    return get_record(task)


def change_runs(user: User, task_ids: Sequence[str], action: BulkAction, tags: Collection[str]) -> list[BulkResult]:
    """Do the same with many runs; return what became of each, in the order of the request, each once. A run that is
    refused changes nothing about the others."""
    keys = list(dict.fromkeys(task_ids))
    if action in (BulkAction.STOP, BulkAction.DELETE):
        return _act_one_by_one(user, keys, stop_task if action is BulkAction.STOP else delete_task)
    results, projects = _check_rights(user, keys)
    allowed = [result.task for result in results if result.refusal is None]
    with transaction.atomic():
        full = _find_full(allowed, tags) if action is BulkAction.ADD_TAGS else set()
        changed = [key for key in allowed if key not in full]
        match action:
            case BulkAction.ADD_TAGS:
                _add_tags(changed, tags)
            case BulkAction.REMOVE_TAGS:
                RunTag.objects.filter(task__in=changed, name__in=tags).delete()
            case _:
                _set_archived(changed, action is BulkAction.ARCHIVE)
        for project, count in sorted(Counter(projects[key] for key in changed).items()):
            audit.record_event(user, "run.change", "", project=project, change=action.value, runs=count)
    return [
        BulkResult(one.task, ApiError(409, "RUN_TAGS_FULL", high=MAX_TAGS)) if one.task in full else one
        for one in results
    ]


def _check_rights(user: User, keys: Sequence[str]) -> tuple[list[BulkResult], dict[str, str]]:
    """Return which tasks the user may change, and the projects of the tasks that the user may see."""
    rows = access.filter_visible(Task.objects.filter(pk__in=keys, kind=TaskKind.TRAINING), user)
    projects, may_change = dict(rows.values_list("pk", "project_id")), access.make_usage_check(user)
    results = []
    for key in keys:
        if key not in projects:
            results.append(BulkResult(key, ApiError(404, "NOT_FOUND")))
        else:
            results.append(BulkResult(key, None if may_change(projects[key]) else ApiError(403, "FORBIDDEN")))
    return results, projects


def _act_one_by_one(user: User, keys: Iterable[str], act: Callable[[User, str], Any]) -> list[BulkResult]:
    results, until = [], monotonic() + MAX_ACTION_SECONDS
    for key in keys:
        try:
            if monotonic() >= until:
                raise ApiError(503, "RUNS_NOT_REACHED", seconds=MAX_ACTION_SECONDS)
            act(user, key)
            results.append(BulkResult(key))
        except ApiError as refusal:
            results.append(BulkResult(key, refusal))
        except LaunchError as error:  # its engine cannot be asked
            refused = ApiError(503, error.code)
            refused.problems = [Problem("", error.code, error.params)]
            results.append(BulkResult(key, refused))
    return results


def _find_full(keys: Collection[str], tags: Collection[str]) -> set[str]:
    """Return the tasks that would have too many tags."""
    had = Counter(RunTag.objects.filter(task__in=keys).exclude(name__in=tags).values_list("task_id", flat=True))
    return {key for key, count in had.items() if count + len(set(tags)) > MAX_TAGS}


def _add_tags(keys: Iterable[str], tags: Iterable[str]) -> None:
    rows = [RunTag(task_id=key, name=name) for key in keys for name in sorted(set(tags))]
    RunTag.objects.bulk_create(rows, ignore_conflicts=True, batch_size=1000)


def _set_archived(keys: Sequence[str], archived: bool) -> None:
    """Archive tasks, or take that back. What is archived already keeps its date."""
    if not archived:
        Run.objects.filter(task__in=keys).update(archived_at=None)
        return
    moment = now()
    Run.objects.bulk_create([Run(task_id=key) for key in keys], ignore_conflicts=True)
    Run.objects.filter(task__in=keys, archived_at=None).update(archived_at=moment)

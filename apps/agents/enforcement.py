"""Compares what a token's tasks use with its purse: when a task is created, and while tasks run.

The check of a new task is part of the transaction that stores it, and it locks the purse: of two requests at once, the
second one waits for the first and then counts its task. What goes beyond is rolled back, and `PurseExceededError` then
stores the request as a proposal.
"""

import logging
from typing import Any

from django.conf import settings
from django.db.models.signals import post_save
from django.http import HttpRequest

from apps.accounts import audit
from apps.accounts.models import AuditEvent
from apps.agents.expenditure import estimate_task, is_spent, list_excesses, measure_spending
from apps.agents.models import Purse
from apps.agents.services.proposals import Draft, propose_request
from apps.common.errors import ApiError
from apps.training.public import Task, pause_task

log = logging.getLogger(__name__)

CREATE_PATH = "/api/v1/training-tasks"


class PurseExceededError(ApiError):
    """A task goes beyond the purse of the token that creates it. `draft`: what is proposed in its place."""

    def __init__(self, purse: Purse, draft: Draft) -> None:
        super().__init__(403, "PURSE_EXCEEDED")
        self.purse = purse
        self.draft = draft

    def finish(self, request: HttpRequest | None) -> ApiError:
        """Store the proposal, which the rolled-back transaction could not do, and return the error that names it."""
        return propose_request(self.purse, self.draft, getattr(request, "user", None))


def connect_check() -> None:
    """Have each task that a token creates checked."""
    post_save.connect(check_created_task, AuditEvent, dispatch_uid="agents-purse")


def check_created_task(sender: Any, instance: AuditEvent, created: bool, **kwargs: Any) -> None:
    """Check a task that was stored in this transaction. Raises PurseExceededError, which rolls it back.

    A token with a purse always has scopes, so that others cost no query."""
    if not created or not instance.token_has_scopes or instance.action != "task.create":
        return
    purse = (
        Purse.objects.select_for_update(of=("self",)).select_related("token__user").filter(pk=instance.token).first()
    )
    if purse is None:
        return
    task = Task.objects.get(pk=instance.target)
    before, most = measure_spending(purse, without=[task.pk]), estimate_task(task)
    if excesses := list_excesses(purse, task, before, most):
        plan = {
            "name": task.name,
            "nodes": task.node_count,
            "gpus": most.gpus,
            "environments": [node["name"] for node in task.spec["nodes"]],
            "maxRunSeconds": task.max_run_seconds,
            "gpuHours": most.gpu_hours,
            "cost": most.cost,
            "currency": settings.CURRENCY,
        }
        draft = Draft("createTask", "POST", CREATE_PATH, task.request, task.project_id, excesses, plan)
        raise PurseExceededError(purse, draft)


def pause_spent_purses() -> int:
    """Pause the tasks of purses of which nothing is left; return how many. A task is paused for it once: a person who
    resumes it lets it run. A purse that fails does not keep the others from being looked through."""
    paused = 0
    for purse in Purse.objects.select_related("token__user").order_by("pk").iterator():
        try:
            paused += _pause_if_spent(purse)
        except Exception:
            log.exception("the purse of the token %s cannot be compared with what its tasks use", purse.pk)
    return paused


def _pause_if_spent(purse: Purse) -> int:
    if purse.gpu_hours is None and purse.money is None:
        return 0
    spending = measure_spending(purse)
    if not spending.running or not is_spent(purse, spending):
        return 0
    known, count = set(purse.paused), 0
    for key in [key for key in spending.running if key not in known]:
        try:
            task = pause_task(purse.token.user, key, "PURSE_SPENT", agent=purse.agent or purse.token.name)
        except ApiError as error:
            log.warning("the task %s of a spent purse is not paused: %s", key, error.code)
            continue
        audit.record_event(None, "purse.pause", key, project=task.project_id, purse=purse.pk)
        count += 1
    Purse.objects.filter(pk=purse.pk).update(paused=list(spending.running))
    return count

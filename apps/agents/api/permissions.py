"""Permission class of the API: what a token with a purse may do at once."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts import access
from apps.accounts.models import AuditEvent
from apps.agents.expenditure import is_spent, measure_spending
from apps.agents.models import Purse
from apps.agents.policy import Rule, find_rule
from apps.agents.services.proposals import Draft, propose_request
from apps.clusters.models import DevEnvironment
from apps.common.errors import ApiError
from apps.training.public import Task


class WithinPurse(BasePermission):
    """Refuses to a token with a purse what only a person may do, and stores it as a proposal where a person may
    approve it (`apps.agents.policy`). What creates tasks passes here and is checked as they are stored
    (`apps.agents.enforcement`). A token with a purse always has scopes, so that others cost no query."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return True. Raises ApiError 403 PURSE_REFUSED or PURSE_EXCEEDED."""
        rights = getattr(request.user, "token_rights", None)
        method = getattr(view, (request.method or "").lower(), None)
        if rights is None or rights.scopes is None or method is None:
            return True
        operation = getattr(method, "operation_id", "")
        rule = find_rule(operation, getattr(method, "scope", None), request.method or "")
        if rule in (Rule.FREE, Rule.CHECKED):
            return True
        purse = Purse.objects.select_related("token__user").filter(pk=rights.token).first()
        if purse is None:
            return True
        if rule is Rule.REFUSED:
            raise ApiError(403, "PURSE_REFUSED", operation=operation)
        own = rule is Rule.OWN and _is_own(purse, view.kwargs.get("task_id"))
        if own and not is_spent(purse, measure_spending(purse)):
            return True
        excess = {"code": "PURSE_OPERATION", "params": {"operation": operation}}
        body = request.data if isinstance(request.data, dict) else {}
        project = _find_project(request, view.kwargs, body)
        draft = Draft(operation, request.method or "", request.get_full_path(), dict(body), project, [excess])
        raise propose_request(purse, draft, request.user)


def _is_own(purse: Purse, task_id: str | None) -> bool:
    return AuditEvent.objects.filter(token=purse.pk, action="task.create", target=task_id or "").exists()


def _find_project(request: Request, kwargs: dict[str, Any], body: dict[str, Any]) -> str | None:
    """Return the project that the request is about, if it names one where its user has a role."""
    found: Any = kwargs.get("project_id") or body.get("projectId")
    if task := kwargs.get("task_id"):
        found = Task.objects.filter(pk=task).values_list("project", flat=True).first()
    if environment := kwargs.get("environment_id"):
        found = DevEnvironment.objects.filter(pk=environment).values_list("project", flat=True).first()
    return found if isinstance(found, str) and access.get_role(request.user, found) is not None else None

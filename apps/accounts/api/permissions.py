"""Permission class of the API: what a narrow token may call."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.scopes import ANY, TokenRights
from apps.common.errors import ApiError


class HasScope(BasePermission):
    """Allows a narrow token only operations of its scopes, and a token of tasks only operations on these tasks. What
    states no scope is refused to it. Sessions, and tokens with all rights of their user, pass."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return True. Raises ApiError 403 SCOPE_MISSING or TOKEN_TASK_OTHER."""
        rights: TokenRights | None = getattr(request.user, "token_rights", None)
        if rights is None or not rights.narrow:
            return True
        method = getattr(view, (request.method or "").lower(), None)
        scope = getattr(method, "scope", None)
        if method is None:
            return True  # answered with 405
        if scope is None or not rights.has_scope(scope):
            raise ApiError(403, "SCOPE_MISSING", scope=scope or "–", token=rights.name)
        if rights.tasks is not None and scope != ANY and view.kwargs.get("task_id") not in rights.tasks:
            raise ApiError(403, "TOKEN_TASK_OTHER", token=rights.name, tasks=", ".join(sorted(rights.tasks)[:5]))
        return True

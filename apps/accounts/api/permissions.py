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
        if method is None:
            return True  # answered with 405
        require_scope(request.user, getattr(method, "scope", None), view.kwargs.get("task_id"))
        return True


def require_scope(user: Any, scope: str | None, task: str | None = None) -> None:
    """Raise ApiError 403 SCOPE_MISSING unless the token of the user's request, if it is narrow, has the scope, and
    TOKEN_TASK_OTHER unless it may be used for `task`, the only one that is concerned. `scope` None: of none."""
    rights: TokenRights | None = getattr(user, "token_rights", None)
    if rights is None or not rights.narrow:
        return
    if scope is None or not rights.has_scope(scope):
        raise ApiError(403, "SCOPE_MISSING", scope=scope or "–", token=rights.name)
    if rights.tasks is not None and scope != ANY and task not in rights.tasks:
        raise ApiError(403, "TOKEN_TASK_OTHER", token=rights.name, tasks=", ".join(sorted(rights.tasks)[:5]))

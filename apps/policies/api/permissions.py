"""Permission class of the API: tokens of people who lack a required second factor."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.models import User
from apps.policies.enforcement import check_token


class WithinSignInPolicy(BasePermission):
    """Refuses such tokens. Sessions are the middleware's matter."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return True. Raises ApiError 403 SECOND_FACTOR_REQUIRED."""
        if isinstance(request.user, User) and request.user.token_rights is not None:
            check_token(request.user)
        return True

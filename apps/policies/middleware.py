"""Middleware: sessions end as the policy says, and do nothing before what it asks for is done."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse

from apps.common.errors import ApiError
from apps.common.middleware import make_error_response
from apps.policies.enforcement import check_session, renew_session
from apps.policies.policy import get_policy

OPEN_PREFIXES = ("/_allauth/", "/auth/", "/api/v1/auth/banner", "/api/v1/auth/providers", "/api/v1/auth/sign-in")
"""Paths that signing in, setting up a second factor and accepting the banner need. Of all others only the console's
pages, which show nothing by themselves, are open."""


class SignInPolicyMiddleware:
    """Comes after Django's authentication."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        policy = get_policy() if settings.SESSION_COOKIE_NAME in request.COOKIES else None
        limited = policy is not None and policy.limits_sessions and request.user.is_authenticated
        if policy and limited and not renew_session(request.session, policy):
            logout(request)
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """Answer 403 instead of the view where the session may do nothing yet."""
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path.startswith(OPEN_PREFIXES):
            return None
        policy = get_policy()
        if not policy.concerns_sessions or not request.user.is_authenticated or _is_page(view):
            return None
        try:
            check_session(request.user, request.session, policy)
        except ApiError as error:
            return make_error_response(error)
        return None


def _is_page(view: Any) -> bool:
    return f"{view.__module__}.{getattr(view, '__qualname__', '')}" in settings.POLICY_OPEN_VIEWS

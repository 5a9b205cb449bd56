"""Limits on how often the API is called, for each token, each signed-in user, and each address without either."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.api.authentication import BearerAuthentication, CookieAuthentication
from apps.common import rate_limits, request_id
from apps.common.errors import ApiError
from apps.common.middleware import make_error_response
from apps.common.rate_limits import RateState

LIMITED_PATHS = ("/api/", "/scim/")
GetResponse = Callable[[HttpRequest], HttpResponse]


class WithinRateLimit(BasePermission):
    """Counts a request against its token's limit, else its user's. It comes before the other permissions, so that
    refused requests count as well. Ranks, workers and TensorBoards, which authenticate otherwise, are not limited."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return True. Raises ApiError 429 RATE_LIMITED."""
        who = request.successful_authenticator
        if isinstance(who, BearerAuthentication):
            policy, key = "token", request.auth.digest[:32]  # type: ignore[union-attr]
        elif isinstance(who, CookieAuthentication):
            policy, key = "user", str(request.user.pk)
        else:
            return True
        cost = getattr(getattr(view, (request.method or "").lower(), None), "cost", 1)
        state = rate_limits.count_request(policy, key, settings.RATE_LIMIT, cost)
        request._request.rate_state = state  # type: ignore[attr-defined]
        if state and not state.allowed:
            raise _make_refusal(state)
        return True


def _make_refusal(state: RateState) -> ApiError:
    return ApiError(429, "RATE_LIMITED", seconds=state.retry_after, limit=state.limit)


def limit_rates(get_response: GetResponse) -> GetResponse:
    """Tell each client of the API how much of its limit is left. Count answers 401 for each address, and answer 429 in
    their place where there are too many: a valid token works from such an address all the same."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        state: RateState | None = getattr(request, "rate_state", None)
        if response.status_code == 401 and state is None and request.path.startswith(LIMITED_PATHS):
            address = request_id.get_client_address() or "unknown"
            state = rate_limits.count_request("address", address, settings.RATE_LIMIT_ANONYMOUS)
            if state and not state.allowed:
                error = ApiError(429, "SIGN_INS_TOO_MANY", seconds=state.retry_after, limit=state.limit)
                with translation.override(translation.get_language_from_request(request)):
                    response = make_error_response(error)
        if state:
            for name, value in rate_limits.build_headers(state).items():
                response.headers[name] = value
        return response

    return middleware

"""allauth's request for a new password, which it has no hook to refuse in."""

from typing import Any

from allauth.headless.account.views import RequestPasswordResetView
from allauth.headless.constants import Client
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse

from apps.accounts.adapter import LOCAL_ACCOUNTS_OFF
from apps.common.texts import render_text

_view = RequestPasswordResetView.as_api_view(client=Client.BROWSER)


def request_password_reset(request: HttpRequest, **values: Any) -> HttpResponseBase:
    """Refuse in allauth's form where passwords are refused; otherwise let allauth answer."""
    if settings.LOCAL_ACCOUNTS:
        return _view(request, **values)
    error = {"message": render_text("LOCAL_ACCOUNTS_OFF")[0], "code": LOCAL_ACCOUNTS_OFF, "param": "email"}
    return JsonResponse({"status": 400, "errors": [error]}, status=400)

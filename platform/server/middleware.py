"""Middleware: the content security policy header of every response, and the time zone of Django's admin."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.common.clock import get_time_zone

ZONE_COOKIE = "fermi_zone"
"""Cookie with the browser's time zone. The console writes it, beside the cookie of the language."""

GetResponse = Callable[[HttpRequest], HttpResponse]


def content_security_policy(get_response: GetResponse) -> GetResponse:
    """Add the Content-Security-Policy header: scripts come from this origin only, so that no user's text can become
    one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        operators = request.path.startswith("/admin/")
        policy = settings.ADMIN_CONTENT_SECURITY_POLICY if operators else settings.CONTENT_SECURITY_POLICY
        response.headers.setdefault("Content-Security-Policy", policy)
        return response

    return middleware


def admin_time_zone(get_response: GetResponse) -> GetResponse:
    """Show and read times of Django's admin in the time zone of the browser; in UTC where it is not known. The API's
    times carry their zone."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/admin/"):
            return get_response(request)
        with timezone.override(get_time_zone(request.COOKIES.get(ZONE_COOKIE, ""))):
            return get_response(request)

    return middleware

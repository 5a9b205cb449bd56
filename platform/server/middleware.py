"""Response headers that every page and answer carries."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

GetResponse = Callable[[HttpRequest], HttpResponse]


def content_security_policy(get_response: GetResponse) -> GetResponse:
    """Scripts come from this origin alone, so that no text a user typed can become one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        operators = request.path.startswith("/admin/")
        policy = settings.ADMIN_CONTENT_SECURITY_POLICY if operators else settings.CONTENT_SECURITY_POLICY
        response.headers.setdefault("Content-Security-Policy", policy)
        return response

    return middleware

"""Redirects from the console into an environment."""

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.accounts.models import User
from apps.common.errors import ApiError
from apps.common.texts import get_request_language
from apps.proxy import error_pages, tickets


@never_cache
@require_GET
def open_environment(request: HttpRequest, environment_id: str) -> HttpResponse:
    """Redirect with a ticket to the proxy address, or to the sign-in page if no user is signed in."""
    console = f"{request.scheme}://{request.get_host()}"
    if not isinstance(request.user, User):
        return HttpResponseRedirect(f"/sign-in?{urlencode({'next': request.get_full_path()})}")
    try:
        if request.headers.get("Sec-Fetch-Dest", "document") != "document":
            raise ApiError(403, "DOOR_CROSS_SITE", origin=request.headers.get("Sec-Fetch-Site", ""))
        ticket = tickets.create_ticket(
            request.user,
            environment_id,
            door=request.GET.get("door", ""),
            path=request.GET.get("path", "/"),
            console=console,
            session=request.session.session_key or "",
        )
    except ApiError as error:
        page = error_pages.render_page(error, get_request_language(), console=f"{console}/environments")
        response = HttpResponse(page, status=error.status)
    else:
        response = HttpResponseRedirect(ticket.url)
    for name, value in error_pages.SAFE_HEADERS:
        response[name.decode()] = value.decode()
    return response

"""The page behind a sign-in link."""

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.accounts import services
from apps.common.texts import render_text

HOME_PATH = "/"


@never_cache
@require_GET
def sign_in_by_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Sign the user in by a link, once, and redirect to the console. A second visit redirects too if the browser is
    signed in already."""
    if user := services.redeem_sign_in_link(secret):
        login(request, user, backend="allauth.account.auth_backends.AuthenticationBackend")
        return HttpResponseRedirect(HOME_PATH)
    if request.user.is_authenticated:
        return HttpResponseRedirect(HOME_PATH)
    message, hint = render_text("SIGN_IN_LINK_SPENT")
    page = '<!doctype html><meta charset="utf-8"><title>Fermi</title><p>{}<p>{}<p><a href="/sign-in">/sign-in</a>'
    return HttpResponse(format_html(page, message, hint), status=410)

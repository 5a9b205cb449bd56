"""The page that ends the trial of a provider: what it answered, and nothing is changed by it."""

import json
from typing import NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.models import SocialLogin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from apps.common.texts import render_text
from apps.identity.errors import SignInError

MAX_SHOWN = 100_000


def show_claims(request: HttpRequest, login: SocialLogin, code: str = "IDENTITY_TRIAL_DONE") -> NoReturn:
    """Answer with the claims and the text of `code`, to an administrator. No account is looked up, made or changed, and
    no session begins. Raises SignInError for others."""
    if not getattr(request.user, "is_superuser", False):
        raise SignInError("IDENTITY_TRIAL_ADMINISTRATOR")
    message, hint = render_text(code)
    claims = json.dumps(login.account.extra_data, ensure_ascii=False, indent=2, sort_keys=True)[:MAX_SHOWN]
    page = '<!doctype html><meta charset="utf-8"><title>Fermi</title><h1>{}</h1><p>{}</p><p>{} · {}</p><pre>{}</pre>'
    answer = HttpResponse(
        format_html(page, message, hint, login.account.provider, login.account.uid, claims),
        headers={"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'"},
    )
    raise ImmediateHttpResponse(answer)

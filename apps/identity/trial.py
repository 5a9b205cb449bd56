"""The page that ends the trial of a provider: what it answered, and nothing is changed by it."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.models import SocialLogin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join

from apps.common.texts import get_request_language, render_text
from apps.identity.errors import SignInError
from fermi import messages

MAX_SHOWN = 100_000


def show_claims(request: HttpRequest, login: SocialLogin, code: str = "IDENTITY_TRIAL_DONE") -> NoReturn:
    """Answer with the claims and the text of `code`, to an administrator. No account is looked up, made or changed, and
    no session begins. Raises SignInError for others."""
    if not getattr(request.user, "is_superuser", False):
        raise SignInError("IDENTITY_TRIAL_ADMINISTRATOR")
    texts = [*render_text(code)]
    if left_out := _list_claims_left_out(login.account.extra_data):
        language = get_request_language()
        texts += messages.render_text("IDENTITY_CLAIMS_LEFT_OUT", language, claims=", ".join(left_out))
    claims = json.dumps(login.account.extra_data, ensure_ascii=False, indent=2, sort_keys=True)[:MAX_SHOWN]
    page = '<!doctype html><meta charset="utf-8"><title>Fermi</title><h1>{}</h1>{}<p>{} · {}</p><pre>{}</pre>'
    lines = format_html_join("", "<p>{}</p>", ((text,) for text in texts[1:]))
    answer = HttpResponse(
        format_html(page, texts[0], lines, login.account.provider, login.account.uid, claims),
        headers={"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'"},
    )
    raise ImmediateHttpResponse(answer)


def _list_claims_left_out(data: Mapping[str, Any]) -> list[str]:
    """Return the claims that a provider names and does not send, because they are too large (OpenID Connect Core 1.0,
    section 5.6.2; Entra ID does so above 200 groups)."""
    parts = [data.get("id_token"), data.get("userinfo")]
    names = [part["_claim_names"] for part in parts if isinstance(part, Mapping) and "_claim_names" in part]
    return sorted({str(name)[:60] for one in names if isinstance(one, Mapping) for name in one})[:20]

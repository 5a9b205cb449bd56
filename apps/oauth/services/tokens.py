"""The token endpoint: codes and refresh tokens are exchanged for access tokens.

allauth checks the request and makes the tokens; this module lets each code and each refresh token be used once, in the
database, and replaces the access token by an `ApiToken` with what the person granted.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta

from allauth.idp.oidc.models import Client, Token
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from knox.crypto import hash_token

from apps.accounts import audit
from apps.accounts.models import ApiToken
from apps.common.clock import now
from apps.oauth.addresses import GRANT_TYPES
from apps.oauth.models import Grant, GrantToken, GrantTokenKind
from apps.oauth.services.clients import ALL

ACCESS_LIFETIME = timedelta(hours=1)
"""Of the access tokens of programs that can refresh them."""


class ReplayError(Exception):
    """A code or a refresh token that had been used was sent again: somebody has a copy of it."""

    def __init__(self, grant: Grant) -> None:
        super().__init__(grant.pk)
        self.grant = grant


def exchange(request: HttpRequest, answer: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    """Return the answer to a request of the token endpoint; `answer` is allauth's view. After a replay the grant ends
    with all its tokens."""
    kind = request.POST.get("grant_type", "")
    if kind not in GRANT_TYPES:
        return refuse("unsupported_grant_type", f"one of {', '.join(GRANT_TYPES)} is needed")
    try:
        with transaction.atomic():
            grant = _claim_refresh(request) if kind == "refresh_token" else _claim_code(request, kind)
            if grant is None and kind != Client.GrantType.DEVICE_CODE:
                return refuse("invalid_grant", "the code or token is unknown, has expired or was used")
            response = answer(request)
            if response.status_code != 200 or grant is None or grant.expires_at <= now():
                transaction.set_rollback(True)
                return response if response.status_code != 200 else refuse("invalid_grant", "it was not granted")
            return _issue(grant, json.loads(response.content))
    except ReplayError as error:
        _end_replayed(error.grant)
        return refuse("invalid_grant", "it was used before; all tokens that came of it are revoked")


def refuse(code: str, why: str, status: int = 400) -> HttpResponse:
    """Return an error of OAuth."""
    return JsonResponse({"error": code, "error_description": why}, status=status, headers={"Cache-Control": "no-store"})


def _claim_code(request: HttpRequest, kind: str) -> Grant | None:
    """Return the grant of the code, which is claimed by this transaction; None for an unknown code, and for a device
    code that nobody has confirmed yet. Raises ReplayError."""
    code = request.POST.get("device_code" if kind == Client.GrantType.DEVICE_CODE else "code", "")
    rows = Grant.objects.filter(code_digest=hash_token(code))
    claimed = rows.filter(redeemed_at=None).update(redeemed_at=now())
    grant = rows.select_related("client", "user").first()
    if grant and not claimed:
        raise ReplayError(grant)
    return grant


def _claim_refresh(request: HttpRequest) -> Grant | None:
    """Return the grant of the refresh token, which is spent by this transaction; None for an unknown one. Raises
    ReplayError."""
    rows = GrantToken.objects.filter(
        digest=hash_token(request.POST.get("refresh_token", "")), kind=GrantTokenKind.REFRESH
    )
    claimed = rows.filter(spent_at=None).update(spent_at=now())
    token = rows.select_related("grant__client", "grant__user").first()
    if token and not claimed:
        raise ReplayError(token.grant)
    return token.grant if token else None


@transaction.atomic
def _end_replayed(grant: Grant) -> None:
    audit.record_event(grant.user, "oauth.replay", grant.pk, client=grant.client_id)
    grant.delete()


def _issue(grant: Grant, body: dict[str, str | int]) -> HttpResponse:
    """Replace allauth's access token by one of the API, and return the endpoint's answer."""
    moment, refresh = now(), str(body.pop("refresh_token", ""))
    body.pop("refresh_expires_in", None)
    made_by_allauth = Token.objects.filter(hash=hash_token(str(body["access_token"])))
    scopes = made_by_allauth.get().get_scopes()
    _delete_access_tokens(grant)
    refreshable = bool(refresh) and Client.GrantType.REFRESH_TOKEN in grant.client.get_grant_types()
    expiry = min(grant.expires_at, moment + ACCESS_LIFETIME) if refreshable else grant.expires_at
    made, token = ApiToken.objects.create(
        user=grant.user,
        created_by=grant.user,
        expiry=expiry - moment,
        name=grant.client.name,
        scopes=_narrow(grant, scopes),
        projects=grant.projects,
    )
    made_by_allauth.update(hash=made.digest, expires_at=made.expiry)
    GrantToken.objects.create(digest=made.digest, grant=grant, kind=GrantTokenKind.ACCESS)
    kept = Token.objects.filter(hash=hash_token(refresh), type=Token.Type.REFRESH_TOKEN)
    if refreshable:
        GrantToken.objects.create(digest=hash_token(refresh), grant=grant, kind=GrantTokenKind.REFRESH)
        kept.update(expires_at=grant.expires_at)
        body["refresh_token"] = refresh
    else:
        kept.delete()
    Grant.objects.filter(pk=grant.pk).update(refreshed_at=moment)
    body.update(access_token=token, expires_in=_count_seconds(moment, expiry), scope=" ".join(_list_scopes(made)))
    return JsonResponse(body, headers={"Cache-Control": "no-store", "Pragma": "no-cache"})


def _delete_access_tokens(grant: Grant) -> None:
    """Delete the access tokens that came before: each use of a refresh token replaces them."""
    GrantToken.objects.filter(grant=grant, kind=GrantTokenKind.ACCESS).delete()


def _narrow(grant: Grant, scopes: list[str]) -> list[str] | None:
    """Return what the token may do: what was granted, or less, where the program requested less with a refresh."""
    if grant.scopes is None:
        return None
    return [scope for scope in grant.scopes if scope in scopes]


def _list_scopes(token: ApiToken) -> list[str]:
    return [ALL] if token.scopes is None else token.scopes


def _count_seconds(start: datetime, end: datetime) -> int:
    return max(0, int((end - start).total_seconds()))

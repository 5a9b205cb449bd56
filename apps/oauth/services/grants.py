"""Grants: what a person may grant, making one, ending one."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from allauth.idp.oidc.models import Client, Token
from django.db import IntegrityError, transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from knox.crypto import hash_token

from apps.accounts import audit, selectors
from apps.accounts.models import ApiToken, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.oauth.models import Grant, GrantToken, GrantTokenKind
from apps.oauth.services.clients import ALL

DEFAULT_DAYS, MAX_DAYS = 30, 90
REDEEM_WITHIN = timedelta(minutes=10)
ADMINISTRATORS_ONLY = frozenset(("identity:read", "identity:write", "people:read", "people:write"))


def list_offers(user: User, scopes: Collection[str]) -> list[str]:
    """Return those of the requested scopes that the person may grant at all, in the order of the table."""
    return [scope for scope in scopes if user.is_superuser or scope not in ADMINISTRATORS_ONLY]


def check_choice(user: User, offered: Collection[str], scopes: Sequence[str], projects: Sequence[str] | None) -> None:
    """Raises ApiError 400 where a scope was not offered, or a project is not one of the person's."""
    for scope in scopes:
        if scope not in offered:
            raise ApiError(400, "OAUTH_SCOPE_OTHER", "scopes", scope=scope)
    if projects is None:
        return
    known = set(selectors.list_projects(user).filter(pk__in=projects).values_list("id", flat=True))
    for project in projects:
        if project not in known:
            raise ApiError(400, "PROJECT_UNKNOWN", "projects", project=project)


def create_grant(
    user: User, client: Client, code: str, *, scopes: Sequence[str], projects: Sequence[str] | None, days: int
) -> Grant:
    """Store a grant that is redeemed with `code`. Raises ApiError 409 where the person has too many, or the code was
    used for another."""
    moment = now()
    mine = Grant.objects.filter(user=user)
    stale = Q(expires_at__lte=moment) | Q(redeemed_at=None, created_at__lt=moment - REDEEM_WITHIN)
    try:
        with transaction.atomic():
            mine.filter(stale).delete()
            Token.objects.filter(pk__in=Token.objects.expired().values("pk")[:100]).delete()
            check_row_limit("oauth-grants", mine)
            grant = Grant.objects.create(
                user=user,
                client=client,
                scopes=None if ALL in scopes else list(scopes),
                projects=None if projects is None else list(projects),
                code_digest=hash_token(code),
                created_at=moment,
                expires_at=moment + timedelta(days=days),
            )
            audit.record_event(
                user,
                "oauth.grant",
                grant.pk,
                client=client.pk,
                name=client.name,
                scopes=list(scopes),
                projects=grant.projects,
                days=days,
            )
    except IntegrityError:
        raise ApiError(409, "OAUTH_CODE_USED") from None
    return grant


@transaction.atomic
def end_grant(user: User, grant_id: str) -> None:
    """End one of the person's own grants: its tokens are refused from now on. Raises ApiError 404."""
    grant = Grant.objects.filter(user=user, pk=grant_id).select_related("client").first()
    if grant is None:
        raise ApiError(404, "NOT_FOUND")
    audit.record_event(user, "oauth.end", grant.pk, client=grant.client.pk, name=grant.client.name)
    grant.delete()


def list_grants(user: User) -> QuerySet[Grant, Any]:
    """Return the grants of a person that programs use, as the API shows them."""
    rows = Grant.objects.filter(user=user, expires_at__gt=now()).exclude(redeemed_at=None)
    digests = GrantToken.objects.filter(grant=OuterRef(OuterRef("pk")), kind=GrantTokenKind.ACCESS).values("digest")
    used = ApiToken.objects.filter(digest__in=digests, last_used_at__isnull=False).order_by("-last_used_at")
    return rows.values(
        "id",
        "scopes",
        "projects",
        client_=F("client__name"),
        createdAt=F("created_at"),
        refreshedAt=F("refreshed_at"),
        lastUsedAt=Subquery(used.values("last_used_at")[:1]),
        lastUsedFrom=Coalesce(Subquery(used.values("last_used_from")[:1]), Value("")),
        expiresAt=F("expires_at"),
    )

"""API tokens: those of persons and of service accounts, with the rights that each leaves of its user's."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Substr

from apps.accounts import access, audit
from apps.accounts.models import ApiToken, Project, Role, User
from apps.accounts.scopes import SCOPES, contains_scope
from apps.accounts.selectors import TOKEN_ID_LENGTH
from apps.common.bounds import MAX_TOKENS
from apps.common.clock import now
from apps.common.errors import ApiError


@transaction.atomic
def create_token(
    actor: User,
    name: str,
    expires_in_days: int | None = None,
    *,
    scopes: Sequence[str] | None = None,
    projects: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    account: User | None = None,
) -> dict[str, Any]:
    """Create an API token and return it with its value, which is not stored.

    `account`: the service account that it is for; None: the actor. `scopes`, `projects`, `tasks`: what narrows its
    rights; None: nothing but the rights of the token that `actor` uses, which it never exceeds. Raises ApiError if the
    account has MAX_TOKENS valid tokens, and for a limit that the actor may not give.
    """
    user = account or actor
    if actor.service_project_id:
        raise ApiError(403, "FORBIDDEN")
    end = choose_end(actor, expires_in_days)
    _check_count(user)
    rights = actor.token_rights
    limits: dict[str, list[str] | None] = {
        "scopes": _narrow_scopes(scopes, rights.scopes if rights else None),
        "projects": _narrow(projects, rights.projects if rights else None, "projects"),
        "tasks": _narrow(tasks, rights.tasks if rights else None, "tasks"),
    }
    _check_projects(actor, projects or ())
    _check_tasks(actor, tasks or ())
    made, token = ApiToken.objects.create(user=user, expiry=None, name=name, created_by_id=actor.pk, **limits)
    if end:
        made.expiry = end
        made.save(update_fields=["expiry"])
    key = made.digest[:TOKEN_ID_LENGTH]
    given: dict[str, Any] = {kind: values for kind, values in limits.items() if values is not None}
    audit.record_event(actor, "token.create", key, name=name, user=user.username, **given)
    return {
        "id": key,
        "name": name,
        "token": token,
        "createdAt": made.created,
        "expiresAt": made.expiry,
        "lastUsedAt": None,
        "lastUsedFrom": "",
        **limits,
    }


def choose_end(actor: User, days: int | None) -> datetime | None:
    """Return when a token ends that the actor makes: never later than a narrow token that it is made with; None: never.
    Raises ApiError 400 for more days than the platform allows."""
    _check_days(days)
    days = days or settings.TOKEN_MAX_DAYS or None
    end = now() + timedelta(days=days) if days else None
    return _end_no_later(end, actor) if actor.token_rights and actor.token_rights.narrow else end


def create_short_token(
    account: User, name: str, lifetime: timedelta, scopes: Sequence[str], project: Project
) -> dict[str, Any]:
    """Create a token of a service account that nobody asked for by name, limited to the project, and return its id and
    value. The caller decides whether it may be, and records it. Raises ApiError if the account has MAX_TOKENS valid
    ones."""
    _check_count(account)
    made, token = ApiToken.objects.create(
        user=account, expiry=lifetime, name=name, scopes=sorted(scopes), projects=[project.pk]
    )
    return {"id": made.digest[:TOKEN_ID_LENGTH], "token": token, "expiresAt": made.expiry}


def delete_ended_tokens(before: datetime) -> int:
    """Delete service accounts' tokens that nobody created by name and that ended before this moment. Return how many
    there were."""
    rows = ApiToken.objects.filter(expiry__lt=before, created_by=None, user__service_project__isnull=False)
    deleted, _ = rows.delete()
    return deleted


def list_tokens(user: User) -> QuerySet[ApiToken, Any]:
    """Return the user's own tokens; to a token of projects those that are limited to some of its projects."""
    return select_fields(_select_own(user))


def list_project_tokens(user: User, project: Project) -> QuerySet[ApiToken, Any]:
    """Return the tokens that are limited to this project alone, and those of its service accounts (maintainer)."""
    return select_fields(_select_project_tokens(user, project))


def list_all_tokens(administrator: User) -> QuerySet[ApiToken, Any]:
    """Return the tokens of all users (administrator)."""
    access.require_administrator(administrator)
    return select_fields(ApiToken.objects.all())


def select_fields(rows: QuerySet[ApiToken, ApiToken]) -> QuerySet[ApiToken, Any]:
    """Return the rows as the API has them."""
    return rows.values(
        "name",
        "scopes",
        "projects",
        "tasks",
        id=Substr("digest", 1, TOKEN_ID_LENGTH),
        createdAt=F("created"),
        expiresAt=F("expiry"),
        lastUsedAt=F("last_used_at"),
        lastUsedFrom=F("last_used_from"),
        username=F("user__username"),
    )


def revoke_token(user: User, token_id: str) -> None:
    """Delete one of the user's own tokens. Raises ApiError 404."""
    _revoke_one(user, _select_own(user), token_id)


def revoke_project_token(user: User, project: Project, token_id: str) -> None:
    """Delete a token that `list_project_tokens` lists (maintainer). Raises ApiError 404."""
    _revoke_one(user, _select_project_tokens(user, project), token_id, project)


@transaction.atomic
def revoke_tokens(user: User, token_ids: Collection[str] | None) -> int:
    """Delete those of the user's own tokens that have these ids, or all of them, and return how many there were. Ids
    that no token has are passed over."""
    rows = [token for token in _select_own(user) if token_ids is None or token.digest[:TOKEN_ID_LENGTH] in token_ids]
    for token in rows:
        audit.record_event(user, "token.revoke", token.digest[:TOKEN_ID_LENGTH])
    ApiToken.objects.filter(pk__in=[token.pk for token in rows]).delete()
    return len(rows)


@transaction.atomic
def revoke_any_token(administrator: User, token: ApiToken) -> None:
    """Delete the token of any user (administrator)."""
    access.require_administrator(administrator)
    audit.record_event(administrator, "token.revoke", token.digest[:TOKEN_ID_LENGTH], user=token.user.username)
    token.delete()


def revoke_token_by_id(administrator: User, token_id: str) -> None:
    """Delete the token of any user (administrator). Raises ApiError 404."""
    access.require_administrator(administrator)
    _revoke_one(administrator, ApiToken.objects.all(), token_id)


@transaction.atomic
def _revoke_one(actor: User, rows: QuerySet[ApiToken, ApiToken], token_id: str, project: Project | None = None) -> None:
    found = rows.filter(digest__startswith=token_id).first() if len(token_id) == TOKEN_ID_LENGTH else None
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    owner = {} if found.user_id == actor.pk else {"user": found.user.username}
    ApiToken.objects.filter(pk=found.pk).delete()
    audit.record_event(actor, "token.revoke", token_id, project=project, **owner)


def _select_own(user: User) -> QuerySet[ApiToken, ApiToken]:
    rows = ApiToken.objects.filter(user_id=user.pk)
    limit = user.token_rights.projects if user.token_rights else None
    if limit is None:
        return rows
    limited = rows.exclude(projects=None).values_list("pk", "projects")
    return rows.filter(pk__in=[key for key, projects in limited if projects is not None and limit.issuperset(projects)])


def _select_project_tokens(user: User, project: Project) -> QuerySet[ApiToken, ApiToken]:
    access.require_role(user, project, Role.MAINTAINER)
    return ApiToken.objects.filter(Q(projects=[project.pk]) | Q(user__service_project=project))


def _check_count(user: User) -> None:
    if ApiToken.objects.filter(Q(expiry=None) | Q(expiry__gt=now()), user_id=user.pk).count() >= MAX_TOKENS:
        raise ApiError(409, "TOKENS_TOO_MANY", limit=MAX_TOKENS)


def _check_days(days: int | None) -> None:
    most = settings.TOKEN_MAX_DAYS
    if days and most and days > most:
        raise ApiError(400, "TOKEN_DAYS_TOO_MANY", "expiresInDays", found=days, most=most)


def _narrow_scopes(asked: Iterable[str] | None, mine: Collection[str] | None) -> list[str] | None:
    """Return the scopes of a new token. Raises ApiError for one that does not exist or that `mine` does not contain."""
    if asked is None:
        return None if mine is None else sorted(mine)
    chosen = sorted(set(asked))
    if unknown := [scope for scope in chosen if scope not in SCOPES]:
        raise ApiError(400, "SCOPE_UNKNOWN", "scopes", scope=unknown[0])
    if mine is not None and (more := [scope for scope in chosen if not contains_scope(mine, scope)]):
        raise ApiError(403, "TOKEN_WIDER", "scopes", found=more[0])
    return chosen


def _narrow(asked: Iterable[str] | None, mine: Collection[str] | None, field: str) -> list[str] | None:
    """Return the ids that a new token is limited to. Raises ApiError for one that is not among `mine`."""
    if asked is None:
        return None if mine is None else sorted(mine)
    chosen = sorted(set(asked))
    if mine is not None and (more := [key for key in chosen if key not in mine]):
        raise ApiError(403, "TOKEN_WIDER", field, found=more[0])
    return chosen


def _check_projects(user: User, projects: Collection[str]) -> None:
    rows = access.filter_visible(Project.objects.filter(pk__in=projects), user, "pk")
    if missing := sorted(set(projects).difference(rows.values_list("pk", flat=True))):
        raise ApiError(400, "PROJECT_UNKNOWN", "projects", project=missing[0])


def _check_tasks(user: User, tasks: Collection[str]) -> None:
    if not tasks:
        return
    model: Any = apps.get_model("training", "Task")  # of a layer above: only its ids and projects are read
    rows = access.filter_visible(model.objects.filter(pk__in=tasks), user)
    if missing := sorted(set(tasks).difference(rows.values_list("pk", flat=True))):
        raise ApiError(400, "TOKEN_TASK_UNKNOWN", "tasks", task=missing[0])


def _end_no_later(end: datetime | None, actor: User) -> datetime | None:
    """Return the end of a token that is made with the actor's token: never later than that one's."""
    assert actor.token_rights
    own = ApiToken.objects.filter(user_id=actor.pk, digest__startswith=actor.token_rights.token)
    last = own.values_list("expiry", flat=True).first()
    return last if last and (end is None or end > last) else end

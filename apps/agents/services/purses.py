"""Creates, changes and revokes tokens of agents."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts import access, audit, tokens
from apps.accounts.models import ApiToken, Project, Role, User
from apps.accounts.scopes import SCOPES, contains_scope
from apps.accounts.selectors import TOKEN_ID_LENGTH
from apps.agents import selectors
from apps.agents.models import Purse
from apps.agents.policy import REFUSED_RESOURCES
from apps.common.bounds import MAX_TOKENS
from apps.common.clock import now
from apps.common.errors import ApiError

AGENT_SCOPES = tuple(
    scope for scope in SCOPES if not (scope.partition(":")[0] in REFUSED_RESOURCES and not scope.endswith(":read"))
)
"""Scopes that a token with a purse may have."""
DEFAULT_SCOPES = (
    "agents:read",
    "code:write",
    "data:read",
    "environments:read",
    "files:read",
    "outputs:read",
    "projects:read",
    "runs:write",
    "sweeps:write",
    "tasks:write",
    "templates:read",
    "usage:read",
)


@transaction.atomic
def create_agent_token(
    user: User,
    name: str,
    projects: Sequence[str],
    purse: Mapping[str, Any],
    *,
    agent: str = "",
    scopes: Sequence[str] | None = None,
    expires_in_days: int | None = None,
) -> dict[str, Any]:
    """Create a token with a purse and return it with its value, which is not stored. It ends no later than a narrow
    token that the user makes it with. Raises ApiError 404 and 403 where the user is no member of a project, 403 for
    service accounts, 403 SCOPE_MISSING where the user's own token has a scope less, 400 for too many days, and 409."""
    if user.service_project_id:
        raise ApiError(403, "FORBIDDEN")
    end = tokens.choose_end(user, expires_in_days)
    for project in projects:
        access.require_role(user, project, Role.MEMBER)
    chosen = sorted(set(DEFAULT_SCOPES if scopes is None else scopes))
    rights = user.token_rights
    own = chosen if rights is None or rights.scopes is None else rights.scopes
    if missing := [scope for scope in chosen if not contains_scope(own, scope)]:
        raise ApiError(403, "SCOPE_MISSING", "scopes", scope=missing[0], token=rights.name if rights else "")
    if ApiToken.objects.filter(Q(expiry=None) | Q(expiry__gt=now()), user=user).count() >= MAX_TOKENS:
        raise ApiError(409, "TOKENS_TOO_MANY", limit=MAX_TOKENS)
    wanted = sorted(set(projects))
    token, value = ApiToken.objects.create(
        user=user, expiry=None, name=name, scopes=chosen, projects=wanted, created_by=user
    )
    if end:
        token.expiry = end
        token.save(update_fields=["expiry"])
    made = Purse.objects.create(id=token.digest[:TOKEN_ID_LENGTH], token=token, agent=agent, created_at=now(), **purse)
    made.projects.set(Project.objects.filter(pk__in=wanted))
    audit.record_event(
        user,
        "agent-token.create",
        made.pk,
        project=wanted[0],
        name=name,
        agent=agent,
        projects=wanted,
        **_describe(purse),
    )
    return {**selectors.serialize_purse(made), "token": value}


def get_purse(user: User, key: str) -> Purse:
    """Return the purse of an agent's token. Raises ApiError 404."""
    found = selectors.filter_purses(user).filter(pk=key).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


@transaction.atomic
def change_purse(user: User, key: str, changes: Mapping[str, Any]) -> Purse:
    """Change limits of a purse and return it. What is used already stays counted."""
    get_purse(user, key)
    found = Purse.objects.select_for_update(of=("self",)).select_related("token__user").get(pk=key)
    for name, value in changes.items():
        setattr(found, name, value)
    if changes:
        found.save(update_fields=list(changes))
        audit.record_event(user, "agent-token.change", key, project=_get_project(found), **_describe(changes))
    return found


@transaction.atomic
def revoke_agent_token(user: User, key: str) -> None:
    """Delete an agent's token with its purse. Its tasks go on."""
    found = get_purse(user, key)
    audit.record_event(user, "agent-token.revoke", key, project=_get_project(found), name=found.token.name)
    found.token.delete()


def _get_project(purse: Purse) -> str | None:
    return purse.projects.order_by("pk").values_list("pk", flat=True).first()


def _describe(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits as the audit trail stores them."""
    return {name: float(value) if name == "money" and value is not None else value for name, value in limits.items()}

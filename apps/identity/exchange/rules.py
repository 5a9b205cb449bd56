"""A project's rules. Its maintainers make them, by a session or a token with all of their rights."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts import access, audit, service_accounts
from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.scopes import SCOPES
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.identity.exchange.conditions import check_conditions
from apps.identity.exchange.issuers import list_issuers
from apps.identity.exchange.models import Rule

MAX_MINUTES = 60
FIELDS = ("name", "issuer", "audience", "conditions", "scopes", "minutes", "enabled")


def list_rules(user: User, project: Project) -> QuerySet[Rule, Rule]:
    """Return the project's rules (maintainer)."""
    access.require_role(user, project, Role.MAINTAINER)
    return Rule.objects.filter(membership__project=project).select_related("membership__user", "created_by")


@transaction.atomic
def create_rule(user: User, project: Project, service_account: str, values: Mapping[str, Any]) -> Rule:
    """Add a rule for a service account of the project (maintainer). Raises ApiError."""
    access.require_role(user, project, Role.MAINTAINER)
    _require_whole_rights(user)
    check_row_limit("exchange-rules", Rule.objects.filter(membership__project=project))
    username = service_accounts.build_username(project, service_account)
    membership = (
        Membership.objects.select_related("user", "project")
        .filter(project=project, user__username=username, user__service_project=project, user__is_active=True)
        .first()
    )
    if membership is None:
        raise ApiError(400, "EXCHANGE_RULE_ACCOUNT", "serviceAccount", name=service_account)
    row = Rule(membership=membership, created_at=now(), created_by_id=user.pk)
    _set_values(row, user, values)
    row.save(force_insert=True)
    audit.record_event(user, "exchange-rule.create", row.pk, project=project, **_describe(row))
    return row


@transaction.atomic
def change_rule(user: User, project: Project, rule_id: str, values: Mapping[str, Any]) -> Rule:
    """Change a rule; its service account stays (maintainer). Raises ApiError."""
    access.require_role(user, project, Role.MAINTAINER)
    _require_whole_rights(user)
    row = _get_row(project, rule_id)
    _set_values(row, user, values)
    row.save()
    audit.record_event(user, "exchange-rule.change", row.pk, project=project, **_describe(row))
    return row


@transaction.atomic
def delete_rule(user: User, project: Project, rule_id: str) -> None:
    """Delete a rule (maintainer). Tokens that pipelines have got end by themselves. Raises ApiError 404."""
    access.require_role(user, project, Role.MAINTAINER)
    if user.service_project_id:
        raise ApiError(403, "FORBIDDEN")
    row = _get_row(project, rule_id)
    audit.record_event(user, "exchange-rule.delete", row.pk, project=project, **_describe(row))
    row.delete()


def _require_whole_rights(user: User) -> None:
    """Raise ApiError 403 for service accounts and narrow tokens: a rule gives tokens for as long as it is there, also
    after the token that made it has ended."""
    if user.service_project_id:
        raise ApiError(403, "FORBIDDEN")
    if user.token_rights and user.token_rights.narrow:
        raise ApiError(403, "EXCHANGE_RULE_TOKEN", token=user.token_rights.name)


def _get_row(project: Project, rule_id: str) -> Rule:
    rows = Rule.objects.select_for_update(of=("self",)).select_related("membership__user", "created_by")
    row = rows.filter(pk=rule_id, membership__project=project).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return row


def _set_values(row: Rule, user: User, values: Mapping[str, Any]) -> None:
    for field in FIELDS:
        if field in values:
            setattr(row, field, values[field])
    row.scopes = sorted(set(row.scopes))
    row.updated_at, row.updated_by_id = now(), user.pk
    _check_scopes(row.scopes)
    if row.issuer not in list_issuers():
        raise ApiError(400, "EXCHANGE_RULE_ISSUER", "issuer", issuer=row.issuer, known=", ".join(list_issuers()) or "–")
    check_conditions(row.conditions)


def _check_scopes(scopes: Sequence[str]) -> None:
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise ApiError(400, "SCOPE_UNKNOWN", "scopes", scope=unknown[0])


def _describe(row: Rule) -> dict[str, Any]:
    return {"user": row.membership.user.username, **{field: getattr(row, field) for field in FIELDS}}

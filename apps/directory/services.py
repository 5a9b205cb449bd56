"""Changes of the rules, each with what it makes of people's roles, in one transaction. Administrators only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.directory.application import apply_rules, make_fingerprint, make_rule, plan_changes
from apps.directory.counts import GroupCount, count_groups
from apps.directory.models import Directory, RoleRule
from apps.directory.plans import Plan
from apps.directory.roles import Rule
from apps.identity.selectors import find_configuration

FIELDS = ("provider", "claim", "pattern", "project_id", "create_project", "administrator", "role")


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change of the rules would change about people. `groups`: which groups the rule's claim has."""

    plan: Plan
    fingerprint: str
    groups: Sequence[GroupCount] = ()


@transaction.atomic
def create_rule(user: User, values: Mapping[str, Any], fingerprint: str) -> RoleRule:
    """Add a rule and apply all rules. `fingerprint` is the preview's. Raises ApiError, 409 where saving would do
    something else than the preview has shown."""
    access.require_administrator(user)
    check_row_limit("role-rules", RoleRule.objects.all())
    row = RoleRule(created_at=now(), created_by=user)
    _set_values(row, user, values)
    row.save(force_insert=True)
    audit.record_event(user, "role-rule.create", row.pk, **_describe(row))
    apply_rules(actor=user, check=_make_check(fingerprint))
    return row


@transaction.atomic
def change_rule(user: User, rule_id: str, values: Mapping[str, Any], fingerprint: str) -> RoleRule:
    """Replace a rule's fields and apply all rules. Raises ApiError, as `create_rule` does."""
    access.require_administrator(user)
    row = _get_row(rule_id)
    _set_values(row, user, values)
    row.save()
    audit.record_event(user, "role-rule.change", row.pk, **_describe(row))
    apply_rules(actor=user, check=_make_check(fingerprint))
    return row


@transaction.atomic
def delete_rule(user: User, rule_id: str, fingerprint: str) -> None:
    """Delete a rule and apply those that are left. Raises ApiError 404, and 409 as `create_rule` does."""
    access.require_administrator(user)
    row = _get_row(rule_id)
    audit.record_event(user, "role-rule.delete", row.pk, **_describe(row))
    row.delete()
    apply_rules(actor=user, check=_make_check(fingerprint))


def preview_change(user: User, rule_id: str | None = None, values: Mapping[str, Any] | None = None) -> Preview:
    """Return what would change about people with a rule added (`values`), changed (both) or deleted (`rule_id`), or by
    the rules as they are (neither). Changes nothing. Raises ApiError."""
    access.require_administrator(user)
    rows = list(RoleRule.objects.order_by("pk"))
    if rule_id is not None:
        if rule_id not in {row.pk for row in rows}:
            raise ApiError(404, "NOT_FOUND")
        rows = [row for row in rows if row.pk != rule_id]
    if values is not None:
        row = RoleRule()
        _set_values(row, user, values)
        rows.append(row)
    rules = [make_rule(row) for row in rows]
    plan = plan_changes(rules)
    groups = count_groups(values["claim"], values["provider"]) if values is not None else []
    return Preview(plan, make_fingerprint(rules, plan), groups)


def _make_check(fingerprint: str) -> Callable[[Sequence[Rule], Plan], None]:
    def check(rules: Sequence[Rule], plan: Plan) -> None:
        if make_fingerprint(rules, plan) != fingerprint:
            raise ApiError(409, "ROLE_RULES_CHANGED", "fingerprint")

    return check


def _get_row(rule_id: str) -> RoleRule:
    row = RoleRule.objects.select_for_update(of=("self",)).filter(pk=rule_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return row


def _set_values(row: RoleRule, user: User, values: Mapping[str, Any]) -> None:
    for field in FIELDS:
        setattr(row, field, values[field])
    row.updated_at, row.updated_by = now(), user
    targets = [row.project_id is not None, row.create_project, row.administrator]
    if targets.count(True) != 1 or bool(row.role) is row.administrator:
        raise ApiError(400, "ROLE_RULE_TARGET", "projectId")
    if row.provider and not _is_known(row.provider):
        raise ApiError(400, "ROLE_RULE_PROVIDER", "provider", provider=row.provider)
    if row.project_id is not None and not Project.objects.filter(pk=row.project_id).exists():
        raise ApiError(400, "PROJECT_UNKNOWN", "projectId", project=row.project_id)
    if "*" in row.pattern[:-1] or (row.create_project and row.pattern == "*"):
        raise ApiError(400, "ROLE_RULE_PATTERN", "pattern", pattern=row.pattern)
    if row.administrator and (not row.provider or row.pattern.endswith("*")):
        raise ApiError(400, "ROLE_RULE_ADMINISTRATOR", "pattern", pattern=row.pattern, provider=row.provider)


def _is_known(provider: str) -> bool:
    """Return whether there is an identity provider or a directory of this id."""
    return find_configuration(provider, enabled=None) is not None or Directory.objects.filter(pk=provider).exists()


def _describe(row: RoleRule) -> dict[str, Any]:
    return {"provider": row.provider, "claim": row.claim, "pattern": row.pattern, "project_id": row.project_id} | {
        "create_project": row.create_project,
        "administrator": row.administrator,
        "role": row.role,
    }

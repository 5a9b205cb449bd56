"""Changes of rules: which incidents go to which channels."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from apps.accounts import audit
from apps.accounts.models import User
from apps.common.clock import get_time_zone, now
from apps.common.errors import ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.notices.models import Channel, Rule
from apps.notices.services import ownership
from fermi.jobs.spec import Problem

RULE_COLUMNS = ("name", "kinds", "level", "restarts", "waits_seconds", "quiet_from", "quiet_to", "timezone",
          "breaks_through", "enabled")  # fmt: skip


@transaction.atomic
def create_rule(
    user: User, *, scope: str, channels: Sequence[str], project_id: str | None = None, **fields: Any
) -> Rule:
    owner = ownership.build_owner_columns(user, scope, project_id)
    check_row_limit("notice-rules", Rule.objects.filter(**owner))
    row = Rule(
        **owner, **{name: fields[name] for name in RULE_COLUMNS if name in fields}, created_at=now(), created_by=user
    )
    found = _check_rule(user, row, channels)
    row.save(force_insert=True)
    row.channels.set(found)
    audit.record_event(user, "rule.create", row.pk, project=row.project_id, channels=list(channels))
    return row


@transaction.atomic
def change_rule(user: User, key: str, changes: Mapping[str, Any]) -> Rule:
    row = ownership.get_owned(Rule.objects.all(), user, key, change=True)
    for name in changes.keys() & set(RULE_COLUMNS):
        setattr(row, name, changes[name])
    found = _check_rule(user, row, changes.get("channels", list(row.channels.values_list("pk", flat=True))))
    row.save()
    row.channels.set(found)
    audit.record_event(user, "rule.change", row.pk, project=row.project_id, fields=sorted(changes))
    return row


@transaction.atomic
def delete_rule(user: User, key: str) -> None:
    row = ownership.get_owned(Rule.objects.all(), user, key, change=True)
    audit.record_event(user, "rule.delete", row.pk, project=row.project_id)
    row.delete()


def _check_rule(user: User, row: Rule, channels: Sequence[str]) -> list[Channel]:
    """Return the channels, which must have the rule's own scope: a project's rule sends nothing to a user's private
    address. Raises ProblemsError."""
    problems = []
    same = Channel.objects.filter(user=row.user_id, project=row.project_id).in_bulk(list(channels))
    for index, key in enumerate(channels):
        if key not in same:
            problems.append(Problem(f"channels.{index}", "CHANNEL_UNKNOWN", {"channel": key}))
    if get_time_zone(row.timezone) is None:
        problems.append(Problem("timezone", "TIMEZONE_UNKNOWN", {"found": row.timezone}))
    if (row.quiet_from is None) != (row.quiet_to is None):
        problems.append(Problem("quietTo" if row.quiet_to is None else "quietFrom", "QUIET_HOURS_HALF", {}))
    if problems:
        raise ProblemsError(problems)
    return list(same.values())

"""Distributes incidents: items in users' inboxes, and messages by channels. Repeating it changes nothing."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import Membership, Role, User
from apps.common.clock import now
from apps.notices import quiet_hours
from apps.notices.kinds import INCIDENT_KINDS, IncidentKind, is_at_least
from apps.notices.models import Delivery, Incident, IncidentLevel, Item, Rule
from apps.notices.readers import may_read
from apps.notices.selectors import DEFAULT_WAIT_SECONDS

MAX_PER_PASS = 100


def spread_incidents() -> int:
    """Distribute the incidents that have changed. Returns their number."""
    moment = now()
    rows = list(Incident.objects.filter(due_at__lte=moment).order_by("due_at")[:MAX_PER_PASS])
    for row in rows:
        with transaction.atomic():
            if Incident.objects.filter(pk=row.pk, due_at=row.due_at).update(due_at=None):
                _spread_incident(row, moment)
    return len(rows)


def _spread_incident(incident: Incident, moment: datetime) -> None:
    kind = INCIDENT_KINDS.get(incident.kind) or IncidentKind(IncidentLevel.INFO)
    if incident.over_at is None or not kind.passes:
        _create_items(incident, kind, moment)
        _create_deliveries(incident, "opened", moment)
        return
    unsaid = Delivery.objects.filter(incident=incident, what="opened", outcome="waiting", tries=[])
    unsaid.update(outcome="dropped", due_at=None, ended_at=moment)
    _create_deliveries(incident, "over", moment)


def _create_items(incident: Incident, kind: IncidentKind, moment: datetime) -> None:
    if incident.kind == "task_waits" and incident.params.get("seconds", 0) < DEFAULT_WAIT_SECONDS:
        return
    people = Q(pk__in=[])
    if kind.owner and may_read(incident.owner, incident):
        people |= Q(pk=incident.owner_id)
    if kind.maintainers and incident.project_id:
        maintainers = Membership.objects.filter(project=incident.project_id, role=Role.MAINTAINER)
        people |= Q(pk__in=maintainers.values("user"))
    if kind.operators:
        people |= Q(is_superuser=True) | Q(is_staff=True)
    users = User.objects.filter(people, is_active=True).values_list("pk", flat=True)
    Item.objects.bulk_create(
        [Item(incident=incident, user_id=user, at=moment) for user in users], ignore_conflicts=True
    )


def _create_deliveries(incident: Incident, event: str, moment: datetime) -> None:
    wanted: dict[str, datetime] = {}
    for rule in _list_rules(incident):
        at = moment
        if not is_at_least(incident.level, rule.breaks_through):
            at = quiet_hours.compute_send_time(moment, rule.quiet_from, rule.quiet_to, rule.timezone)
        for channel in rule.channels.all():
            if channel.enabled:
                wanted[channel.pk] = min(at, wanted.get(channel.pk, at))
    if event == "over":
        told = incident.deliveries.filter(what="opened").exclude(outcome="dropped").values_list("channel", flat=True)
        wanted = {channel: wanted.get(channel, moment) for channel in told}
    Delivery.objects.bulk_create(
        [
            Delivery(incident=incident, channel_id=channel, what=event, created_at=moment, due_at=at)
            for channel, at in wanted.items()
        ],
        ignore_conflicts=True,
    )


def _list_rules(incident: Incident) -> Iterable[Rule]:
    """Yield the rules of the incident's owner, of its project, and of the platform; a user's rules apply to the user's
    own incidents."""
    mine = Q(user=None, project=None)
    if incident.project_id:
        mine |= Q(project=incident.project_id)
    if may_read(incident.owner, incident):
        mine |= Q(user=incident.owner_id)
    for rule in Rule.objects.filter(mine, enabled=True).prefetch_related("channels"):
        if is_rule_matching(rule, incident):
            yield rule


def is_rule_matching(rule: Rule, incident: Incident) -> bool:
    """Return True if the rule applies to the incident."""
    if rule.kinds and incident.kind not in rule.kinds:
        return False
    if incident.kind == "task_restarted" and incident.times < (rule.restarts or 1):
        return False
    if incident.kind == "task_waits" and incident.params.get("seconds", 0) < (
        rule.waits_seconds or DEFAULT_WAIT_SECONDS
    ):
        return False
    return is_at_least(incident.level, rule.level)

"""Reports incidents, in the transaction of the event itself."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Value, When

from apps.accounts.models import User
from apps.common import wakeups
from apps.common.clock import now
from apps.common.retention import delete_old
from apps.notices.kinds import INCIDENT_KINDS, LEVEL_ORDER, is_at_least
from apps.notices.models import Incident, Item
from apps.notices.readers import select_items

log = logging.getLogger(__name__)


def open_incident(
    kind: str,
    key: str,
    code: str,
    params: Mapping[str, Any],
    *,
    project: str | None = None,
    owner: int | None = None,
    link: str = "",
    level: str = "",
    counts_again: bool = True,
) -> None:
    """Open an incident, or continue the one that is open for the same kind and `key`, so that people are notified once.

    `code`: of a text; `project`, `owner`: ids of whom it concerns; `link`: a path of the console. `counts_again`:
    continuing it counts as another occurrence. Never raises: an incident that cannot be stored is logged, and the
    caller's transaction goes on.
    """
    moment = now()
    again = {"code": code, "params": dict(params), "updated_at": moment, "due_at": moment, "link": link}
    try:
        level = level or INCIDENT_KINDS[kind].level
        try:
            with transaction.atomic():
                if not _update_open_incident(kind, key, level, again, counts_again=counts_again):
                    Incident.objects.create(
                        kind=kind, key=key, level=level, project_id=project, owner_id=owner, opened_at=moment, **again
                    )
        except IntegrityError:  # another process has just opened it
            with transaction.atomic():
                _update_open_incident(kind, key, level, again, counts_again=counts_again)
        wakeups.enqueue_after_commit("notices.sweep")
    except Exception:
        log.exception("the incident %s %s cannot be stored", kind, key)


def resolve_incidents(key: str, *kinds: str) -> None:
    """Resolve the open incidents of these kinds for the key, if any. Never raises."""
    moment = now()
    try:
        with transaction.atomic():
            going_on = Incident.objects.filter(kind__in=kinds, key=key, over_at=None)
            if going_on.update(over_at=moment, due_at=moment):
                wakeups.enqueue_after_commit("notices.sweep")
    except Exception:
        log.exception("the incident %s of %s cannot be resolved", " or ".join(kinds), key)


def list_open_keys(kind: str) -> set[str]:
    """Return the keys of open incidents of a kind."""
    return set(Incident.objects.filter(kind=kind, over_at=None).values_list("key", flat=True))


def read_open_params(kind: str, name: str) -> dict[str, Any]:
    """Return one parameter of the open incidents of a kind, by key."""
    return dict(Incident.objects.filter(kind=kind, over_at=None).values_list("key", f"params__{name}"))


def delete_old_incidents(before: datetime) -> int:
    """Delete incidents that were not updated since `before`, with their messages. Returns how many rows."""
    return delete_old(Incident.objects.filter(updated_at__lt=before, due_at=None))


def _update_open_incident(kind: str, key: str, level: str, values: Mapping[str, Any], *, counts_again: bool) -> bool:
    milder = [one for one in LEVEL_ORDER if not is_at_least(one, level)]
    worst = Case(When(level__in=milder, then=Value(level)), default=F("level"))
    going_on = Incident.objects.filter(kind=kind, key=key, over_at=None)
    return bool(going_on.update(times=F("times") + int(counts_again), level=worst, **values))


def mark_read(user: User, ids: Sequence[str] | None) -> int:
    """Mark incidents as read; None: all. Returns how many are unread then."""
    rows = Item.objects.filter(user=user, read_at=None)
    (rows if ids is None else rows.filter(incident__in=ids)).update(read_at=now())
    return count_unread(user)


def count_unread(user: User) -> int:
    return select_items(user).filter(read_at=None).count()

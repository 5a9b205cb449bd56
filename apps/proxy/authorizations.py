"""Checks many authorizations at once, so that a thousand open connections cost a handful of queries."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db.models import Q
from django.utils.crypto import constant_time_compare

from apps.accounts.models import ApiToken, Membership, Role, User
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.proxy.models import Entry

ALLOWED_ROLES = (Role.MEMBER, Role.MAINTAINER)


@dataclass(frozen=True, slots=True)
class Authorization:
    """What allows a connection: a user, signed in by a session or a token, in the project of an environment. `entry`:
    id of the proxy session, which must exist, too."""

    user: int
    project: str
    environment: str
    session: str = ""
    token: str = ""
    entry: str = ""


def filter_valid(passes: Collection[Authorization]) -> set[Authorization]:
    """Return the authorizations that are still valid."""
    users = {user.pk: user for user in User.objects.filter(pk__in={one.user for one in passes}, is_active=True)}
    members = set(
        Membership.objects.filter(user__in=users, role__in=ALLOWED_ROLES).values_list("user_id", "project_id")
    )  # of few people: their projects are few, too
    sessions = _read_session_users(users, {one.session for one in passes if one.session})
    unexpired = Q(expiry__isnull=True) | Q(expiry__gt=now())
    tokens = set(
        ApiToken.objects.filter(unexpired, pk__in={one.token for one in passes if one.token}).values_list(
            "pk", "user_id"
        )
    )
    there = set(
        DevEnvironment.objects.filter(pk__in={one.environment for one in passes}, gone_at__isnull=True)
        .exclude(hosted__wanted="deleted")
        .values_list("pk", flat=True)
    )
    entries = set(Entry.objects.filter(pk__in={one.entry for one in passes if one.entry}).values_list("pk", flat=True))

    def is_good(one: Authorization) -> bool:
        user = users.get(one.user)
        return (
            user is not None
            and (user.is_superuser or (one.user, one.project) in members)
            and (not one.session or sessions.get(one.session) == one.user)
            and (not one.token or (one.token, one.user) in tokens)
            and one.environment in there
            and (not one.entry or one.entry in entries)
        )

    return set(filter(is_good, passes))


def _read_session_users(users: dict[int, User], keys: Iterable[str]) -> dict[str, int]:
    """Return the user of each session. One that has expired, was signed out, or is older than the user's password has
    none."""
    found = {}
    for row in Session.objects.filter(pk__in=set(keys), expire_date__gt=now()):
        held: dict[str, Any] = row.get_decoded()
        user = users.get(int(held.get(SESSION_KEY) or 0))
        if user and constant_time_compare(held.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash()):
            found[row.pk] = user.pk
    return found

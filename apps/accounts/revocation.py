"""The end of a person's access: sessions, tokens, and what was opened with them. Training goes on."""

from collections.abc import Collection
from dataclasses import dataclass

from allauth.usersessions.models import UserSession
from django.apps import apps
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import F, Q

from apps.accounts import audit
from apps.accounts.access import AnyUser
from apps.accounts.models import ApiToken, Project, SignInLink, User
from apps.common.clock import now

ALL_TOKENS = "all"
"""Stands for all tokens of a person in `end_access`."""


@dataclass(frozen=True, slots=True)
class EndedAccess:
    """How many sessions and tokens were valid, and are so no longer."""

    sessions: int
    tokens: int


@transaction.atomic
def end_access(
    user: User,
    reason: str,
    *,
    actor: AnyUser | None = None,
    sessions: bool = True,
    tokens: Project | str | None = ALL_TOKENS,
) -> EndedAccess:
    """End a user's sessions and tokens, and return how many there were. Connections into environments end within
    `apps.proxy.access_watch.CHECK_SECONDS`; tasks go on.

    `reason`: a word for the audit trail. `actor`: who does it; None: the platform. `tokens`: ALL_TOKENS, a project for
    the tokens that are limited to it alone, or None for none. The user may sign in again, unless deactivated.
    """
    ended = EndedAccess(_end_sessions(user) if sessions else 0, _delete_tokens(user, tokens) if tokens else 0)
    project = None if tokens in (ALL_TOKENS, None) else tokens
    audit.record_event(
        actor, "access.end", user.username, project=project, reason=reason, sessions=ended.sessions, tokens=ended.tokens
    )
    return ended


@transaction.atomic
def end_sessions(user: User, keys: Collection[str], reason: str, *, actor: AnyUser | None = None) -> int:
    """End some sessions of a user, by their keys, and return how many were valid. Connections into environments end
    within `apps.proxy.access_watch.CHECK_SECONDS`; tasks and tokens go on. `reason`: a word for the audit trail."""
    _, deleted = Session.objects.filter(pk__in=keys, expire_date__gt=now()).delete()
    UserSession.objects.filter(user_id=user.pk, session_key__in=keys).delete()
    count = deleted.get("sessions.Session", 0)
    audit.record_event(actor, "session.end", user.username, reason=reason, sessions=count)
    return count


def _end_sessions(user: User) -> int:
    """End all sessions, also those that no row of UserSession tells of, by the next epoch; delete the known ones."""
    User.objects.filter(pk=user.pk).update(session_epoch=F("session_epoch") + 1)
    user.session_epoch = User.objects.values_list("session_epoch", flat=True).get(pk=user.pk)
    SignInLink.objects.filter(user_id=user.pk).delete()
    known = UserSession.objects.filter(user_id=user.pk)
    _, deleted = Session.objects.filter(
        pk__in=list(known.values_list("session_key", flat=True)), expire_date__gt=now()
    ).delete()
    known.delete()
    return deleted.get("sessions.Session", 0)


def _delete_tokens(user: User, tokens: Project | str) -> int:
    rows = ApiToken.objects.filter(user_id=user.pk)
    if tokens != ALL_TOKENS:
        project = tokens.pk if isinstance(tokens, Project) else tokens
        limited = rows.exclude(projects=None).values_list("pk", "projects")
        rows = rows.filter(pk__in=[key for key, projects in limited if projects == [project]])
    else:
        _delete_grants(user)  # their refresh tokens, and codes that nobody has used yet, would make new ones
    count = rows.filter(Q(expiry=None) | Q(expiry__gt=now())).count()
    rows.delete()
    return count


def _delete_grants(user: User) -> None:
    """Delete what the user has granted to programs. `apps.oauth` is above this app, hence the look-up by name."""
    apps.get_model("oauth", "Grant")._default_manager.filter(user_id=user.pk).delete()
    apps.get_app_config("allauth_idp_oidc").get_model("Token")._default_manager.filter(user_id=user.pk).delete()

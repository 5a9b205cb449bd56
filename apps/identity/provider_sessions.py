"""Which sessions began by a provider, so that they end when the person signs out there.

A session's key changes when its user changes the password, but its data stay: they name the row of ProviderSession, and
`UserSession` lists all keys of a user.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.accounts.models import User
from apps.accounts.revocation import end_sessions
from apps.common.clock import now
from apps.identity.models import MAX_SUBJECT_LENGTH, ProviderSession, UsedLogoutToken

ROW_KEY = "provider_session"
"""Where a session's data name its row."""
MAX_FORGOTTEN = 500


def begin_session(request: HttpRequest, user: User, account: SocialAccount) -> None:
    """Store by which session of the provider this session began. Nothing is stored for answers without an ID token."""
    delete_row(request)
    claims = account.extra_data.get("id_token")
    subject = claims.get("sub") if isinstance(claims, dict) else None
    if not isinstance(subject, str) or len(subject) > MAX_SUBJECT_LENGTH:
        return
    sid = claims.get("sid")
    row = ProviderSession.objects.create(
        user=user,
        provider=account.provider,
        subject=subject,
        sid=sid if isinstance(sid, str) and len(sid) <= MAX_SUBJECT_LENGTH else "",
        session_key=request.session.session_key or "",
        began_at=now(),
    )
    request.session[ROW_KEY] = row.pk


def delete_row(request: HttpRequest) -> None:
    """Delete the row of a session that ends or begins anew."""
    if (key := request.session.pop(ROW_KEY, None)) is not None:
        ProviderSession.objects.filter(pk=key).delete()


def end_provider_sessions(provider: str, *, subject: str | None, sid: str | None, reason: str) -> int:
    """End the sessions that began by a provider's session `sid`, or by all of the person `subject`, or by those that
    are both. Return how many were valid."""
    rows = ProviderSession.objects.filter(provider=provider)
    if subject is not None:
        rows = rows.filter(subject=subject)
    if sid is not None:
        rows = rows.filter(sid=sid)
    found = list(rows.select_related("user").order_by("pk"))
    keys = _find_session_keys(found)
    people: dict[int, set[str]] = defaultdict(set)
    for row in found:
        people[row.user_id] |= keys[row.pk]
    users = {row.user_id: row.user for row in found}
    ended = sum(end_sessions(users[key], sessions, reason) for key, sessions in people.items() if sessions)
    ProviderSession.objects.filter(pk__in=[row.pk for row in found]).delete()
    return ended


def delete_expired_rows() -> None:
    """Delete rows whose session has expired or was ended elsewhere, some at each call."""
    before = now() - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    old = ProviderSession.objects.filter(began_at__lt=before).exclude(session_key__in=_list_valid().values("pk"))
    rows = list(old.order_by("began_at")[:MAX_FORGOTTEN])
    for row, keys in zip(rows, _find_session_keys(rows).values(), strict=True):
        if keys:
            ProviderSession.objects.filter(pk=row.pk).update(session_key=next(iter(keys)))
        else:
            row.delete()


def delete_expired_tokens() -> None:
    """Delete what was stored of logout tokens that are refused for their age by now."""
    UsedLogoutToken.objects.filter(expires_at__lt=now() - timedelta(minutes=1)).delete()


def _find_session_keys(rows: Iterable[ProviderSession]) -> dict[int, set[str]]:
    """Return the keys of the valid sessions of each row, by its id."""
    rows = list(rows)
    found: dict[int, set[str]] = {row.pk: set() for row in rows}
    candidates = {row.session_key for row in rows}
    users = {row.user_id for row in rows}
    candidates |= set(UserSession.objects.filter(user__in=users).values_list("session_key", flat=True))
    for session in _list_valid().filter(pk__in=candidates):
        row = session.get_decoded().get(ROW_KEY)
        if row in found:
            found[row].add(session.pk)
    return found


def _list_valid() -> QuerySet[Session]:
    return Session.objects.filter(expire_date__gt=now())

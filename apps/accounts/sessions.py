"""Sessions of people in browsers: where they are signed in, and how they end that.

The session itself is Django's; allauth's `UserSession` says for whom, from where and when it was used last. That is
written once per NOTE_INTERVAL, and not for each request.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare

from apps.accounts import access, audit
from apps.accounts.devices import name_device
from apps.accounts.models import User
from apps.common import request_id
from apps.common.clock import now
from apps.common.errors import ApiError

NOTE_INTERVAL = timedelta(minutes=1)
"""How exactly the last use of a session is known."""
MAX_NOTED = 10_000
"""Sessions that a process remembers to have noted."""
MAX_SESSIONS = 200
"""Sessions of a person that are listed, the last used first."""
MAX_ID_LENGTH = 18  # digits that every 64-bit integer has
UNKNOWN_ADDRESS = "0.0.0.0"  # stands for "not known"
_noted: OrderedDict[str, float] = OrderedDict()


def track_sessions(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that notes where and when sessions are used."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        key = request.session.session_key if settings.SESSION_COOKIE_NAME in request.COOKIES else None
        if key and _needs_note(key) and request.user.is_authenticated:
            _note_use(request, key)
        return response

    return middleware


def _needs_note(key: str) -> bool:
    at = time.monotonic()
    if at - _noted.get(key, float("-inf")) < NOTE_INTERVAL.total_seconds():
        return False
    _noted[key] = at
    _noted.move_to_end(key)
    while len(_noted) > MAX_NOTED:
        _noted.popitem(last=False)
    return True


def _note_use(request: HttpRequest, key: str) -> None:
    seen = {
        "user_id": request.user.pk,
        "ip": _parse_address(request_id.get_client_address()),
        "user_agent": request.headers.get("User-Agent", "")[:200],
        "last_seen_at": now(),
    }
    try:
        with transaction.atomic():
            if not UserSession.objects.filter(session_key=key).update(**seen):
                UserSession.objects.get_or_create(session_key=key, defaults=seen)
    except DatabaseError:  # read-only for now: no reason to refuse a request
        _noted.pop(key, None)


def _parse_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return UNKNOWN_ADDRESS


def list_sessions(user: User, current: str = "") -> list[dict[str, Any]]:
    """Return the sessions in which a user is signed in, the last used first, at most MAX_SESSIONS. `current`: the key
    of the caller's session."""
    rows = list(UserSession.objects.filter(user_id=user.pk).order_by("-last_seen_at", "pk")[:MAX_SESSIONS])
    valid = _filter_valid(user, [row.session_key for row in rows])
    return [
        {
            "id": str(row.pk),
            "device": name_device(row.user_agent),
            "userAgent": row.user_agent,
            "address": "" if row.ip == UNKNOWN_ADDRESS else row.ip,
            "createdAt": row.created_at,
            "lastSeenAt": row.last_seen_at,
            "current": row.session_key == current,
        }
        for row in rows
        if row.session_key in valid
    ]


def _filter_valid(user: User, keys: list[str]) -> set[str]:
    """Return the keys of sessions that have not expired and are of this user, password and epoch."""
    stored = User.objects.get(pk=user.pk)  # the caller's instance may be an older one
    found = set()
    for row in Session.objects.filter(pk__in=keys, expire_date__gt=now()):
        content = row.get_decoded()
        if str(content.get(SESSION_KEY)) == str(stored.pk) and constant_time_compare(
            content.get(HASH_SESSION_KEY, ""), stored.get_session_auth_hash()
        ):
            found.add(row.pk)
    return found


@transaction.atomic
def end_session(actor: User, user: User, session_id: str) -> None:
    """End one session of `user`: one's own, or as an administrator anybody's. Raises ApiError 404."""
    if actor.pk != user.pk:
        access.require_administrator(actor)
    is_id = session_id.isascii() and session_id.isdecimal() and len(session_id) <= MAX_ID_LENGTH
    row = UserSession.objects.filter(user_id=user.pk, pk=session_id).first() if is_id else None
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    Session.objects.filter(pk=row.session_key).delete()
    row.delete()
    audit.record_event(actor, "session.end", user.username, address=row.ip)

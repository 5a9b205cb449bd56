"""Tickets and tokens: how a user who is signed in to the console gets access at a proxy address, which has no sign-in.

    console ──create──▶ ticket, 60 s, once ──redeem──▶ token, 10 minutes ──renew──▶ the next token …

Each token has a number, and using the last one makes the next. So a copied token ends with its time; and when both the
copy and the original are used on, one of them comes with a number that was replaced long ago, and both lose access.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.db import transaction
from django.db.models import F

from apps.accounts import access, audit
from apps.accounts.models import ApiToken, Role, User
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.proxy import authorizations, hostnames, targets
from apps.proxy.authorizations import Authorization
from apps.proxy.models import Entry

TICKET_LIFETIME = timedelta(seconds=60)
TOKEN_SECONDS = 600
RENEW_AFTER_SECONDS = TOKEN_SECONDS / 2
REPLACED_TOKEN_GRACE = timedelta(seconds=60)
"""How long a page's other requests may still come with the previous token."""
SESSION_LIFETIME = timedelta(days=1)
_SALT = "fermi.door"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket's address, and when it expires."""

    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session at present, and what its address leads to. `has_access`: whether its user still has access."""

    entry: Entry
    authorization: Authorization
    has_access: bool
    environment: DevEnvironment
    state: str
    run: int


@dataclass(frozen=True, slots=True)
class SessionToken:
    """Content of the cookie. It contains the origins for the time after its end: `console` is where the user goes back
    to."""

    entry: str
    serial: int
    origin: str
    console: str
    age: float


def create_ticket(
    user: User,
    environment_id: str,
    *,
    door: str = "",
    path: str = "/",
    console: str,
    session: str = "",
    token: ApiToken | None = None,
) -> Ticket:
    """Return a ticket for an environment (member). `console`: origin of the console that the user is at. Raises
    ApiError."""
    environment = get_accessible_environment(user, environment_id)
    door = targets.check_service(environment, door)
    safe = hostnames.check_path(path)
    if safe is None:
        raise ApiError(400, "DOOR_PATH", "path", path=path[:200])
    name = hostnames.ProxyAddress(environment.pk, door)
    if hostnames.make_label(name) is None:
        raise ApiError(409, "DOOR_NAME_UNFIT", "door", name=f"{door}--{environment.pk}")
    origin = hostnames.make_origin(name, console, settings.DOOR_HOST, settings.PUBLIC_URL)
    if origin is None:
        raise ApiError(409, "DOOR_HOST_MISSING", console=console)
    ticket, moment = secrets.token_urlsafe(32), now()
    with transaction.atomic():
        Entry.objects.filter(kept_until__lt=moment).delete()
        check_row_limit("doors", Entry.objects.filter(user=user))
        Entry.objects.create(
            user=user, environment=environment, door=door, session=session, token=token, origin=origin,
            console=console, path=safe, ticket=_hash_ticket(ticket), created_at=moment, kept_until=moment +
        TICKET_LIFETIME, )  # fmt: skip
        audit.record_event(
            user, "environment.open", environment.pk, project=environment.project_id, door=door or "main"
        )
    return Ticket(f"{origin}/_fermi/enter?ticket={ticket}", moment + TICKET_LIFETIME)


def get_accessible_environment(user: User, environment_id: str) -> DevEnvironment:
    """Return the environment. Raises ApiError: 404 for users without access, 403 for viewers."""
    rows = DevEnvironment.objects.select_related("cluster", "hosted").filter(gone_at__isnull=True)
    return access.get_object(rows, user, environment_id, Role.MEMBER)


def redeem_ticket(ticket: str, host: str) -> Entry | None:
    """Return the session of a ticket: once, in time, at its own address, for a user who still has access; else None."""
    moment = now()
    entry = Entry.objects.filter(ticket=_hash_ticket(ticket), entered_at__isnull=True, kept_until__gt=moment).first()
    if entry is None or not _is_for_host(entry, host) or not authorizations.filter_valid([_make_authorization(entry)]):
        return None
    entered = {"entered_at": moment, "renewed_at": moment, "serial": 1, "kept_until": moment + SESSION_LIFETIME}
    if not Entry.objects.filter(pk=entry.pk, entered_at__isnull=True).update(**entered):
        return None
    for name, value in entered.items():
        setattr(entry, name, value)
    return entry


def read_session(entry_id: str) -> SessionState | None:
    """Return the session, or None."""
    rows = Entry.objects.select_related("environment__cluster", "environment__hosted", "token")
    entry = rows.filter(pk=entry_id, entered_at__isnull=False).first()
    if entry is None:
        return None
    held = _make_authorization(entry)
    environment = entry.environment
    return SessionState(
        entry,
        held,
        bool(authorizations.filter_valid([held])),
        environment,
        targets.get_state(environment),
        targets.get_run_number(environment),
    )


def renew_token(entry_id: str, serial: int) -> str | None:
    """Return the next token for the first request with the last one, else None."""
    moment = now()
    renewed = Entry.objects.filter(pk=entry_id, serial=serial).update(
        serial=F("serial") + 1, renewed_at=moment, kept_until=moment + SESSION_LIFETIME
    )
    return make_token(Entry.objects.get(pk=entry_id)) if renewed else None


def is_token_replayed(session: SessionState, token: SessionToken) -> bool:
    """Return True if the token's number was replaced so long ago that no legitimate request still has it."""
    entry = session.entry
    late = entry.renewed_at is not None and now() - entry.renewed_at > REPLACED_TOKEN_GRACE
    return token.serial < entry.serial - 1 or (token.serial < entry.serial and late)


def end_session(entry_id: str) -> None:
    """Delete the session."""
    Entry.objects.filter(pk=entry_id).delete()


def extend_sessions(entries: list[str]) -> None:
    """Extend sessions in use, including those with one old connection only."""
    moment = now()
    Entry.objects.filter(pk__in=entries, kept_until__lt=moment + SESSION_LIFETIME / 2).update(
        kept_until=moment + SESSION_LIFETIME
    )


def make_token(entry: Entry) -> str:
    """Return the signed token of a session."""
    said: dict[str, Any] = {"e": entry.pk, "s": entry.serial, "o": entry.origin, "c": entry.console}
    return signing.dumps(said, salt=_SALT)


def parse_token(cookie: str) -> SessionToken | None:
    """Return the token in a cookie, or None if it is not the platform's. Expired ones are read too: see `age`."""
    try:
        said = signing.loads(cookie, salt=_SALT)
        made = signing.b62_decode(cookie.rsplit(":", 2)[1])
    except (signing.BadSignature, ValueError, IndexError):
        return None
    return SessionToken(said["e"], said["s"], said["o"], said["c"], now().timestamp() - made)


def _is_for_host(entry: Entry, host: str) -> bool:
    return entry.origin.partition("://")[2] == host.lower()


def _make_authorization(entry: Entry) -> Authorization:
    """Return the authorization of a session; load it with its environment."""
    return Authorization(
        entry.user_id, entry.environment.project_id, entry.environment_id,
        session=entry.session, token=entry.token_id or "", entry=entry.pk,
    )  # fmt: skip


def _hash_ticket(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()

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
from apps.common.row_bounds import check_rows
from apps.proxy import hostnames, sessions, targets
from apps.proxy.models import Entry
from apps.proxy.sessions import Pass

TICKET = timedelta(seconds=60)
TOKEN_S = 600
RENEWED_AFTER_S = TOKEN_S / 2
IN_FLIGHT = timedelta(seconds=60)
"""How long a page's other requests may still come with the previous token."""
KEPT = timedelta(days=1)
_SALT = "fermi.door"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket's address, and when it expires."""

    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """A session at present, and what its address leads to. `standing`: whether its user still has access."""

    entry: Entry
    held: Pass
    standing: bool
    environment: DevEnvironment
    state: str
    run: int


@dataclass(frozen=True, slots=True)
class Token:
    """Content of the cookie. It contains the origins for the time after its end: `console` is where the user goes back
    to."""

    entry: str
    serial: int
    origin: str
    console: str
    age: float


def mint(
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
    environment = enterable(user, environment_id)
    door = targets.door(environment, door)
    safe = hostnames.safe_path(path)
    if safe is None:
        raise ApiError(400, "DOOR_PATH", "path", path=path[:200])
    name = hostnames.Name(environment.pk, door)
    if hostnames.label(name) is None:
        raise ApiError(409, "DOOR_NAME_UNFIT", "door", name=f"{door}--{environment.pk}")
    origin = hostnames.origin(name, console, settings.DOOR_HOST, settings.PUBLIC_URL)
    if origin is None:
        raise ApiError(409, "DOOR_HOST_MISSING", console=console)
    ticket, moment = secrets.token_urlsafe(32), now()
    with transaction.atomic():
        Entry.objects.filter(kept_until__lt=moment).delete()
        check_rows("doors", Entry.objects.filter(user=user))
        Entry.objects.create(
            user=user, environment=environment, door=door, session=session, token=token, origin=origin,
            console=console, path=safe, ticket=_digest(ticket), created_at=moment, kept_until=moment + TICKET,
        )  # fmt: skip
        audit.record(user, "environment.open", environment.pk, project=environment.project_id, door=door or "main")
    return Ticket(f"{origin}/_fermi/enter?ticket={ticket}", moment + TICKET)


def enterable(user: User, environment_id: str) -> DevEnvironment:
    """Return the environment. Raises ApiError: 404 for users without access, 403 for viewers."""
    rows = DevEnvironment.objects.select_related("cluster", "hosted").filter(gone_at__isnull=True)
    return access.get(rows, user, environment_id, Role.MEMBER)


def redeem(ticket: str, host: str) -> Entry | None:
    """Return the session of a ticket: once, in time, at its own address, for a user who still has access; else None."""
    moment = now()
    entry = Entry.objects.filter(ticket=_digest(ticket), entered_at__isnull=True, kept_until__gt=moment).first()
    if entry is None or not _is_at(entry, host) or not sessions.good([_pass(entry)]):
        return None
    entered = {"entered_at": moment, "renewed_at": moment, "serial": 1, "kept_until": moment + KEPT}
    if not Entry.objects.filter(pk=entry.pk, entered_at__isnull=True).update(**entered):
        return None
    for name, value in entered.items():
        setattr(entry, name, value)
    return entry


def look(entry_id: str) -> Known | None:
    """Return the session, or None."""
    rows = Entry.objects.select_related("environment__cluster", "environment__hosted", "token")
    entry = rows.filter(pk=entry_id, entered_at__isnull=False).first()
    if entry is None:
        return None
    held = _pass(entry)
    environment = entry.environment
    return Known(
        entry, held, bool(sessions.good([held])), environment, targets.state(environment), targets.run(environment)
    )


def renew(entry_id: str, serial: int) -> str | None:
    """Return the next token for the first request with the last one, else None."""
    moment = now()
    renewed = Entry.objects.filter(pk=entry_id, serial=serial).update(
        serial=F("serial") + 1, renewed_at=moment, kept_until=moment + KEPT
    )
    return token_for(Entry.objects.get(pk=entry_id)) if renewed else None


def is_replayed(known: Known, token: Token) -> bool:
    """Return True if the token's number was replaced so long ago that no legitimate request still has it."""
    entry = known.entry
    late = entry.renewed_at is not None and now() - entry.renewed_at > IN_FLIGHT
    return token.serial < entry.serial - 1 or (token.serial < entry.serial and late)


def end(entry_id: str) -> None:
    """Delete the session."""
    Entry.objects.filter(pk=entry_id).delete()


def keep(entries: list[str]) -> None:
    """Extend sessions in use, including those with one old connection only."""
    moment = now()
    Entry.objects.filter(pk__in=entries, kept_until__lt=moment + KEPT / 2).update(kept_until=moment + KEPT)


def token_for(entry: Entry) -> str:
    """Return the signed token of a session."""
    said: dict[str, Any] = {"e": entry.pk, "s": entry.serial, "o": entry.origin, "c": entry.console}
    return signing.dumps(said, salt=_SALT)


def read(cookie: str) -> Token | None:
    """Return the token in a cookie, or None if it is not the platform's. Expired ones are read too: see `age`."""
    try:
        said = signing.loads(cookie, salt=_SALT)
        made = signing.b62_decode(cookie.rsplit(":", 2)[1])
    except (signing.BadSignature, ValueError, IndexError):
        return None
    return Token(said["e"], said["s"], said["o"], said["c"], now().timestamp() - made)


def _is_at(entry: Entry, host: str) -> bool:
    return entry.origin.partition("://")[2] == host.lower()


def _pass(entry: Entry) -> Pass:
    """Return the authorization of a session; load it with its environment."""
    return Pass(
        entry.user_id, entry.environment.project_id, entry.environment_id,
        session=entry.session, token=entry.token_id or "", entry=entry.pk,
    )  # fmt: skip


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()

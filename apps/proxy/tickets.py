"""Tickets and tokens: how somebody whom the console knows gets through a door on a host that has no sign-in.

    console ──mint──▶ ticket, 60 s, once ──redeem──▶ token, 10 minutes ──renew──▶ the next token …

Each token has a number, and using the last one makes the next. So a token that was copied ends with its time; and when
both the copy and the original go on being used, one of them comes with a number that was replaced long ago, and nobody
gets any further with either.
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
"""So long a page's other requests may still come with the token before."""
KEPT = timedelta(days=1)
_SALT = "fermi.door"


@dataclass(frozen=True, slots=True)
class Ticket:
    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """An entry as it is now, and what its door leads to. `standing`: whether its person may still be inside."""

    entry: Entry
    held: Pass
    standing: bool
    environment: DevEnvironment
    state: str
    run: int


@dataclass(frozen=True, slots=True)
class Token:
    """What a cookie says. The origins stand in it for the moment when it has run out: `console` is the way back."""

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
    """Member or more; 404 for strangers. `console`: the origin that the person is at."""
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
    """404 for strangers, 403 for viewers."""
    rows = DevEnvironment.objects.select_related("cluster", "hosted").filter(gone_at__isnull=True)
    return access.get(rows, user, environment_id, Role.MEMBER)


def redeem(ticket: str, host: str) -> Entry | None:
    """Once, in time, at its own door, by somebody who may still enter."""
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
    """The next token, for whoever comes first with the last one."""
    moment = now()
    renewed = Entry.objects.filter(pk=entry_id, serial=serial).update(
        serial=F("serial") + 1, renewed_at=moment, kept_until=moment + KEPT
    )
    return token_for(Entry.objects.get(pk=entry_id)) if renewed else None


def is_replayed(known: Known, token: Token) -> bool:
    """A number that was replaced so long ago that no honest request still comes with it."""
    entry = known.entry
    late = entry.renewed_at is not None and now() - entry.renewed_at > IN_FLIGHT
    return token.serial < entry.serial - 1 or (token.serial < entry.serial and late)


def end(entry_id: str) -> None:
    Entry.objects.filter(pk=entry_id).delete()


def keep(entries: list[str]) -> None:
    """Somebody is still inside, if only by a connection that was opened long ago."""
    moment = now()
    Entry.objects.filter(pk__in=entries, kept_until__lt=moment + KEPT / 2).update(kept_until=moment + KEPT)


def token_for(entry: Entry) -> str:
    said: dict[str, Any] = {"e": entry.pk, "s": entry.serial, "o": entry.origin, "c": entry.console}
    return signing.dumps(said, salt=_SALT)


def read(cookie: str) -> Token | None:
    """None: not ours. Old ones are read, too: `age` says so."""
    try:
        said = signing.loads(cookie, salt=_SALT)
        made = signing.b62_decode(cookie.rsplit(":", 2)[1])
    except (signing.BadSignature, ValueError, IndexError):
        return None
    return Token(said["e"], said["s"], said["o"], said["c"], now().timestamp() - made)


def _is_at(entry: Entry, host: str) -> bool:
    return entry.origin.partition("://")[2] == host.lower()


def _pass(entry: Entry) -> Pass:
    """Load it with its environment."""
    return Pass(
        entry.user_id, entry.environment.project_id, entry.environment_id,
        session=entry.session, token=entry.token_id or "", entry=entry.pk,
    )  # fmt: skip


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()

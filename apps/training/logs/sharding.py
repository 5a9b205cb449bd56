"""Which of several watchers follows what.

One row names the watchers that live, and at which of its versions each said so last. Whoever reads it knows without
asking anybody which watcher follows a task or a cluster: the one of them with the highest hash of both names.

    join, or find another silent ──▶ epoch + 1 ──▶ others learn of it at their next beat, within BEAT
                                        └────────▶ what they still store under the epoch before is refused at once

Each beat is a compare-and-set of the row, in no transaction: a process that is paused holds nothing that others need.
Whether another is silent is judged by one's own clock alone, and by nobody who was silent himself. So no two clocks are
compared, and a database that was away for a minute makes nobody dead.

SQLite has one watcher, which follows everything and needs no row (`Alone`).
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from django.db import close_old_connections, connection

from apps.training.models import Watch

log = logging.getLogger(__name__)

BEAT = 1.5
LEASE = 5.0
"""Seconds: who has not beaten for so long follows nothing, and others take over what it followed."""
TRIES = 10


class Superseded(Exception):
    """Somebody else follows it now, or may."""


class Shares(Protocol):
    """What a watcher asks of them."""

    def has(self, key: str) -> bool:
        """Whether this watcher follows what has that id."""

    def confirm(self, key: str) -> None:
        """In the transaction that stores something of it. Raises Superseded."""

    def looked(self, moment: float) -> None:
        """Since `moment` (unix seconds) everything that this watcher follows was looked at once."""

    def run(self, ending: threading.Event) -> None:
        """A thread of its own."""

    def hurry(self) -> None:
        """Have that thread look now."""


class Alone:
    def has(self, key: str) -> bool:
        return True

    def confirm(self, key: str) -> None:
        pass

    def looked(self, moment: float) -> None:
        pass

    def run(self, ending: threading.Event) -> None:
        pass

    def hurry(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class View:
    """`until`: when it is too old to go by, by this process's clock."""

    epoch: int = 0
    members: tuple[str, ...] = ()
    until: float = 0.0


class Shared:
    """One watcher's part. `beat` is called by one thread, everything else by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._clock = clock
        self._view = View()
        self._heard: dict[str, tuple[int, float]] = {}  # of each watcher: its last beat, and when it was new
        self._soon = threading.Event()
        self._looked = 0.0

    def has(self, key: str) -> bool:
        return self._has(self._view, key)

    def confirm(self, key: str) -> None:
        view = self._view
        if not (self._has(view, key) and Watch.objects.filter(pk=1, epoch=view.epoch).exists()):
            self.hurry()
            raise Superseded(key)

    def looked(self, moment: float) -> None:
        self._looked = moment

    def _has(self, view: View, key: str) -> bool:
        return self._clock() < view.until and owner(view.members, key) == self.name

    def run(self, ending: threading.Event) -> None:
        """Neither an engine that is slow nor much to read makes a watcher silent."""
        while not ending.is_set():
            try:
                close_old_connections()
                self.beat()
            except Exception as error:
                log.warning("watchers cannot share: %s; again in %s s", error, BEAT)
                connection.close_if_unusable_or_obsolete()
            self._soon.wait(BEAT)
            self._soon.clear()
        try:
            self.leave()
        except Exception as error:
            log.warning("others take over in %s s: %s", LEASE, error)
        connection.close()

    def hurry(self) -> None:
        self._soon.set()

    def beat(self) -> None:
        """Says that this watcher lives, and learns which others do."""
        for _ in range(TRIES):
            moment, row = self._clock(), self._row()
            silent = self._silent(row.members, moment)
            members = {who: beat for who, beat in row.members.items() if who not in silent}
            members[self.name] = row.version + 1
            epoch = row.epoch + (members.keys() != row.members.keys())
            if self._put(row, epoch, members):
                if silent:
                    log.warning("silent for %s s, and replaced: %s", LEASE, ", ".join(silent))
                self._view = View(epoch, tuple(sorted(members)), moment + LEASE)
                return

    def leave(self) -> None:
        """Others need not wait until this one counts as silent."""
        self._view = View()
        for _ in range(TRIES):
            row = self._row()
            members = {who: beat for who, beat in row.members.items() if who != self.name}
            if members == row.members or self._put(row, row.epoch + 1, members):
                return

    def _silent(self, members: dict[str, int], moment: float) -> list[str]:
        if moment >= self._view.until:  # was away itself
            self._heard = {}
        before = self._heard
        self._heard = {
            who: before[who] if who in before and before[who][0] == beat else (beat, moment)
            for who, beat in members.items()
        }
        return [who for who, (_, at) in self._heard.items() if who != self.name and moment - at > LEASE]

    @staticmethod
    def _row() -> Watch:
        return Watch.objects.get_or_create(pk=1)[0]

    def _put(self, row: Watch, epoch: int, members: dict[str, int]) -> bool:
        looked = {who: at for who, at in row.looked.items() if who in members}
        if self.name in members:
            looked[self.name] = self._looked
        same = Watch.objects.filter(pk=1, version=row.version)
        return bool(same.update(version=row.version + 1, epoch=epoch, members=members, looked=looked))


@lru_cache(maxsize=1 << 14)
def owner(members: tuple[str, ...], key: str) -> str:
    """When one comes or goes, only what it has changes hands."""
    return max(members, key=lambda who: blake2b(f"{who} {key}".encode(), digest_size=8).digest(), default="")

"""Divides the followed tasks and clusters among several watchers.

One row names the living watchers, and the row version at which each wrote its last heartbeat. Every process that reads
it knows which watcher follows a task or a cluster: the one with the highest hash of both names.

    join, or find another silent ──▶ epoch + 1 ──▶ others learn of it at their next heartbeat, within BEAT_SECONDS
                                        └────────▶ what they still store under the epoch before is refused at once

Each heartbeat is a compare-and-set of the row, in no transaction: a paused process holds nothing that others need.
Whether another watcher is silent is judged by one's own clock alone, and never by a watcher that was silent itself. So
no two clocks are compared, and a database outage of a minute makes no watcher count as dead.

SQLite has one watcher, which follows everything and needs no row (`SingleWatcher`).
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

BEAT_SECONDS = 1.5
LEASE_SECONDS = 5.0
"""Seconds: a watcher without a heartbeat for so long follows nothing, and others take over what it followed."""
MAX_TRIES = 10


class LeaseLostError(Exception):
    """Raised if another watcher follows the key now, or may do so."""


class WatcherSharding(Protocol):
    """What a watcher needs of the division of work."""

    def has(self, key: str) -> bool:
        """Return True if this watcher follows the task or cluster with that id."""

    def confirm(self, key: str) -> None:
        """Raise LeaseLostError unless this watcher still follows the key; called in the transaction that stores
        something."""

    def looked(self, moment: float) -> None:
        """Record that everything this watcher follows was scanned once since `moment`, in unix seconds."""

    def run(self, ending: threading.Event) -> None:
        """Send heartbeats until `ending` is set; runs in a thread of its own."""

    def hurry(self) -> None:
        """Have that thread send a heartbeat now."""


class SingleWatcher:
    """The only watcher: follows everything."""

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
class WatcherMembership:
    """The watchers as of the last heartbeat. `until`: when this is too old to act on, by this process's clock."""

    epoch: int = 0
    members: tuple[str, ...] = ()
    until: float = 0.0


class ShardedWatcher:
    """One of several watchers. `beat` is called by one thread, everything else by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._clock = clock
        self._view = WatcherMembership()
        self._heard: dict[str, tuple[int, float]] = {}  # of each watcher: its last beat, and when it was new
        self._soon = threading.Event()
        self._looked = 0.0

    def has(self, key: str) -> bool:
        return self._has(self._view, key)

    def confirm(self, key: str) -> None:
        """Raise LeaseLostError unless this watcher still follows the key in the stored epoch."""
        view = self._view
        if not (self._has(view, key) and Watch.objects.filter(pk=1, epoch=view.epoch).exists()):
            self.hurry()
            raise LeaseLostError(key)

    def looked(self, moment: float) -> None:
        self._looked = moment

    def _has(self, view: WatcherMembership, key: str) -> bool:
        return self._clock() < view.until and find_owner(view.members, key) == self.name

    def run(self, ending: threading.Event) -> None:
        """Send heartbeats from a thread of its own, so that neither a slow engine nor much to read makes the watcher
        silent."""
        while not ending.is_set():
            try:
                close_old_connections()
                self.beat()
            except Exception as error:
                log.warning("watchers cannot share: %s; again in %s s", error, BEAT_SECONDS)
                connection.close_if_unusable_or_obsolete()
            self._soon.wait(BEAT_SECONDS)
            self._soon.clear()
        try:
            self.leave()
        except Exception as error:
            log.warning("others take over in %s s: %s", LEASE_SECONDS, error)
        connection.close()

    def hurry(self) -> None:
        self._soon.set()

    def beat(self) -> None:
        """Write this watcher's heartbeat, and learn which others are alive."""
        for _ in range(MAX_TRIES):
            moment, row = self._clock(), self._row()
            silent = self._silent(row.members, moment)
            members = {who: beat for who, beat in row.members.items() if who not in silent}
            members[self.name] = row.version + 1
            epoch = row.epoch + (members.keys() != row.members.keys())
            if self._put(row, epoch, members):
                if silent:
                    log.warning("silent for %s s, and replaced: %s", LEASE_SECONDS, ", ".join(silent))
                self._view = WatcherMembership(epoch, tuple(sorted(members)), moment + LEASE_SECONDS)
                return

    def leave(self) -> None:
        """Remove this watcher from the row, so that others need not wait until it counts as silent."""
        self._view = WatcherMembership()
        for _ in range(MAX_TRIES):
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
        return [who for who, (_, at) in self._heard.items() if who != self.name and moment - at > LEASE_SECONDS]

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
def find_owner(members: tuple[str, ...], key: str) -> str:
    """Return the member that follows the key; empty without members. When a member joins or leaves, only what it
    follows changes hands."""
    return max(members, key=lambda who: blake2b(f"{who} {key}".encode(), digest_size=8).digest(), default="")

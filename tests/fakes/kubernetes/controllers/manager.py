"""Runs the controllers: every change makes keys dirty, dirty keys are reconciled, one after the other."""

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Hashable, Iterable
from typing import Protocol

from tests.fakes.kubernetes.store import Change, Store


class Controller(Protocol):
    def keys(self, change: Change) -> Iterable[Hashable]:
        """What has to be looked at because of the change. Called for every change, in order, under the store's lock."""

    def reconcile(self, key: Hashable) -> float | None:
        """Brings one thing nearer to what it should be; again after so many seconds."""


class Pace:
    """Writes a second that a controller allows itself, and how many at once after a pause. (client-go's flow control is
    asked before each request; here what one look wrote is paid for before the next.)"""

    def __init__(self, qps: float, burst: int) -> None:
        self.qps, self.burst = qps, burst
        self._left, self._at = float(burst), time.monotonic()

    def seconds(self) -> float:
        """Until the next request."""
        now = time.monotonic()
        self._left = min(self.burst, self._left + (now - self._at) * self.qps)
        self._at = now
        return max(0.0, (1 - self._left) / self.qps)

    def spend(self, requests: int) -> None:
        self._left -= requests


class Manager:
    """`errors`: what controllers raised; a fixture fails the test because of it. `paces`: of those held back."""

    def __init__(self, store: Store, controllers: Iterable[Controller]) -> None:
        self.store, self.controllers = store, list(controllers)
        self.errors: list[str] = []
        self.paused = False
        self.paces: dict[Controller, Pace] = {}
        self._dirty: dict[tuple[Controller, Hashable], None] = {}
        self._later: list[tuple[float, int, Controller, Hashable]] = []
        self._numbers = itertools.count()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self.store.lock:
            self._closing = True
            self.store.changed.notify_all()
        self._thread.join()

    def pause(self, on: bool) -> None:
        """While paused nothing reconciles: objects stay as clients made them."""
        with self.store.lock:
            self.paused = on
            self.store.changed.notify_all()

    def reconcile(self, controller: Controller, key: Hashable) -> None:
        with self.store.lock:
            self._dirty[controller, key] = None
            self.store.changed.notify_all()

    def _run(self) -> None:
        while not self._closing:
            with self.store.lock:
                self._read_journal()
                if not self._dirty or self.paused:
                    wait = self._later[0][0] - time.monotonic() if self._later else 60.0
                    self.store.changed.wait(max(0.0, min(wait, 60.0)) if not self.paused else 60.0)
                    self._read_journal()
                    if self.paused:
                        continue
                while self._later and self._later[0][0] <= time.monotonic():
                    _, _, controller, key = heapq.heappop(self._later)
                    self._dirty[controller, key] = None
                work, self._dirty = list(self._dirty), {}
            for controller, key in work:
                if self._closing:
                    break
                self._reconcile(controller, key)

    def _read_journal(self) -> None:
        changes = self.store.journal[:]
        self.store.journal.clear()
        for change, controller in itertools.product(changes, self.controllers):
            try:
                for key in controller.keys(change):
                    self._dirty[controller, key] = None
            except Exception:
                self.errors.append(traceback.format_exc())

    def _reconcile(self, controller: Controller, key: Hashable) -> None:
        pace = self.paces.get(controller)
        if pace and (early := pace.seconds()):
            self._look_in(early, controller, key)
            return
        try:
            with self.store.lock:
                before = self.store.version
                again = controller.reconcile(key)
                if pace:
                    pace.spend(self.store.version - before)
        except Exception:
            self.errors.append(traceback.format_exc())
            return
        if again is not None:
            self._look_in(again, controller, key)

    def _look_in(self, seconds: float, controller: Controller, key: Hashable) -> None:
        with self.store.lock:
            heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), controller, key))

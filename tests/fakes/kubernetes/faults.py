"""What goes wrong between a client and the API server, by plan."""

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tests.fakes.kubernetes.errors import Refused

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True)
class Call:
    """One request. `subresource` "" is the object itself; `code` 0: it got no answer."""

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    user_agent: str
    at: float
    code: int = 0

    def fits(self, verb: str, resource: str, name: str, user_agent: str) -> bool:
        verbs = WRITES if verb == "write" else (self.verb if verb == "*" else verb,)
        kind = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        agent = fnmatchcase(self.user_agent, user_agent)
        return self.verb in verbs and fnmatchcase(kind, resource) and fnmatchcase(self.name, name) and agent


@dataclass
class Fault:
    """Strikes calls that fit, from the `nth` on, `times` times (None: for ever).

    `refuse`: this answer instead of the effect. `reset`: the connection breaks. `hang`: no answer until the client
    gives up. `kill`: the process `victim`, which asks, is killed. These three strike before the request took effect,
    or `after`: the effect is there and the answer lost.
    `cut`: a watch breaks in the middle of its so-manyth event.
    """

    kind: Literal["refuse", "reset", "hang", "cut", "kill"]
    verb: str = "*"
    resource: str = "*"
    name: str = "*"
    user_agent: str = "*"
    nth: int = 1
    times: int | None = 1
    after: bool = False
    refused: Refused | None = None
    events: int = 1
    victim: int = 0
    met: int = field(default=0, init=False)
    """How many calls fitted so far."""

    @property
    def struck(self) -> int:
        """How many calls it hit so far."""
        met = max(0, self.met - self.nth + 1)
        return met if self.times is None else min(self.times, met)


class Faults:
    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._planned.append(fault)
        return fault

    def refuse(self, verb: str, resource: str, refused: Refused, name: str = "*", nth: int = 1,
               times: int | None = 1) -> Fault:  # fmt: skip
        return self.add(Fault("refuse", verb, resource, name, nth=nth, times=times, refused=refused))

    def reset(self, verb: str = "*", resource: str = "*", name: str = "*", *, after: bool = False, nth: int = 1,
              times: int | None = 1) -> Fault:  # fmt: skip
        return self.add(Fault("reset", verb, resource, name, nth=nth, times=times, after=after))

    def hang(self, verb: str = "*", resource: str = "*", name: str = "*", *, after: bool = False, nth: int = 1,
             times: int | None = 1) -> Fault:  # fmt: skip
        return self.add(Fault("hang", verb, resource, name, nth=nth, times=times, after=after))

    def kill(self, victim: int, verb: str = "*", resource: str = "*", *, after: bool = False, nth: int = 1) -> Fault:
        return self.add(Fault("kill", verb, resource, nth=nth, after=after, victim=victim))

    def cut_watch(self, resource: str = "*", events: int = 1, times: int | None = 1) -> Fault:
        return self.add(Fault("cut", "watch", resource, times=times, events=events))

    def clear(self) -> None:
        with self._lock:
            self._planned.clear()

    def strike(self, call: Call) -> Fault | None:
        """The fault that hits this call; every plan that it fits counts it."""
        with self._lock:
            hit = None
            for fault in self._planned:
                if call.fits(fault.verb, fault.resource, fault.name, fault.user_agent):
                    fault.met += 1
                    due = fault.met >= fault.nth and (fault.times is None or fault.met < fault.nth + fault.times)
                    hit = hit or (fault if due else None)
            return hit

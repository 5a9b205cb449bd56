"""One worker: its desired state, its actual state, and one step from the latter to the former.

    wanted            exists                    step
    nothing           a process                 end it (it was fenced); once its log is shipped, remove it
    attempt 2         a process of attempt 1    end that first; nothing else starts before it is gone
    attempt 2         nothing                   start it, once its order has been fetched
    attempt 2, stop   any state                 end it; an attempt that has not started cannot start any more

Everything that was started is on disk, so a step may be interrupted anywhere, by a kill as well, and is repeated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.agent import runs
from fermi.agent.runs import HostContext, RankRun
from fermi.runner.node import IDLE_SIBLING_SECONDS, SIBLINGS_GRACE_SECONDS

FENCED_GRACE_SECONDS = 3.0
"""How long a process may take to exit that the platform has given up: its place belongs to another attempt."""


@dataclass(frozen=True, slots=True)
class DesiredRun:
    """The server's answer for a worker."""

    generation: int
    order: Mapping[str, Any] | None = None
    stop: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The attempt's name; empty when there is none."""
        return self.order["name"] if self.order else ""


class Worker:
    """`desired` is None until the server has answered: until then nothing is started and nothing is ended."""

    def __init__(self, name: str, gpu: int | None, folder: Path, host: HostContext) -> None:
        self.id, self.gpu = name, gpu
        self.host = host
        self.folder = folder / "runs"
        self.runs = runs.load_runs(self.folder)
        self.desired: DesiredRun | None = None
        self.heard_at = 0.0
        self.body: Mapping[str, Any] | None = None

    def learn(self, answer: Mapping[str, Any], asked_at: float, now: float) -> bool:
        """Apply an answer that was requested at `asked_at`, and return True if it differs. Answers may arrive out of
        order: a lower generation counts only when it was requested after the higher one arrived (a restored database).
        """
        new = DesiredRun(int(answer["generation"]), answer.get("order"), answer.get("stop"))
        known = self.desired
        if known and new.generation < known.generation and asked_at < self.heard_at:
            return False
        self.desired, self.heard_at = new, now
        if self.body and self.body["digest"] != (new.order or {}).get("digest"):
            self.body = None
        return new != known

    @property
    def wanted_name(self) -> str:
        """The wanted attempt's name; empty when there is none."""
        return self.desired.name if self.desired else ""

    def needs_order(self) -> bool:
        """Return True if the order's body has to be fetched."""
        wanted = self.desired
        if wanted is None or not wanted.order or wanted.name in self.runs or self.body is not None:
            return False
        return not self._stopped(wanted.name) and not wanted.order.get("begun")

    def disown(self) -> None:
        """End what runs here, because another host drives the worker now."""
        self.desired = DesiredRun(0)

    def run_step(self) -> None:
        """Do one step; the caller starts what is `startable`, since the ranks of a host are forked together. Raises
        OSError when the folder cannot be written."""
        for run in self.runs.values():
            run.update_state()
            if run.lost and run.alive:
                run.request_end(0)  # its runner died, what it started did not
        wanted = self.desired
        if wanted is None:
            return
        for run in [run for name, run in self.runs.items() if name != wanted.name]:
            if not run.is_over:
                run.request_end(FENCED_GRACE_SECONDS)
            elif run.shipped:
                run.remove()
                del self.runs[run.name]
        if wanted.order:
            self._settle_wanted(wanted, wanted.order)

    def startable(self) -> list[RankRun]:
        """Return the run that is wanted, not started, and not blocked."""
        wanted = self.wanted_name
        if any(not run.is_over for name, run in self.runs.items() if name != wanted):
            return []
        run = self.runs.get(wanted)
        return [run] if run and run.absent and not run.stopping else []

    def report(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Return its part of a heartbeat, without its identity."""
        run = self.current()
        return {
            "generation": self.desired.generation if self.desired else 0,
            "process": {**run.process, "left": run.left} if run else None,
            "usage": dict(usage),
            "logs": {"offset": (run.acknowledged or 0) if run else 0},
        }

    def news(self) -> dict[str, Any]:
        """Return the part whose changes are reported at once. The acknowledged size of its log is not, nor progress
        within a step before the start: it goes with the next heartbeat."""
        said = self.report({})
        if process := said["process"]:
            doing = process["doing"] or {}
            said["process"] = {**process, "doing": doing.get("code")}
        return said | {"logs": None}

    def pulse(self) -> dict[str, Any] | None:
        """Return its rank's progress, which is part of each heartbeat and triggers none."""
        run = self.current()
        return run.pulse if run else None

    def current(self) -> RankRun | None:
        """Return the run that is reported: one that has to end comes before the wanted one."""
        wanted = self.wanted_name
        going = [run for name, run in self.runs.items() if name != wanted and not run.is_over]
        if going:
            return going[0]
        return self.runs.get(wanted) or next(iter(self.runs.values()), None)

    def _settle_wanted(self, desired: DesiredRun, order: Mapping[str, Any]) -> None:
        run = self.runs.get(desired.name)
        stopped = self._stopped(desired.name)
        if run is None and (stopped or order.get("begun")):
            run = RankRun.create_ended(self.folder / desired.name, desired.name, order["rank"])
        elif run is None and self.body and self.body["digest"] == order["digest"]:
            run = RankRun.create(self.folder / desired.name, self.body, self.host)
        if run is None:
            return
        self.runs[desired.name] = run
        if stopped and not run.is_over:
            run.request_end(float((desired.stop or {})["graceSeconds"]))
            run.update_state()

    def _stopped(self, name: str) -> bool:
        return bool(self.desired and self.desired.stop and self.desired.stop["name"] == name)


def end_siblings(workers: Sequence[Worker]) -> None:
    """End the other ranks of an attempt on this host if one has failed: they hang in a collective or will fail too."""
    everything = [run for worker in workers for run in worker.runs.values()]
    failed = {run.name for run in everything if run.failed}
    for run in everything:
        if run.name in failed and not run.is_over and not run.stopping:
            run.request_end(SIBLINGS_GRACE_SECONDS, IDLE_SIBLING_SECONDS)

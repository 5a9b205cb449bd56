"""Nodes of an attempt that run inside of environments which are containers of worker hosts. They are entered through
the environment's daemon (envd), and their state lies in the platform's data directory:

    <data>/inside/<task>-<attempt>.json        its nodes, and the run of the environment in which each is started
    <data>/inside/<task>-<attempt>.end.json    a request to end it: what was not started then never is
    <data>/logs/<task>/<attempt>/              output and reports (`engines.inside.followers`)

The nodes do not wait for each other: as those of workers, they are started together, and each finds the head by its
host's address.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from fermi.engines.agent import environments
from fermi.engines.carried_logs import AttemptFiles
from fermi.engines.environments import EnvironmentPhase
from fermi.engines.inside import download, managed_environment, observation, start
from fermi.engines.inside.download import TransferLimits
from fermi.engines.inside.followers import EnvironmentEntry, EnvironmentFollowers, NodeInEnvironment, StopRequest
from fermi.engines.inside.render import ARTIFACT_KIND
from fermi.engines.inside.session import InsideSession
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Handle, Observation, Phase, Rendered
from fermi.runner import files
from fermi.schema import serialization

log = logging.getLogger(__name__)

ATTEMPTS_FOLDER, STOP_SUFFIX = "inside", ".end"
POLL_SECONDS = 0.5
ENDED_PHASES = (EnvironmentPhase.ENDED, EnvironmentPhase.ABSENT)


@dataclass(frozen=True, slots=True)
class ContainerNode:
    """Node of an attempt inside of a container. `run`: the run of its environment in which it is started; `first`: its
    first rank."""

    node_rank: int
    name: str
    environment: str
    run: str
    first: int
    processes: int


@dataclass(frozen=True, slots=True)
class ContainerAttempt:
    """Nodes of an attempt that run inside of containers. `success`: as its plan has it; `begun`: all of its nodes were
    told to start."""

    attempt: str
    nodes: tuple[ContainerNode, ...]
    success: str = "all"
    begun: bool = False


def list_container_orders(rendered: Rendered) -> list[Mapping[str, Any]]:
    """Return the order for each node inside of a container."""
    return [artifact.content for artifact in rendered.artifacts if artifact.kind == ARTIFACT_KIND]


class ContainerAttempts:
    """Attempts of one platform that run inside of containers. Methods that read or write a file may raise OSError."""

    def __init__(self, data_dir: Path, limits: TransferLimits) -> None:
        self._data_dir, self._folder, self._limits = data_dir, data_dir / ATTEMPTS_FOLDER, limits

    # start and stop

    def start(self, rendered: Rendered, secrets: Mapping[str, str]) -> None:
        """Start the nodes of an attempt; what was started is not started again, and nothing of an attempt that was
        asked to end. Raise BackendError."""
        wanted = list_container_orders(rendered)
        if not wanted or self._end(rendered.name):
            return
        record = self._record(rendered.name) or self._first(rendered.name, wanted)
        if record.begun:
            return
        collects = download.has_missing_files(self._data_dir, rendered.name)
        for collecting in (True, False) if collects else (False,):
            for order, node in zip(wanted, record.nodes, strict=True):
                if self._end(rendered.name):
                    return
                try:
                    if collecting:
                        args = (rendered.name, node.node_rank, self._data_dir, self._limits)
                        start.download_leftovers(partial(enter_environment, node.run), *args)
                    else:
                        start.start_node(
                            partial(enter_environment, node.run), order, order["head"], secrets, self._data_dir
                        )
                except BackendError as error:
                    error.params.setdefault("environment", node.name)
                    raise
        self._write(replace(record, begun=True))

    def _first(self, attempt: str, orders: Iterable[Mapping[str, Any]]) -> ContainerAttempt:
        kept = environments.get_hosts().kept([order["environment"] for order in orders])
        nodes, success = [], "all"
        for order in orders:
            spec, one, success = order["spec"], kept.get(order["environment"]), order["success"]
            if one is None:
                raise BackendError("INSIDE_NOT_RUNNING", environment=spec["node"])
            ranks = spec["ranks"]
            place = (order["environment"], one.run, ranks[0]["rank"], len(ranks))
            nodes.append(ContainerNode(spec["node_rank"], spec["node"], *place))
        return self._write(ContainerAttempt(attempt, tuple(nodes), success))

    def request_end(self, handle: Handle, grace_seconds: float, still_seconds: float | None) -> None:
        """Ask an attempt to end; a later request counts where it ends the attempt more than a second sooner."""
        kill_at, known = time.time() + grace_seconds, self._end(handle.name)
        if known is None or kill_at < known.kill_at - 1:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            asked = {"kill_at": kill_at, "still_seconds": still_seconds}
            files.write_json_atomically(self._path(handle.name, STOP_SUFFIX), asked, 0o600)

    def delete_attempt(self, handle: Handle) -> bool:
        """End the attempt's nodes and remove what is kept of it; return whether that was confirmed. An environment that
        cannot be reached is asked again: the attempt stays among `names`."""
        record = self._record(handle.name)
        gone = [self._forget(one, handle.name) for one in record.nodes] if record else []
        if all(gone):
            for end in ("", STOP_SUFFIX):
                Path(self._path(handle.name, end)).unlink(missing_ok=True)
        return all(gone)

    def _forget(self, node: ContainerNode, attempt: str) -> bool:
        with suppress(BackendError):
            if find_container_end(node):
                return True
            with enter_environment(node.run) as session:
                session.request("cancel", of=attempt, node=node.node_rank, grace=0.0)
                return session.request("forget", of=attempt).get("gone") is True
        return False

    # observe

    def observe(self, handle: Handle) -> Observation | None:
        """Return the observation of the nodes inside alone; None where there are none."""
        record = self._record(handle.name)
        if record is None:
            return None
        heard = AttemptFiles(self._data_dir, handle.task_id, handle.attempt)
        reports = {one.node_rank: heard.report(one.node_rank) for one in record.nodes}
        names = {one.node_rank: one.name for one in record.nodes}
        ended, head = self._end(handle.name) is not None, record.success == "head" and 0 in names
        found = observation.build_observation(reports, names, began=record.begun, ended=ended, head=head)
        if found.left is False or not any(report.get("silence") for report in reports.values()):
            return found
        if host := self._lost(record):
            left = False if ended else None
            return replace(found, phase=Phase.FAILED, left=left, cause=Cause("HOST_LOST", {"host": host}))
        return found

    @staticmethod
    def _lost(record: ContainerAttempt) -> str:
        """Return the host of the first of its environments that is lost; empty: none."""
        known = environments.get_hosts().runs([one.run for one in record.nodes])
        return next((report.host for report in known.values() if report.status == "lost"), "")

    def node(self, handle: Handle, rank: int) -> ContainerNode | None:
        """Return the node that has this rank, where the rank runs inside of a container; None otherwise."""
        record = self._record(handle.name)
        for one in record.nodes if record else ():
            if one.first <= rank < one.first + one.processes:
                report = AttemptFiles(self._data_dir, handle.task_id, handle.attempt).report(one.node_rank)
                states = {entry["rank"]: entry["state"] for entry in report.get("ranks") or ()}
                return one if states.get(rank) == "running" else None
        return None

    def names(self) -> list[str]:
        """Return the names of all attempts that have nodes inside of containers."""
        there = os.listdir(self._folder) if self._folder.is_dir() else []
        names = [name.removesuffix(".json") for name in there if name.endswith(".json")]
        return [name for name in names if not name.endswith(STOP_SUFFIX)]

    def follow(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Follow whatever runs inside of containers, here or in another process, until `stop`; ask nodes to end when
        they are to."""
        followers = EnvironmentFollowers(self._data_dir, on_change)
        while not stop.wait(POLL_SECONDS):
            try:
                names = self.names()
                for record in filter(None, map(self._record, names)):
                    self._ensure(followers, record)
                followers.drop_unknown(set(names).__contains__)
            except OSError:
                log.exception("what runs in containers is not followed now")
        followers.stop()

    def _ensure(self, followers: EnvironmentFollowers, record: ContainerAttempt) -> None:
        """Follow an attempt once all of its nodes were told to start: before, one that was not started would seem to be
        gone."""
        end = self._end(record.attempt)
        if not record.begun and end is None:
            return
        for one in record.nodes:
            what = (record.attempt, one.node_rank, one.first, one.processes)
            place = NodeInEnvironment(*what, partial(find_container_end, one), end, self._limits)
            followers.ensure(EnvironmentEntry(one.run, partial(enter_environment, one.run)), place)

    # files

    def _record(self, attempt: str) -> ContainerAttempt | None:
        said = files.read_json(self._path(attempt))
        return serialization.load(ContainerAttempt, said) if said else None

    def _write(self, record: ContainerAttempt) -> ContainerAttempt:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_json_atomically(self._path(record.attempt), asdict(record), 0o600)
        return record

    def _end(self, attempt: str) -> StopRequest | None:
        said = files.read_json(self._path(attempt, STOP_SUFFIX))
        return StopRequest(float(said["kill_at"]), said["still_seconds"]) if said else None

    def _path(self, attempt: str, end: str = "") -> str:
        return str(self._folder / f"{attempt}{end}.json")


def enter_environment(run: str, *module: str) -> InsideSession:
    """Return a session inside of an environment's container. Raise BackendError."""
    return managed_environment.enter_environment(environments.get_hosts().channel(run), "", *module)


def find_container_end(node: ContainerNode) -> Mapping[str, Any] | None:
    """Return what became of the container in which a node was started; None: it runs, as far as its host has reported.
    Raise BackendError."""
    report = environments.get_hosts().runs([node.run]).get(node.run)
    if (
        report
        and not report.stopped
        and not (report.environment_status and report.environment_status.phase in ENDED_PHASES)
    ):
        return None
    evidence = f"{node.run} has ended"
    return {"code": "CONTAINER_RESTARTED", "params": {"pod": node.name, "evidence": evidence}, "at": time.time()}

"""The backend's verbs on Kubernetes. The cluster is the only memory; any process of the platform can ask."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from queue import Empty
from typing import Any

from fermi.launch.backends.kubernetes import names, state
from fermi.launch.backends.kubernetes.client import Client, Refused
from fermi.launch.backends.kubernetes.deletion import Deletion
from fermi.launch.backends.kubernetes.gang import Gang, Object
from fermi.launch.backends.kubernetes.logs import Files, Followers, Reports
from fermi.launch.backends.kubernetes.render import render
from fermi.launch.backends.kubernetes.watch import Memory, Watch
from fermi.launch.errors import BackendError
from fermi.launch.spec import Handle, JobSpec, LogChunk, Observation, Phase, Plan, Problem, Rendered

log = logging.getLogger(__name__)

ABSENT_SECONDS = 1.0
"""How long the API server's word that an attempt is not there is believed."""
FIND_SECONDS = 5.0
ECHO_SECONDS = 0.3
SETTLE_SECONDS = 2.0
"""How long nothing must have been heard of an attempt before a pod that is not there counts as deleted: its job's
failure may be heard of before its own."""
LONGEST_NAME = 63 - len("-node-9999")  # of a DNS label, and pods' names get six more characters that may be cut


class KubernetesBackend:
    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.client = Client(connection)
        self._watch = Watch(self.client, jobset=bool(connection.get("jobset")), queue=bool(connection.get("queue")))
        self._deletion = Deletion(
            self.client, jobset=bool(connection.get("jobset")), taint=bool(connection.get("out_of_service_taint"))
        )
        self._reports = Reports(self.data_dir)
        self._followers = Followers(self.client, self.data_dir, self._pod)
        self._absent: dict[str, float] = {}
        self._known: dict[str, tuple[int, tuple[int, ...], Observation]] = {}

    def problems(self, job: JobSpec) -> list[Problem]:
        found = []
        for index, node in enumerate(job.nodes):
            namespace = node.engine.get("namespace") or self.client.namespace
            params = {"environment": node.name, "found": namespace, "namespace": self.client.namespace}
            if namespace != self.client.namespace:
                found.append(Problem(f"environmentIds.{index}", "NAMESPACE_FOREIGN", params))
            if not node.image:
                found.append(Problem(f"environmentIds.{index}", "IMAGE_MISSING", params))
        if job.resume_from.startswith(f"{self.data_dir}/") and not Path(job.resume_from).exists():
            found.append(Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from}))
        return found

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(job, plan, {"data_dir": str(self.data_dir), **self.connection})

    def submit(self, rendered: Rendered) -> None:
        """The root first, then the Service (whoever asks for a name too early is told for a while that there is none),
        then the jobs, then a mark on the root that all of them are there. A crash in between leaves no such mark, and
        the next call creates what is missing. A root that bears a mark gets no children."""
        memory = self._watch.ready()
        gang = memory.gang(rendered.name)
        if gang.cancelled or gang.submitted:
            return
        root, *children = [artifact.content for artifact in rendered.artifacts]
        created = self.client.create("ConfigMap", root) or self.client.get(self.client.path("ConfigMap", rendered.name))
        memory.wrote("ConfigMap", created)
        if names.annotations(created).keys() & {names.CANCELLED, names.SUBMITTED}:
            return
        self._absent.pop(rendered.name, None)
        owner = {
            "apiVersion": "v1", "kind": "ConfigMap", "name": rendered.name, "uid": created["metadata"]["uid"],
            "controller": False, "blockOwnerDeletion": True,
        }  # fmt: skip
        here = gang.jobs.keys() | {obj["metadata"]["name"] for obj in gang.of("JobSet")}
        services = [obj for obj in children if obj["kind"] == "Service"]
        missing = [obj for obj in children if obj["kind"] != "Service" and obj["metadata"]["name"] not in here]
        for together in (services, missing):
            self.client.together(lambda obj: self.client.create(obj["kind"], _owned(obj, owner)), together)
        marked = self.client.annotate("ConfigMap", rendered.name, **{names.SUBMITTED: "true"})
        memory.wrote("ConfigMap", marked)
        if names.CANCELLED in names.annotations(marked):  # meanwhile: whoever cancelled may not have seen these
            self.client.together(lambda obj: self.client.delete(obj["kind"], obj["metadata"]["name"]), missing)

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        """From memory, with no request; unless something is not there, which only the API server may say."""
        memory = self._watch.ready()
        return {handle.name: self._observe(memory, handle) for handle in handles}

    def cancel(self, handle: Handle, grace_seconds: float) -> None:
        memory = self._watch.ready()
        gang = memory.gang(handle.name)
        if not gang.cancelled:
            memory.wrote("ConfigMap", self._deletion.mark(handle.name))
        self._followers.ensure(gang)
        self._deletion.delete(gang, grace_seconds)

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        return Files(self.data_dir, handle.task_id, handle.attempt).chunk(rank, cursor, limit)

    def port_is_free(self, port: int) -> bool:
        """Each pod has an address of its own."""
        return True

    def stand_by(self, preload: Sequence[str]) -> None:
        """Pods begin cold."""

    def forget(self, handle: Handle) -> None:
        self._deletion.forget(handle.name)

    def watch(self, stop: threading.Event, on_change: Callable[[str], None]) -> None:
        """Until `stop`: follows the logs of all pods, and calls `on_change` with the name of each attempt of which an
        object changed; once at once, and once a moment later for a process whose own watch was behind this one."""
        news = self._watch.listen()
        again: dict[str, float] = {}
        find = 0.0
        while not stop.is_set():
            try:
                memory = self._watch.ready()
            except BackendError as error:
                log.warning("the cluster cannot be watched: %s", error)
                stop.wait(FIND_SECONDS)
                continue
            changed = _drain(news, 0.1 if again else 0.5)
            moment = time.monotonic()
            for name in changed:
                self._followers.ensure(memory.gang(name))
                on_change(name)
                again[name] = moment + ECHO_SECONDS
            for name in [name for name, due in again.items() if due <= moment]:
                del again[name]
                on_change(name)
            if moment >= find:
                find = moment + FIND_SECONDS
                for name in memory.names():
                    self._followers.ensure(memory.gang(name))

    def orphans(self, live: Collection[str]) -> list[Handle]:
        """Attempts that have objects in the cluster and are not among `live` (names): to be passed to `forget`."""
        memory = self._watch.ready()
        found = [name for name in memory.names() if name not in live and not memory.gang(name).is_empty()]
        return [Handle.of(name) for name in sorted(found)]

    def close(self) -> None:
        """Ends the threads of this process; nothing in the cluster."""
        self._watch.stop()
        self._followers.stop()
        self.client.close()

    def _observe(self, memory: Memory, handle: Handle) -> Observation:
        """What is alive and has not changed is not judged again: a thousand idle tasks are looked at all the time."""
        version = memory.version(handle.name)
        if known := self._known.get(handle.name):
            if known[:2] == (version, self._reports.stamps(handle.task_id, handle.attempt, len(known[1]))):
                return known[2]
            del self._known[handle.name]
        gang = memory.gang(handle.name)
        stamps = self._reports.stamps(handle.task_id, handle.attempt, gang.nodes)
        seen = self._judge(gang, handle)
        if seen.left and seen.phase is not Phase.UNKNOWN and len(gang.alive()) == len(gang.pods):
            self._known[handle.name] = (version, stamps, seen)
        return seen

    def _judge(self, gang: Gang, handle: Handle) -> Observation:
        reports = self._reports.of(handle.task_id, handle.attempt, gang.nodes)
        seen = state.observe(gang, handle, reports)
        if gang.is_empty():
            return seen if self._is_absent(handle.name) else Observation(Phase.UNKNOWN)
        if len(gang.alive()) < len(gang.pods):
            self._followers.ensure(gang)
        if seen.cause and seen.cause.code == "POD_DELETED" and gang.idle_seconds() < SETTLE_SECONDS:
            return Observation(Phase.UNKNOWN, seen.left, seen.ranks)
        if seen.phase is Phase.UNKNOWN and seen.cause and self._deletion.is_lifeless(handle.name):
            return Observation(Phase.FAILED, seen.left, seen.ranks, seen.cause)
        if seen.left is None and gang.cancelled and self._deletion.confirmed_gone(handle.name):
            return Observation(seen.phase, False, seen.ranks, seen.cause)
        return seen

    def _is_absent(self, name: str) -> bool:
        """The API server's own word: our memory may not have heard of the attempt yet."""
        if time.monotonic() - self._absent.get(name, -ABSENT_SECONDS) < ABSENT_SECONDS:
            return True
        if self.client.find(self.client.path("ConfigMap", name)) is not None:
            return False
        self._absent = {known: at for known, at in self._absent.items() if time.monotonic() - at < ABSENT_SECONDS}
        self._absent[name] = time.monotonic()
        return True

    def _pod(self, attempt: str, name: str) -> Object | None:
        return self._watch.ready().gang(attempt).pods.get(name)


def _owned(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


def _drain(news: Any, seconds: float) -> list[str]:
    """What is in the queue, each name once; waits up to `seconds` for the first."""
    found: dict[str, None] = {}
    try:
        found[news.get(timeout=seconds)] = None
        while True:
            found[news.get_nowait()] = None
    except Empty:
        return list(found)


__all__ = ["KubernetesBackend", "Refused"]

"""Backend that trains on Kubernetes. The cluster is its only memory; any process of the platform can use it."""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

from fermi.engines import connection_options, telemetry_reports
from fermi.engines.base import Backend, RankExec, build_rank_not_running_error, build_rank_unreachable_error
from fermi.engines.carried_logs import AttemptFiles, ReportCache
from fermi.engines.inside import download, followers, start, upload
from fermi.engines.inside import observation as in_environments
from fermi.engines.inside.download import TransferLimits
from fermi.engines.inside.render import ARTIFACT_KIND
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.engines.kubernetes import causes, inside, module_configmap, names, rank_exec, run_location, state, volumes
from fermi.engines.kubernetes.client import KubernetesClient
from fermi.engines.kubernetes.dcgm import DcgmExporters
from fermi.engines.kubernetes.deletion import AttemptDeleter
from fermi.engines.kubernetes.gang import Gang, Object
from fermi.engines.kubernetes.logs import LogFollowers
from fermi.engines.kubernetes.node_leases import NodeLeases
from fermi.engines.kubernetes.positions import QueuePositions
from fermi.engines.kubernetes.render import render
from fermi.engines.kubernetes.watch import ClusterWatch, ObjectCache
from fermi.jobs.causes import CODE_PREPARING_CODES
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import (
    NO_SECRETS,
    Handle,
    JobSpec,
    LogChunk,
    Node,
    Observation,
    Phase,
    Plan,
    Problem,
    RankProgress,
    Rendered,
    Sample,
)
from fermi.jobs.user_paths import find_missing_path_below

log = logging.getLogger(__name__)

ABSENCE_CACHE_SECONDS = 1.0
"""How long the API server's answer that an attempt does not exist is used."""
RESCAN_SECONDS = 5.0
RETRY_SECONDS = 1.0
REPEAT_SECONDS = 0.3
SETTLE_SECONDS = 2.0
"""Without an event of an attempt for so long, a pod that does not exist counts as deleted: its job's failure may be
received before its own."""
UNSETTLED_CODES = ("POD_DELETED", "JOB_SUSPENDED")
"""Causes for which the true reason may be on its way: a queue's condition comes by another watch than the pods'."""
MAX_NAME_CHARS = 63 - len("-node-9999")  # of a DNS label, and pods' names get six more characters that may be cut


class KubernetesBackend(Backend):
    """Backend on Kubernetes: one Job or JobSet per attempt, and nodes inside of environments' pods."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.mount = volumes.get_data_root(connection)
        self.queues = bool(connection.get("queue"))
        self.client = KubernetesClient(connection)
        self._watch = ClusterWatch(
            self.client, jobset=bool(connection.get("jobset")), queue=bool(connection.get("queue"))
        )
        self._deletion = AttemptDeleter(
            self.client, jobset=bool(connection.get("jobset")), taint=bool(connection.get("out_of_service_taint"))
        )
        self._limits = TransferLimits.from_connection(connection)
        self._environments = inside.PodEnvironments(self.client, self._limits)
        self._positions = QueuePositions(self.client)
        self._leases = NodeLeases(self.client)
        self._exporters = DcgmExporters(connection["dcgmUrl"]) if connection.get("dcgmUrl") else None
        self._reports = ReportCache(self.data_dir)
        self._followers = LogFollowers(self.client, self.data_dir, self._pod)
        self._absent: dict[str, float] = {}
        self._busy: dict[tuple[int, str, str], object] = {}
        self._made: dict[str, set[tuple[str, str]]] = {}  # uid of a root -> kinds and names of children that exist
        self._known: dict[str, tuple[int, tuple[int, ...], tuple[int, ...], Observation]] = {}

    def problems(self, job: JobSpec) -> list[Problem]:
        """Return what is wrong with the job. Of nodes inside of environments little can be wrong: nothing is made for
        them."""
        found, beside = [], [node for node in job.nodes if not node.inside]
        for index, node in enumerate(job.nodes):
            if node.inside:
                continue
            namespace = node.engine.get("namespace") or self.client.namespace
            params = {"environment": node.name, "found": namespace, "namespace": self.client.namespace}
            if namespace != self.client.namespace:
                found.append(Problem(f"environmentIds.{index}", "NAMESPACE_FOREIGN", params))
            if not node.image:
                found.append(Problem(f"environmentIds.{index}", "IMAGE_MISSING", params))
        queue = connection_options.resolve_options(self.connection, job, names.VARIABLE_OPTIONS)["queue"]
        if queue and not self.connection.get("jobset") and len(beside) > 1:
            found.append(Problem("environmentIds", "QUEUE_NEEDS_JOBSET", {"queue": queue}))
        if job.code and beside and not self.connection.get("data"):
            found.append(Problem("code", "CODE_NEEDS_DATA"))
        for field, path in volumes.find_hidden_paths(job, self.connection) if beside else ():
            shared = ", ".join(
                f"{volumes.get_data_root(self.connection)}/{folder}" for folder in volumes.SHARED_FOLDERS
            )
            found.append(Problem(field, "PATH_NOT_SHARED", {"path": path, "allowed": shared}))
        missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
        absent = find_missing_path_below(self.data_dir, job.resume_from, missing)
        return found + (absent or download.check_checkpoint_complete(self.data_dir, job.resume_from))

    def find_run_locations(self, job: JobSpec) -> Mapping[str, RunLocations]:
        lacks = upload.find_upload_problem(job, self.data_dir, self._limits, self.mount, str(self.data_dir))
        return run_location.find_run_locations(job, self.connection, self.client.namespace, lacks)

    def shares_data(self, node: Node) -> bool:
        return bool(volumes.find_data_mount(node, self.connection))

    def enter(self, node: Node) -> InsideSession:
        where = inside.locate_pod(node, self.client.namespace)
        if not where[1]:
            raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)
        return self._environments.enter(*where, inside.get_interpreter(node))

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(job, plan, {"data_dir": str(self.data_dir), **self.connection})

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Create the attempt's objects: the root first, then the Secret and the Service (DNS answers for a while that a
        name does not exist once it was asked too early), then the jobs, then an annotation of the root that all of them
        exist. A crash in between leaves no such annotation, and the next call creates what is missing. A root that has
        it, or is cancelled, gets no children."""
        memory = self._watch.ready()
        gang = memory.gang(rendered.name)
        if gang.cancelled or gang.submitted:
            return
        with self._alone("submit", rendered.name) as alone:
            if alone:
                self._create(rendered, secrets, memory, gang)

    def _create(self, rendered: Rendered, secrets: Mapping[str, str], memory: ObjectCache, gang: Gang) -> None:
        """Create the missing objects: neither what the watch has, nor what this process has made before, nor what
        another process has made meanwhile; where two do it at the same time the second one starts at the end."""
        root, *others = [artifact.content for artifact in rendered.artifacts if artifact.kind != ARTIFACT_KIND]
        orders = inside.list_orders(rendered)
        lives = self._lives(root, orders)
        if lives.get(0):
            root = _set_head(root, lives[0]["ip"])
        children = [obj for obj in others if not module_configmap.is_modules(obj)]
        for pod in _iterate_pod_specs(children):
            volumes.prepare_folders(self.data_dir, pod)
        path = self.client.path("ConfigMap", rendered.name)
        found = self.client.find(path) if gang.root else None
        made = None if found else self.client.create("ConfigMap", root)
        created = found or made or self.client.get(path)
        memory.wrote("ConfigMap", created)
        if names.get_annotations(created).keys() & {names.CANCELLED, names.SUBMITTED}:
            return
        self._absent.pop(rendered.name, None)
        owner = {
            "apiVersion": "v1", "kind": "ConfigMap", "name": rendered.name, "uid": created["metadata"]["uid"],
            "controller": False,
        }  # fmt: skip
        done = self._made.setdefault(owner["uid"], set())
        for obj in others:
            if module_configmap.is_modules(obj):
                module_configmap.ensure_config_map(self.client, obj)

        def create(obj: Mapping[str, Any]) -> None:
            key = obj["kind"], obj["metadata"]["name"]
            if key not in done and not memory.find(rendered.name, *key):
                self.client.create(obj["kind"], _set_owner(obj, owner))
                done.add(key)

        if secrets and children and ("Secret", rendered.name) not in done:
            self.client.create_secret(_set_owner(_build_secret(root, secrets), owner), secrets)
            done.add(("Secret", rendered.name))
        services = [obj for obj in children if obj["kind"] == "Service"]
        jobs = [obj for obj in children if obj["kind"] != "Service"]
        for together in (services, jobs if made else jobs[::-1]):
            self.client.together(create, together)
        if orders:
            self._begin(root, orders, lives, secrets)
        marks = {names.SUBMITTED: "true"} | ({names.SECRETS: "true"} if secrets and children else {})
        if orders:
            marks[names.STARTED_CONTAINERS] = json.dumps(lives, sort_keys=True)
        marked = self.client.annotate("ConfigMap", rendered.name, **marks)
        memory.wrote("ConfigMap", marked)
        if names.CANCELLED in names.get_annotations(marked):  # meanwhile: `cancel` may not have seen these
            self.client.together(lambda obj: self.client.delete(obj["kind"], obj["metadata"]["name"]), jobs)
            self._deletion.delete_secret(rendered.name)
        self._made.pop(owner["uid"], None)

    def _lives(self, root: Object, orders: Mapping[int, Any]) -> dict[int, dict[str, str]]:
        """Return in which container each node inside is to start. Raise BackendError where one does not run."""
        if not orders:
            return {}
        listed = inside.parse_nodes(names.get_annotations(root))

        def read_reports(one: inside.NodeInPod) -> tuple[int, dict[str, str]]:
            pod = self._environments.pod(one)
            if pod is None:
                raise BackendError("INSIDE_NOT_RUNNING", environment=one.environment, why="its pod is not there")
            return one.node_rank, inside.identify_container(pod, one.container)

        return dict(self.client.together(read_reports, listed))

    def _begin(
        self, root: Object, orders: Mapping[int, Any], lives: Mapping[int, Mapping[str, str]],
        secrets: Mapping[str, str],
    ) -> None:  # fmt: skip
        head, name = lives[0]["ip"] if 0 in lives else names.get_head(root), root["metadata"]["name"]
        nodes = inside.parse_nodes(names.get_annotations(root))

        def one(where: inside.NodeInPod, collects: bool = False) -> None:
            enter = partial(self._environments.enter, where.namespace, where.pod, where.container, where.python)
            try:
                if collects:
                    start.download_leftovers(enter, name, where.node_rank, self.data_dir, self._limits)
                else:
                    start.start_node(enter, orders[where.node_rank], head, secrets, self.data_dir)
            except BackendError as error:
                error.params.setdefault("environment", where.environment)
                raise

        if download.has_missing_files(self.data_dir, name):
            self.client.together(partial(one, collects=True), [where for where in nodes if where.brings])
        self.client.together(one, nodes)

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        """Return observations from memory, without a request; unless something does not exist, which only the API
        server can confirm, or waits in a queue, whose order cannot be watched."""
        memory, silent = self._watch.ready(), self._leases.silent()
        found = {handle.name: self._in_line(memory, handle, self._observe(memory, handle)) for handle in handles}
        return (
            {name: _mark_silent_machine(memory.gang(name), seen, silent) for name, seen in found.items()}
            if silent
            else found
        )

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        memory = self._watch.ready()
        gang = memory.gang(handle.name)
        end, kill_at = inside.get_stop_request(gang), time.time() + grace_seconds
        if end is None or (names.INSIDE in gang.marks and kill_at < end.kill_at - 1):
            told = json.dumps({"kill_at": kill_at, "still": still_seconds})
            memory.wrote("ConfigMap", self._deletion.mark_cancelled(handle.name, told))
        self._followers.ensure(gang)
        with self._alone("cancel", handle.name) as alone:
            if alone:
                self._deletion.delete(gang, grace_seconds, partial(memory.find, handle.name, "Pod"))
                if names.SECRETS in gang.marks:
                    self._deletion.delete_secret(handle.name)

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        return AttemptFiles(self.data_dir, handle.task_id, handle.attempt).chunk(rank, cursor, limit)

    def pulses(self, handle: Handle) -> Mapping[int, RankProgress]:
        return AttemptFiles(self.data_dir, handle.task_id, handle.attempt).pulses()

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        samples = telemetry_reports.read_samples(
            AttemptFiles(self.data_dir, handle.task_id, handle.attempt).folder, after
        )
        if self._exporters and samples:
            with suppress(BackendError):
                return self._exporters.instead(samples, self._watch.ready().gang(handle.name).pods.values())
        return samples

    def get_rank_exec(self, rendered: Rendered, handle: Handle, rank: int) -> RankExec:
        for order in inside.list_orders(rendered).values():
            if any(one["rank"] == rank for one in order["spec"]["ranks"]):
                return self._beside_inside(rendered, order, handle, rank)
        return rank_exec.find_rank_exec(self.client, rendered, handle, rank)

    def _beside_inside(self, rendered: Rendered, order: Mapping[str, Any], handle: Handle, rank: int) -> RankExec:
        node_rank = order["spec"]["node_rank"]
        root = next(one.content for one in rendered.artifacts if one.kind == "ConfigMap")
        where = next(one for one in inside.parse_nodes(names.get_annotations(root)) if one.node_rank == node_rank)
        ranks = AttemptFiles(self.data_dir, handle.task_id, handle.attempt).report(node_rank).get("ranks") or ()
        if not any(one["rank"] == rank and one["state"] == "running" for one in ranks):
            raise build_rank_not_running_error(handle, rank)
        python = order["python"] if order["python"].startswith("/") else where.python

        def dial() -> socket.socket:
            module = ("fermi.inside.rank_exec", handle.name, str(node_rank), str(rank))
            try:
                found = self._environments.enter(where.namespace, where.pod, where.container, python, *module)
            except InsideError as error:
                raise build_rank_unreachable_error(handle, rank, str(error.params.get("why") or error.code)) from error
            return found.release()

        return RankExec(node_rank, dial)

    def left_out(self, handle: Handle) -> list[Problem]:
        return download.list_left_out(self.data_dir, handle)

    def port_host(self, job: JobSpec) -> str | None:
        """Return None: each pod has an address of its own, unless the administrator puts pods into the hosts'
        network."""
        hosts = (self.connection.get("pod") or {}).get("hostNetwork")
        return str(job.head.engine.get("node") or "") if hosts else None

    def delete_attempt(self, handle: Handle) -> None:
        root = self.client.find(self.client.path("ConfigMap", handle.name))
        for one in inside.parse_nodes(names.get_annotations(root)) if root else ():
            with suppress(BackendError):  # the next attempt there removes what stays
                self._environments.delete_attempt(one, handle.name)
        self._deletion.delete_attempt(handle.name)
        module_configmap.delete_unused(self.client)

    def watch(self, stop: threading.Event, on_change: Callable[[str], None]) -> None:
        """Follow the logs of all pods until `stop`, and call `on_change` with the name of each attempt of which an
        object changed; once at once, and once a moment later for a process whose own watch was behind this one."""
        news, inner = self._watch.listen(), followers.EnvironmentFollowers(self.data_dir, on_change)
        try:
            self._follow(news, stop, on_change, inner)
        finally:
            inner.stop()
            self._watch.leave(news)
            self.close()  # the cluster was deleted, or is reached in a new way; if not, the next use starts again

    def _follow(
        self, news: Any, stop: threading.Event, on_change: Callable[[str], None], inner: followers.EnvironmentFollowers
    ) -> None:
        again: dict[str, float] = {}
        find, silent = 0.0, frozenset[str]()
        while not stop.is_set():
            try:
                memory = self._watch.ready()
            except BackendError:  # the watch has logged it
                stop.wait(RETRY_SECONDS)
                continue
            changed = _read_changes(news, 0.1 if again else 0.5)
            moment = time.monotonic()
            for name in changed:
                self._ensure(memory.gang(name), inner)
                on_change(name)
                again[name] = moment + REPEAT_SECONDS
            inner.drop_unknown(memory.has)
            for name in [name for name, due in again.items() if due <= moment]:
                del again[name]
                on_change(name)
            if moment >= find:
                find = moment + RESCAN_SECONDS
                before, silent = silent, self._leases.silent()
                for name in memory.names():
                    gang = memory.gang(name)
                    self._ensure(gang, inner)
                    if _list_machines(gang) & (silent | before):  # no object changes because of it
                        on_change(name)

    def _ensure(self, gang: Gang, inner: followers.EnvironmentFollowers) -> None:
        """Follow all of an attempt: the logs of its pods, and its nodes inside once they were to start."""
        self._followers.ensure(gang)
        if gang.submitted or gang.cancelled:
            for one in inside.list_nodes(gang):
                inner.ensure(*self._environments.build_follow_target(gang, one))

    def orphans(self, live: Collection[str]) -> list[Handle]:
        """Return attempts that have objects in the cluster and are not among `live` (names), to be passed to
        `forget`."""
        memory = self._watch.ready()
        found = [name for name in memory.names() if name not in live and not memory.gang(name).is_empty()]
        return [Handle.from_name(name) for name in sorted(found)]

    def close(self) -> None:
        """End the threads of this process, until the backend is used again; nothing in the cluster."""
        self._watch.stop()
        self._leases.stop()
        self._followers.stop()
        self.client.close()

    @contextmanager
    def _alone(self, verb: str, name: str) -> Iterator[bool]:
        """Yield whether no other thread of this process does the same, which need not be done twice."""
        key, mine = (os.getpid(), verb, name), object()
        alone = self._busy.setdefault(key, mine) is mine
        try:
            yield alone
        finally:
            if alone:
                del self._busy[key]

    def _observe(self, memory: ObjectCache, handle: Handle) -> Observation:
        """Return the observation of an attempt. One that lives and has not changed is not judged again: a thousand idle
        tasks are observed all the time."""
        version = memory.version(handle.name)
        if known := self._known.get(handle.name):
            if known[:3] == (version, known[1], self._reports.stamps(handle.task_id, handle.attempt, known[1])):
                return known[3]
            self._known.pop(handle.name, None)  # another thread may have removed it
        gang = memory.gang(handle.name)
        places = (*gang.places, *(one.node_rank for one in inside.list_nodes(gang)))
        stamps = self._reports.stamps(handle.task_id, handle.attempt, places)
        seen = self._judge(gang, handle)
        if seen.waiting and seen.waiting.code in CODE_PREPARING_CODES:  # only the pods' logs show when that is over
            self._followers.ensure(gang)
        elif seen.left and seen.phase is not Phase.UNKNOWN and len(gang.alive()) == len(gang.pods):
            self._known[handle.name] = (version, places, stamps, seen)
        return seen

    def _in_line(self, memory: ObjectCache, handle: Handle, observation: Observation) -> Observation:
        """Return the observation with the attempt's position in Kueue's queue, where Kueue reports it."""
        waits = observation.waiting
        if waits is None or "queue" not in waits.params:
            return observation
        place = self._positions.find_position(waits.params["queue"], memory.gang(handle.name).workloads)
        if place is None:
            return observation
        return replace(observation, waiting=replace(waits, params={**waits.params, "position": place}))

    def _judge(self, gang: Gang, handle: Handle) -> Observation:
        """Return the observation of pods and nodes inside, merged where it has both."""
        inner = inside.list_nodes(gang)
        if not inner:
            return self._judge_pods(gang, handle)
        reports = self._reports.get_reports(handle.task_id, handle.attempt, [one.node_rank for one in inner])
        known = {one.node_rank: one.environment for one in inner}
        head = gang.marks.get(names.SUCCESS) == "head" and 0 in known
        seen = in_environments.build_observation(reports, known, began=gang.submitted, ended=gang.cancelled, head=head)
        if gang.cancelled and not gang.submitted and not any(reports.values()):
            seen = replace(seen, left=True)  # until the follower has ended it
        return in_environments.merge_observations(seen, self._judge_pods(gang, handle)) if gang.places else seen

    def _judge_pods(self, gang: Gang, handle: Handle) -> Observation:
        reports = self._reports.get_reports(handle.task_id, handle.attempt, gang.places)
        seen = state.build_observation(gang, handle, reports)
        if gang.is_empty():
            return seen if self._is_absent(handle.name) else Observation(Phase.UNKNOWN)
        if len(gang.alive()) < len(gang.pods):
            self._followers.ensure(gang)
        if seen.left is False and names.SECRETS in gang.marks:
            with suppress(BackendError):  # the sweep does it, too
                self._deletion.delete_secret(handle.name)
        if seen.cause and seen.cause.code in UNSETTLED_CODES and gang.idle_seconds() < SETTLE_SECONDS:
            return Observation(Phase.UNKNOWN, seen.left, seen.ranks)
        if seen.phase is Phase.UNKNOWN and seen.cause and self._deletion.is_lifeless(handle.name):
            return Observation(Phase.FAILED, seen.left, seen.ranks, seen.cause)
        if seen.left is None and gang.cancelled and self._deletion.is_confirmed_gone(handle.name):
            return Observation(seen.phase, False, seen.ranks, seen.cause)
        return seen

    def _is_absent(self, name: str) -> bool:
        """Return whether the API server has no root of the attempt: the watch may not know it yet."""
        if time.monotonic() - self._absent.get(name, -ABSENCE_CACHE_SECONDS) < ABSENCE_CACHE_SECONDS:
            return True
        if self.client.find(self.client.path("ConfigMap", name)) is not None:
            return False
        self._absent = {
            known: at for known, at in self._absent.items() if time.monotonic() - at < ABSENCE_CACHE_SECONDS
        }
        self._absent[name] = time.monotonic()
        return True

    def _pod(self, attempt: str, name: str) -> Object | None:
        return self._watch.ready().gang(attempt).pods.get(name)


def _list_machines(gang: Gang) -> set[str]:
    """Return the machines of pods that live."""
    return {str((pod.get("spec") or {}).get("nodeName") or "") for pod in gang.alive()}


def _mark_silent_machine(gang: Gang, observation: Observation, silent: Collection[str]) -> Observation:
    """Return the observation with the first of its machines whose lease is not renewed, which is why its logs do not
    come either. Whether its ranks still run is not known: Kubernetes decides when it is given up (`NODE_LOST`)."""
    if observation.phase is not Phase.RUNNING or not _list_machines(gang) & set(silent):
        return observation
    pod = next(
        pod for _, pod in sorted(gang.get_pods_by_node().items()) if (pod.get("spec") or {}).get("nodeName") in silent
    )
    why = "its kubelet does not renew its lease in kube-node-lease"
    return replace(observation, waiting=causes.build_pod_cause("NODE_SILENT", pod, why))


def _iterate_pod_specs(objects: Iterable[Object]) -> Iterator[Object]:
    """Yield the specs of the pods that Jobs and JobSets are to make."""
    for obj in objects:
        jobs = [one["template"]["spec"] for one in obj["spec"].get("replicatedJobs") or ()]
        for job in [obj["spec"]] if obj["kind"] == "Job" else jobs:
            yield job["template"]["spec"]


def _set_head(root: Object, address: str) -> Object:
    """Return the root with the address of the head node, for pods of an attempt whose head is inside of an
    environment."""
    data = dict(root["data"])
    data["job.json"] = json.dumps({**json.loads(data["job.json"]), "head": address}, sort_keys=True) + "\n"
    return {**root, "data": data}


def _set_owner(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


def _build_secret(root: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    meta = {key: root["metadata"][key] for key in ("name", "namespace", "labels")}
    kind = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    return {**kind, "type": "Opaque", "immutable": True, "stringData": {**values}}


def _read_changes(news: Any, seconds: float) -> list[str]:
    """Return the names in the queue, each once; wait up to `seconds` for the first."""
    found: dict[str, None] = {}
    try:
        found[news.get(timeout=seconds)] = None
        while True:
            found[news.get_nowait()] = None
    except Empty:
        return list(found)

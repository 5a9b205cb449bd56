"""The kubelets of all nodes: pods from bound to ended, by script or as real processes."""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes import clock, conditions
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused, bad_request, not_faked, not_found
from tests.fakes.kubernetes.kubelet import devices
from tests.fakes.kubernetes.kubelet.containers import (
    HOME,
    Container,
    Evicted,
    Execution,
    Namespaces,
    Process,
    Runs,
    Script,
    Scripted,
    Waits,
    base,
    namespaces,
    rootfs,
)
from tests.fakes.kubernetes.kubelet.inside import Inside, execute
from tests.fakes.kubernetes.kubelet.logs import Log
from tests.fakes.kubernetes.kubelet.view import Missing, View
from tests.fakes.kubernetes.resources import LEASES, NODES, PODS, Resource
from tests.fakes.kubernetes.store import Change, Object

RETRY_SECONDS = 0.1
NO_IMAGE = (
    'ErrImagePull: failed to pull and unpack image "{image}": failed to resolve reference "{image}": failed to do '
    "request: dial tcp: lookup registry.invalid: no such host"
)
LEASE_SECONDS = 10.0
BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10.0, 300.0
"""Before the second restart of a container, and at most; the first comes at once, each wait is twice the one before
(kubernetes/kubernetes, pkg/kubelet/kubelet.go: MaxCrashLoopBackOff; pkg/kubelet/kuberuntime/kuberuntime_manager.go:
doBackOff)."""
EVICTION_GRACE_SECONDS = 1.0
"""Of a pod that has to go at once (pkg/kubelet/eviction/eviction_manager.go: immediateEvictionGracePeriodSeconds)."""
LIFE = "FERMI_LIFE"
"""Tells the processes of a container that has no namespaces which life of it this is."""
MESSAGE_BYTES = 4096
LOG_TAIL_LINES, LOG_TAIL_BYTES = 80, 2048


@dataclass
class Run:
    """A pod as its kubelet has it."""

    pod: Object
    root: Path
    containers: list[Container] = field(default_factory=list)
    waiting: tuple[str, str] = ("ContainerCreating", "")
    told: Script | None = None
    started: bool = False
    evicted: str = ""
    rejected: tuple[str, str] | None = None
    """Why the kubelet did not take it: a reason and a message."""
    given: devices.Held | None = None
    """None: it has not been looked at yet."""
    apart: bool = False
    view: View | None = None
    env: dict[str, dict[str, str]] = field(default_factory=dict)
    """By container: what its pod and its image set."""
    inside: dict[str, Inside] = field(default_factory=dict)
    restarts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """By container: restarts that count for the wait before the next one."""
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By container: how the one before this one ended."""
    backing_off: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        ends = self.started or bool(self.evicted)
        return self.rejected is not None or (ends and all(one.code is not None for one in self.containers))


class Kubelets:
    """`scripts`: (name pattern, script), the newest first; a pod without one really runs. `image_env`: what the image
    sets. `missing_images`: patterns of those that cannot be pulled. `unresolved`: Services whose names stay
    unresolvable. `dead`: nodes whose kubelet does nothing. `starting`: how many commands a kubelet, by its node, will
    refuse yet because it does not know its pods. `as_users`: an interpreter with which processes run as whom
    their pod says (`runAsUser`, `runAsGroup`); it takes root, and folders that they can pass. `namespaces`: of
    containers that stand apart; None: what this machine lets us have."""

    def __init__(self, api: Api, scratch: Path) -> None:
        self.api, self.store, self.scratch = api, api.store, scratch
        self.scripts: list[tuple[str, Script]] = []
        self.image_env: dict[str, str] = {}
        self.unresolved: list[str] = []
        self.missing_images = ["*.invalid/*"]
        self.dead: set[str] = set()
        self.as_users = ""
        self.starting: Counter[str] = Counter()
        self.namespaces: Namespaces | None = None
        self.runs: dict[str, Run] = {}
        self.errors: list[str] = []
        self._closing = False
        api.mutators.append(_refuse_unfaked)
        self._logs: dict[tuple[str, str], list[Log]] = {}

    def keys(self, change: Change) -> Iterable[Any]:
        if change.resource is PODS and change.new["spec"].get("nodeName"):
            return [(change.key, change.new["metadata"]["uid"])]
        if change.resource is NODES and change.type == "ADDED":
            return [change.key[1]]
        return []

    def reconcile(self, key: Any) -> float | None:
        if isinstance(key, str):
            return self._renew_lease(key)
        with self.store.lock:
            (namespace, name), uid = key
            pod = self.store.get(PODS, namespace, name)
            run = self.runs.get(uid)
            if pod is None or pod["metadata"]["uid"] != uid:
                if run and run.pod["spec"]["nodeName"] not in self.dead:
                    self._forget(uid, run)
                return None
            if pod["spec"]["nodeName"] in self.dead:
                return None
            if run is None and pod["status"].get("phase") in ("Succeeded", "Failed"):
                return None
            if run is None:
                run = self.runs[uid] = Run(pod, self.scratch / "pods" / uid)
            run.pod = pod
            if "deletionTimestamp" in pod["metadata"]:
                return self._end(run)
            return None if run.started or run.evicted or run.rejected else self._start(run)

    def script_for(self, name: str) -> Script:
        return next((script for pattern, script in self.scripts if fnmatchcase(name, pattern)), Runs())

    def close(self) -> None:
        self._closing = True
        for run in list(self.runs.values()):
            for container in run.containers:
                container.kill()

    def evict(self, pod: Object, message: str) -> None:
        """The pod has failed when its containers have ended (pkg/kubelet/status/status_manager.go: mergePodStatus)."""
        with self.store.lock:
            run = self.runs[pod["metadata"]["uid"]]
            run.evicted = message
            self.api.event(PODS, run.pod, "Warning", "Evicted", message, "kubelet")
            for container in run.containers:
                container.stop(EVICTION_GRACE_SECONDS)
            self._report(run)

    def kill(self, pod: Object, name: str, code: int, reason: str) -> Container:
        """Ends the container that runs, and returns it. It is begun again at once: to its kubelet it had run for long
        (its back-off is forgotten after ten minutes: client-go, util/flowcontrol/backoff.go, hasExpired)."""
        with self.store.lock:
            run = self.runs[pod["metadata"]["uid"]]
            container = next(one for one in run.containers if one.name == name and one.code is None)
            run.failures[name] = 0
        container.kill_as(code, reason)
        return container

    def runs_container(self, pod: Object, name: str) -> bool:
        run = self.runs.get(pod["metadata"]["uid"])
        return any(one.name == name and one.code is None for one in (run.containers if run else []))

    def report_all(self, node: str) -> list[str]:
        """Says how the node's pods are, and returns their uids."""
        found = [uid for uid, run in self.runs.items() if run.pod["spec"]["nodeName"] == node]
        for uid in found:
            if self.runs[uid].started:
                self._report(self.runs[uid])
        return found

    def log(self, namespace: str, name: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Raises what the API server answers where there is no log."""
        pod = self.store.get(PODS, namespace, name)
        if pod is None:
            raise not_found(PODS, name)
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = query.get("container") or names[0]
        if not query.get("container") and len(names) > 1:
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {name}")
        node = pod["spec"].get("nodeName")
        if not node:
            raise bad_request(f"pod {name} does not have a host assigned")
        if node in self.dead:
            where = f"https://10.0.0.1:10250/containerLogs/{namespace}/{name}/{container}"
            raise Refused(500, "InternalError", f'Get "{where}": dial tcp 10.0.0.1:10250: i/o timeout')
        logs = self._logs.get((pod["metadata"]["uid"], container), [])
        if query.get("previous") == "true":
            if len(logs) < 2:
                raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
            return logs[-2].read(query)
        if not logs:
            run = self.runs.get(pod["metadata"]["uid"])
            why = run.waiting[0] if run else "ContainerCreating"
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {why}')
        return logs[-1].read(query)

    def execute(self, pod: Object, container: str, command: Sequence[str]) -> Execution:
        """Raises Refused, what a kubelet answers, and NotBegunError."""
        if pod["spec"]["nodeName"] in self.dead:
            raise Refused(500, "", "error dialing backend: dial tcp 10.0.0.1:10250: i/o timeout")
        if self.starting[pod["spec"]["nodeName"]]:
            self.starting[pod["spec"]["nodeName"]] -= 1
            raise Refused(404, "", "pod does not exist", plain=True)
        run = self.runs.get(pod["metadata"]["uid"])
        return execute(run.containers if run else [], run.inside if run else {}, container, command)

    def _admit(self, run: Run) -> bool:
        node = self.store.get(NODES, "", run.pod["spec"]["nodeName"])
        if node is None:
            run.given = {}
            return True
        others = [one for one in self.runs.values() if one is not run and self._holds(one, node)]
        run.rejected = devices.refusal(run.pod, node, [one.pod for one in others])
        if run.rejected:
            self.api.event(PODS, run.pod, "Warning", *run.rejected, "kubelet")
            self._report(run)
            return False
        run.given = devices.allocate_devices(run.pod, node, [one.given or {} for one in others])
        return True

    def _holds(self, run: Run, node: Object) -> bool:
        """Whether it was taken, and still is one of the node's pods."""
        meta = run.pod["metadata"]
        pod = self.store.get(PODS, meta["namespace"], meta["name"])
        same = pod is not None and pod["metadata"]["uid"] == meta["uid"]
        there = run.given is not None and run.pod["spec"]["nodeName"] == node["metadata"]["name"]
        return there and same and not run.is_over

    def _start(self, run: Run) -> float | None:
        if run.given is None and not self._admit(run):
            return None
        name = run.pod["metadata"]["name"]
        script = self.script_for(name)
        if isinstance(script, Evicted):
            run.evicted = script.message
            self._report(run)
            return None
        if not isinstance(script, Waits) and (image := self._missing_image(run.pod)):
            script = Waits("ImagePullBackOff", f'Back-off pulling image "{image}": {NO_IMAGE.format(image=image)}')
        if isinstance(script, Waits):
            if run.told is not script:
                run.told = script
                run.waiting = (script.reason, "" if script.event else script.message)
                reason = script.event or "Failed"
                self.api.event(PODS, run.pod, "Warning", reason, script.message or script.reason, "kubelet")
                self._report(run)
            return None
        try:
            self._run_containers(run, script)
        except Missing as missing:
            if missing.reason == "FailedMount":
                self.api.event(PODS, run.pod, "Warning", "FailedMount", missing.message, "kubelet")
            else:
                self.api.event(PODS, run.pod, "Warning", "Failed", f"Error: {missing.message}", "kubelet")
                run.waiting = (missing.reason, missing.message)
            self._report(run)
            return RETRY_SECONDS
        run.started = True
        self._report(run)
        return None

    def _missing_image(self, pod: Object) -> str:
        images = [container["image"] for container in pod["spec"]["containers"]]
        return next((image for image in images if any(fnmatchcase(image, one) for one in self.missing_images)), "")

    def _run_containers(self, run: Run, script: Script) -> None:
        specs = run.pod["spec"]["containers"]
        if not isinstance(script, Runs):
            for spec in specs:
                self._begin_scripted(run, spec, script)
            return
        run.apart = script.apart
        mounted = script.apart and bool(self._kind())
        run.view = View(self.store, run.pod, run.root, self.unresolved, mounted=mounted)
        run.view.make_volumes()
        if self.as_users:  # a container reaches what is mounted, whatever the modes of the folders above it
            run.root.chmod(0o755)
            run.root.parent.chmod(0o755)
        for spec in specs:
            own = devices.env(run.given or {}, spec["name"])
            run.env[spec["name"]] = {**self.image_env, **own, **run.view.env(spec)}
        for spec in specs:
            self._begin_process(run, spec)

    def _begin_scripted(self, run: Run, spec: dict[str, Any], script: Any) -> None:
        container = Scripted(spec["name"], lambda *_: self._ended(run))
        self._keep(run, container)
        container.start(script)

    def _begin_process(self, run: Run, spec: dict[str, Any]) -> None:
        """Each container has a termination log of its own."""
        process = Process(spec["name"], lambda *_: self._ended(run))
        self._keep(run, process)
        message = _message_file(run, spec)
        message.write_bytes(b"")
        message.chmod(0o666)  # whoever the container's user is
        inside, own = self._ground(run, spec, process.id)
        run.inside[spec["name"]] = inside
        command = inside.view.command(spec, dict(inside.env))
        user = _user(run.pod, spec) if self.as_users else {}
        process.start(command, inside.env, inside.cwd, python=self.as_users, user=user, rootfs=own)

    def _ground(self, run: Run, spec: dict[str, Any], life: str) -> tuple[Inside, dict[str, Any] | None]:
        """What the container's processes are begun with, and which namespaces and files it has of its own."""
        assert run.view
        view, env, name = run.view, run.env[spec["name"]], _hostname(run.pod)
        if view.mounted:
            cwd, env = view.cwd(spec, "/"), {**base(HOME, name), **env}
            read_only = bool((spec.get("securityContext") or {}).get("readOnlyRootFilesystem"))
            own = rootfs(
                run.root / "roots" / life, view.mounts(spec), name, self._kind(), folders=[env["HOME"], cwd],
                read_only=read_only, shm=run.root / "shm",
            )  # fmt: skip
            return Inside(view, env, cwd), own
        if run.apart:
            layer = run.root / "layers" / life
            layer.mkdir(parents=True)
            home = view.rewrite(HOME)
            own_env = base(str(layer) if home == HOME else home, name) | {LIFE: life}
            return Inside(view, {**own_env, **env}, view.cwd(spec, str(layer))), None
        cwd = view.cwd(spec, str(run.root))
        return Inside(view, {**base(cwd, spec["name"]), **env}, cwd), None

    def _kind(self) -> Namespaces:
        return namespaces() if self.namespaces is None else self.namespaces

    def _keep(self, run: Run, container: Container) -> None:
        run.containers.append(container)
        self._logs.setdefault((run.pod["metadata"]["uid"], container.name), []).append(container.log)

    def _ended(self, run: Run) -> None:
        """Called from a container's thread."""
        with self.store.lock:
            if run.pod["spec"]["nodeName"] in self.dead or not run.started or self._closing:
                return
            self._report(run)
            self._finish_deletion(run)
            policy = run.pod["spec"]["restartPolicy"]
            for ended in [one for one in run.containers if one.code is not None and one.name not in run.backing_off]:
                if policy == "Always" or (policy == "OnFailure" and ended.code):
                    self._restart_later(run, ended)

    def _restart_later(self, run: Run, ended: Container) -> None:
        if self._is_deleted(run) or run.evicted:
            return
        times = run.failures[ended.name]
        wait = min(BACKOFF_SECONDS * 2 ** (times - 1), LONGEST_BACKOFF_SECONDS) if times else 0.0
        run.backing_off.add(ended.name)
        if wait:
            self._report(run)
        timer = threading.Timer(wait, self._restart, (run, ended))
        timer.daemon = True
        timer.start()

    def _restart(self, run: Run, ended: Container) -> None:
        with self.store.lock:
            over = self._closing or self._is_deleted(run) or run.evicted
            if over or run.pod["spec"]["nodeName"] in self.dead:
                return
            spec = next(one for one in run.pod["spec"]["containers"] if one["name"] == ended.name)
            run.last[ended.name] = self._terminated(run, spec, ended)
            run.backing_off.discard(ended.name)
            run.restarts[ended.name] += 1
            run.failures[ended.name] += 1
            run.containers.remove(ended)
            if ended.name in run.inside:
                self._begin_process(run, spec)
            else:
                self._begin_scripted(run, spec, self.script_for(run.pod["metadata"]["name"]))
            self._report(run)

    def _is_deleted(self, run: Run) -> bool:
        pod = self.store.get(PODS, run.pod["metadata"]["namespace"], run.pod["metadata"]["name"])
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def _end(self, run: Run) -> None:
        """The pod was deleted: containers are asked, then killed; the object goes when nothing runs any more."""
        grace = run.pod["metadata"].get("deletionGracePeriodSeconds", 0)
        for container in run.containers:
            container.stop(grace)
        if not run.started:
            run.started = True  # nothing of it will start any more
            self._report(run)
        self._finish_deletion(run)

    def _finish_deletion(self, run: Run) -> None:
        pod = self.store.get(PODS, run.pod["metadata"]["namespace"], run.pod["metadata"]["name"])
        same = pod is not None and pod["metadata"]["uid"] == run.pod["metadata"]["uid"]
        if not same or "deletionTimestamp" not in pod["metadata"] or not run.is_over:
            return
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0 and pod["metadata"].get("finalizers"):
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self.api.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], options)

    def _forget(self, uid: str, run: Run) -> None:
        """The object is gone (force-deleted, or after we let it go): so is all of it."""
        for container in run.containers:
            container.kill()
        del self.runs[uid]
        for name in [key for key in self._logs if key[0] == uid]:
            del self._logs[name]
        threading.Thread(target=shutil.rmtree, args=(run.root, True), daemon=True).start()

    def _report(self, run: Run) -> None:
        self.api.change(PODS, run.pod, lambda pod: pod["status"].update(self._status(run, pod)))

    def _status(self, run: Run, pod: Object) -> dict[str, Any]:
        if run.rejected:
            reason, message = run.rejected
            return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
        if run.evicted and not run.containers:
            return {"phase": "Failed", "reason": "Evicted", "message": f"Pod was rejected: {run.evicted}"}
        codes = [container.code for container in run.containers]
        ending = bool(run.evicted) or "deletionTimestamp" in pod["metadata"]
        restarts = pod["spec"]["restartPolicy"] == "Always" and not ending
        running = run.started and bool(codes) and (None in codes or restarts)
        phase = "Pending"
        if running:
            phase = "Running"
        elif run.started:
            phase = "Succeeded" if codes and not any(codes) else "Failed"
        ready = bool(codes) and all(code is None for code in codes) and run.started
        why = "" if ready else "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        for kind in ("ContainersReady", "Ready"):
            conditions.set_condition(pod, kind, ready, why, probe=True)
        conditions.set_condition(pod, "Initialized", True, probe=True)
        conditions.set_condition(pod, "PodReadyToStartContainers", run.started, probe=True)
        status: dict[str, Any] = {
            "phase": phase, "conditions": pod["status"]["conditions"], "hostIP": "127.0.0.1",
            "startTime": pod["status"].get("startTime", clock.stamp()),
            "containerStatuses": [self._container(run, spec) for spec in pod["spec"]["containers"]],
        }  # fmt: skip
        if run.containers:
            status |= {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        if run.evicted and not running:
            status |= {"phase": "Failed", "reason": "Evicted", "message": run.evicted}
        return status

    def _container(self, run: Run, spec: dict[str, Any]) -> dict[str, Any]:
        found = next((one for one in run.containers if one.name == spec["name"]), None)
        status = {
            "name": spec["name"], "image": spec["image"], "imageID": "",
            "restartCount": run.restarts[spec["name"]],
            "lastState": {"terminated": run.last[spec["name"]]} if spec["name"] in run.last else {},
            "ready": found is not None and found.code is None, "started": found is not None and found.code is None,
        }  # fmt: skip
        if found is None:
            reason, message = run.waiting
            waiting = {"reason": reason} | ({"message": message} if message else {})
            return status | {"state": {"waiting": waiting}}
        status |= {"imageID": f"sha256:{spec['image']}", "containerID": f"containerd://{found.id}"}
        if found.code is None:
            return status | {"state": {"running": {"startedAt": _stamp(found.started_at)}}}
        ended = self._terminated(run, spec, found)
        if found.name in run.backing_off and run.failures[found.name]:
            why = f"back-off restarting failed container={found.name} pod={run.pod['metadata']['name']}"
            waits = {"reason": "CrashLoopBackOff", "message": why}
            return status | {"state": {"waiting": waits}, "lastState": {"terminated": ended}}
        return status | {"state": {"terminated": ended}}

    def _terminated(self, run: Run, spec: dict[str, Any], found: Container) -> dict[str, Any]:
        ended = {
            "exitCode": found.code, "startedAt": _stamp(found.started_at), "finishedAt": _stamp(found.ended_at),
            "reason": found.reason or ("Completed" if found.code == 0 else "Error"),
            "containerID": f"containerd://{found.id}",
        }  # fmt: skip
        if message := self._message(run, spec, found):
            ended["message"] = message
        return ended

    def _message(self, run: Run, spec: dict[str, Any], container: Container) -> str:
        """The end of what the container left in its termination log, whatever its exit code; else the end of what it
        printed, where the pod asks so (kubernetes/kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go:
        makeMounts, getTerminationMessage, convertToKubeContainerStatus; limits: pkg/kubelet/container/runtime.go)."""
        path = _message_file(run, spec)
        if path.is_file() and (text := path.read_bytes()[-MESSAGE_BYTES:]):
            return text.decode(errors="replace")
        if spec.get("terminationMessagePolicy") == "FallbackToLogsOnError" and container.code:
            lines = [line for _, line in container.log.lines[-LOG_TAIL_LINES:]]
            return b"".join(line + b"\n" for line in lines)[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

    def _renew_lease(self, node: str) -> float | None:
        with self.store.lock:
            if self.store.get(NODES, "", node) is None:
                return None
            if node not in self.dead:
                self.renew(node, time.time())
            return LEASE_SECONDS

    def renew(self, node: str, at: float) -> None:
        """The node's heartbeat."""
        lease = self.store.get(LEASES, "kube-node-lease", node)
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": clock.micro(_time(at))}
        if lease:
            self.api.change(LEASES, lease, lambda new: new.update(spec=spec))
        else:
            self.api.create(LEASES, "kube-node-lease", {"metadata": {"name": node}, "spec": spec})


def _refuse_unfaked(resource: Resource, obj: Object) -> None:
    if resource is PODS and obj["spec"].get("initContainers"):
        raise not_faked("init containers")


def _hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def _message_file(run: Run, container: Mapping[str, Any]) -> Path:
    return run.root / f"{container['name']}.message"


def _user(pod: Object, container: Mapping[str, Any]) -> dict[str, Any]:
    """For Popen. What the container says wins over what the pod says."""
    ids = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    if ids.get("runAsUser") is None:
        return {}
    user, group = int(ids["runAsUser"]), int(ids.get("runAsGroup") or 0)
    more = [int(ids["fsGroup"])] if ids.get("fsGroup") is not None else []
    return {"user": user, "group": group, "extra_groups": more}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _stamp(seconds: float) -> str:
    return clock.stamp(_time(seconds))

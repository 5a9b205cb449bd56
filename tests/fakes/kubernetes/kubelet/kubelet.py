"""The kubelets of all nodes: pods from bound to ended, by script or as real processes."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes import clock, conditions
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused, bad_request, not_faked, not_found
from tests.fakes.kubernetes.kubelet.containers import (
    Container,
    Evicted,
    Process,
    Runs,
    Script,
    Scripted,
    Waits,
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
MESSAGE_BYTES = 4096
LOG_TAIL_LINES, LOG_TAIL_BYTES = 80, 2048


@dataclass
class Run:
    """A pod as its kubelet has it."""

    pod: Object
    root: Path
    containers: list[Container] = field(default_factory=list)
    waiting: tuple[str, str] = ("ContainerCreating", "")
    started: bool = False
    evicted: str = ""
    inside: dict[str, Inside] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return bool(self.evicted) or (self.started and all(one.code is not None for one in self.containers))


class Kubelets:
    """`scripts`: (name pattern, script), the newest first; a pod without one really runs. `image_env`: what the image
    sets. `missing_images`: patterns of those that cannot be pulled. `unresolved`: Services whose names stay
    unresolvable. `dead`: nodes whose kubelet does nothing. `as_users`: an interpreter with which processes run as whom
    their pod says (`runAsUser`, `runAsGroup`); it takes root, and folders that they can pass."""

    def __init__(self, api: Api, scratch: Path) -> None:
        self.api, self.store, self.scratch = api, api.store, scratch
        self.scripts: list[tuple[str, Script]] = []
        self.image_env: dict[str, str] = {}
        self.unresolved: list[str] = []
        self.missing_images = ["*.invalid/*"]
        self.dead: set[str] = set()
        self.as_users = ""
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
            return None if run.started or run.evicted else self._start(run)

    def script_for(self, name: str) -> Script:
        return next((script for pattern, script in self.scripts if fnmatchcase(name, pattern)), Runs())

    def close(self) -> None:
        self._closing = True
        for run in list(self.runs.values()):
            for container in run.containers:
                container.kill()

    def evict(self, pod: Object, message: str) -> None:
        with self.store.lock:
            run = self.runs[pod["metadata"]["uid"]]
            run.evicted = message
            for container in run.containers:
                container.kill()
            self._report(run)

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

    def execute(self, pod: Object, container: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Raises what a kubelet answers."""
        if pod["spec"]["nodeName"] in self.dead:
            raise Refused(500, "InternalError", "error dialing backend: dial tcp 10.0.0.1:10250: i/o timeout")
        run = self.runs.get(pod["metadata"]["uid"])
        return execute(run.containers if run else [], run.inside if run else {}, container, command)

    def _start(self, run: Run) -> float | None:
        name = run.pod["metadata"]["name"]
        script = self.script_for(name)
        if isinstance(script, Evicted):
            run.evicted = script.message
            self._report(run)
            return None
        if not isinstance(script, Waits) and (image := self._missing_image(run.pod)):
            script = Waits("ImagePullBackOff", f'Back-off pulling image "{image}": {NO_IMAGE.format(image=image)}')
        if isinstance(script, Waits):
            if run.waiting != (script.reason, script.message):
                run.waiting = (script.reason, script.message)
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
                container = Scripted(spec["name"], lambda *_: self._ended(run))
                self._keep(run, container)
                container.begin(script)
            return
        view = View(self.store, run.pod, run.root, self.unresolved)
        view.make_volumes()
        if self.as_users:  # a container reaches what is mounted, whatever the modes of the folders above it
            run.root.chmod(0o755)
            run.root.parent.chmod(0o755)
        prepared = []
        for spec in specs:
            env = {**self.image_env, **view.env(spec)}
            prepared.append((spec, view.command(spec, env), env, view.cwd(spec)))
        for spec, command, env, cwd in prepared:
            process = Process(spec["name"], lambda *_: self._ended(run))
            self._keep(run, process)
            run.inside[spec["name"]] = Inside(view, env, cwd)
            message = _message_file(run, spec)
            message.touch()
            message.chmod(0o666)  # whoever the container's user is
            process.begin(command, env, cwd, self.as_users, _user(run.pod, spec) if self.as_users else {})

    def _keep(self, run: Run, container: Container) -> None:
        run.containers.append(container)
        self._logs.setdefault((run.pod["metadata"]["uid"], container.name), []).append(container.log)

    def _ended(self, run: Run) -> None:
        """Called from a container's thread."""
        for one in run.inside.values():
            one.end()
        with self.store.lock:
            if run.pod["spec"]["nodeName"] in self.dead or not run.started or self._closing:
                return
            self._report(run)
            self._finish_deletion(run)
            policy, failed = run.pod["spec"]["restartPolicy"], any(one.code for one in run.containers)
            if not self._is_deleted(run) and not run.evicted and (policy == "Always" or (policy != "Never" and failed)):
                name = run.pod["metadata"]["name"]
                self.errors.append(f"{name} ended and has restartPolicy {policy}: the fake restarts no containers")

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
        if not same or "deletionTimestamp" not in pod["metadata"] or not run.over:
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
        if run.evicted:
            return {"phase": "Failed", "reason": "Evicted", "message": f"Pod was rejected: {run.evicted}"
                    if not run.containers else run.evicted}  # fmt: skip
        codes = [container.code for container in run.containers]
        running = run.started and bool(codes) and None in codes
        phase = "Pending"
        if running:
            phase = "Running"
        elif run.started:
            phase = "Succeeded" if codes and not any(codes) else "Failed"
        ready = bool(codes) and all(code is None for code in codes) and run.started
        why = "" if ready else "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        for kind in ("ContainersReady", "Ready"):
            conditions.put(pod, kind, ready, why, probe=True)
        conditions.put(pod, "Initialized", True, probe=True)
        conditions.put(pod, "PodReadyToStartContainers", run.started, probe=True)
        status: dict[str, Any] = {
            "phase": phase, "conditions": pod["status"]["conditions"], "hostIP": "127.0.0.1",
            "startTime": pod["status"].get("startTime", clock.stamp()),
            "containerStatuses": [self._container(run, spec) for spec in pod["spec"]["containers"]],
        }  # fmt: skip
        if run.containers:
            status |= {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        return status

    def _container(self, run: Run, spec: dict[str, Any]) -> dict[str, Any]:
        found = next((one for one in run.containers if one.name == spec["name"]), None)
        status = {
            "name": spec["name"], "image": spec["image"], "imageID": "", "restartCount": 0, "lastState": {},
            "ready": found is not None and found.code is None, "started": found is not None and found.code is None,
        }  # fmt: skip
        if found is None:
            reason, message = run.waiting
            waiting = {"reason": reason} | ({"message": message} if message else {})
            return status | {"state": {"waiting": waiting}}
        status |= {"imageID": f"sha256:{spec['image']}", "containerID": f"containerd://{id(found):064x}"}
        if found.code is None:
            return status | {"state": {"running": {"startedAt": _stamp(found.started_at)}}}
        ended = {
            "exitCode": found.code, "startedAt": _stamp(found.started_at), "finishedAt": _stamp(found.ended_at),
            "reason": found.reason or ("Completed" if found.code == 0 else "Error"),
            "containerID": status["containerID"],
        }  # fmt: skip
        if message := self._message(run, spec, found):
            ended["message"] = message
        return status | {"state": {"terminated": ended}}

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

"""The fake cluster, and what a test does to it."""

import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.kubernetes import conditions, resources
from tests.fakes.kubernetes.admission import DEFAULT_CLASS
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.controllers.garbage import Garbage, Namespaces, PodCollector
from tests.fakes.kubernetes.controllers.jobs import Jobs
from tests.fakes.kubernetes.controllers.jobsets import JobSets
from tests.fakes.kubernetes.controllers.kueue import MAX_RUN, NO_QUOTA, QUEUE, Kueue
from tests.fakes.kubernetes.controllers.manager import Manager, Pace
from tests.fakes.kubernetes.controllers.nodes import NodeLifecycle
from tests.fakes.kubernetes.controllers.scheduler import Scheduler
from tests.fakes.kubernetes.controllers.statefulsets import Provisioner, StatefulSets
from tests.fakes.kubernetes.errors import Refused
from tests.fakes.kubernetes.faults import Call
from tests.fakes.kubernetes.http import Server
from tests.fakes.kubernetes.kubelet.containers import Runs, Script, Sleeps
from tests.fakes.kubernetes.kubelet.kubelet import Kubelets
from tests.fakes.kubernetes.kubelet.processes import Found, found_below
from tests.fakes.kubernetes.kubelet.view import CLAIM_PATH
from tests.fakes.kubernetes.resources import (
    CLAIMS,
    JOBS,
    JOBSETS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    RESOURCE_CLAIMS,
)
from tests.fakes.kubernetes.store import Object, Store

TOKEN = "fake-token"
SLEEPS = ("sleep", "infinity")
STANDS = ("sh", "-c", "trap 'exit 143' TERM; while :; do sleep 86400 & wait; done")
"""As `sleep infinity` below an init: a pid namespace's first process hears no signal that it does not handle
(pid_namespaces(7)), and has to wait for orphans."""


class FakeCluster:
    """One cluster: API server on a loopback port, controllers, scheduler and kubelets. `kubeconfig` names the file
    that a client needs; `namespace` exists and is its default.

    `api` is for the test's own look and changes past HTTP; `faults`, `access` and `admission` make things go wrong.
    """

    def __init__(self, scratch: Path | None = None, namespace: str = "fermi", features: tuple[str, ...] = ()) -> None:
        self.scratch = scratch or Path(tempfile.mkdtemp(prefix="fake-kubernetes-"))
        self.namespace = namespace
        self.store = Store()
        self.api = Api(self.store)
        self.admission = self.api.admission
        self.jobs, self.scheduler, self.nodes = Jobs(self.api), Scheduler(self.api), NodeLifecycle(self.api)
        self.kubelets = Kubelets(self.api, self.scratch)
        self.server = Server(self.api, self.kubelets.log, TOKEN)
        self.server.execute = self.kubelets.execute
        self.server.answers = lambda node: node not in self.kubelets.dead
        self.server.features = set(features)
        self.kueue = Kueue(self.api, self.server.features)
        self.server.pending = self.kueue.pending
        self.manager = Manager(self.store, [
            Namespaces(self.api), Garbage(self.api), self.jobs, self.scheduler, self.nodes, self.kubelets,
            PodCollector(self.api), JobSets(self.api), self.kueue, StatefulSets(self.api),
            Provisioner(self.api, self.scratch),
        ])  # fmt: skip
        self.access, self.faults = self.server.access, self.server.faults
        self.kubeconfig = self.scratch / "kubeconfig"

    def start(self) -> "FakeCluster":
        self.manager.start()
        for name in ("default", "kube-system", "kube-node-lease", self.namespace):
            self.add_namespace(name)
        self.add_storage_class("standard", grows=True, default=True)
        self.server.start()
        self.write_kubeconfig(token=TOKEN)
        return self

    def write_kubeconfig(self, **user: Any) -> None:
        """A new file in place of the old one. `user`: `token`, `tokenFile`, `exec`, as kubectl's."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        new = self.kubeconfig.with_suffix(".new")
        new.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fermi", "user": user}],
            "contexts": [{"name": "fake", "context": {
                "cluster": "fake", "user": "fermi", "namespace": self.namespace}}],
        }))  # fmt: skip
        new.chmod(0o600)
        new.replace(self.kubeconfig)

    def accept(self, token: str) -> None:
        """No other token from now on. Watches that are open stay so: who asks is looked at when a request comes, and
        not again (kube-apiserver, staging/src/k8s.io/apiserver/pkg/endpoints/filters/authentication.go)."""
        self.server.token = token

    def close(self) -> None:
        self.server.stop()
        self.manager.close()
        self.kubelets.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def errors(self) -> list[str]:
        """What a test must not leave behind: crashes of the fake, and objects sent to it that do not validate."""
        return self.manager.errors + self.kubelets.errors + [f"invalid: {one}" for one in self.api.invalid]

    # What is there

    def add_namespace(self, name: str, **labels: str) -> None:
        with suppress(Refused):
            self.api.create(NAMESPACES, "", {"metadata": {"name": name, "labels": labels}})
        account = resources.SERVICE_ACCOUNTS
        self._until(lambda: self.store.get(account, name, "default"))

    def add_node(
        self, name: str, gpus: int = 0, *, zone: str = "zone-a", gpu_type: str = "NVIDIA-A100-SXM4-80GB",
        cpu: str = "64", memory: str = "512Gi", labels: Mapping[str, str] | None = None,
        taints: tuple[dict[str, str], ...] = (), gpu_resource: str = "nvidia.com/gpu",
    ) -> Object:  # fmt: skip
        """`zone` "": as where no cloud labels its nodes (https://kubernetes.io/docs/reference/labels-annotations-taints/,
        topology.kubernetes.io/zone: the kubelet or the cloud controller manager sets it from the cloud's word)."""
        amount = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "1Ti"}
        own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        if zone:
            own["topology.kubernetes.io/zone"] = zone
        if gpus:
            amount[gpu_resource] = str(gpus)
            own |= {"nvidia.com/gpu.product": gpu_type, "nvidia.com/gpu.count": str(gpus)}
        node = {"metadata": {"name": name, "labels": own | dict(labels or {})}, "spec": {"taints": list(taints)}}
        self.api.create(NODES, "", node)
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
        status = {"capacity": amount, "allocatable": amount, "addresses": addresses}

        def edit(obj: Object) -> None:
            obj["status"] = {**status, "nodeInfo": NODE_INFO, "conditions": []}
            conditions.set_condition(obj, "Ready", True, "KubeletReady", "kubelet is posting ready status")

        changed = self.api.change(NODES, self.api.get(NODES, "", name), edit)
        assert changed
        return changed

    def add_pod(self, name: str, spec: dict[str, Any], *, namespace: str = "", script: Script | None = None,
                **meta: Any) -> Object:  # fmt: skip
        if script:
            self.script(name, script)
        return self.api.create(PODS, namespace or self.namespace, {"metadata": {"name": name, **meta}, "spec": spec})

    def add_dev_pod(
        self, name: str, node: str, gpus: int = 0, *, image: str = "training:1",
        labels: Mapping[str, str] | None = None,
        namespace: str = "", claim: str = "", cpu: str = "1", memory: str = "1Gi", gpu_resource: str = "nvidia.com/gpu",
        volumes: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
        service_account: str = "default", real: bool = False, command: Sequence[str] = (),
        env: Mapping[str, str] | None = None, empty_dirs: Sequence[str] = (),
    ) -> Object:  # fmt: skip
        """A dev environment: a pod that sleeps on `node`. `real`: its container can be entered, has processes and files
        of its own (`kubelet.rootfs`), the home `HOME`, and this machine's Python and packages. `command`: its first
        process; it should end at SIGTERM and wait for orphans, as an init for containers does. `empty_dirs`: paths of
        volumes that stay as long as the pod. `volumes`: mount path -> claim name. With `claim` its GPUs are held by a
        ResourceClaim of that name, allocated on the node, and not by a resource limit."""
        amount = {"cpu": cpu, "memory": memory}
        spec: dict[str, Any] = {
            "nodeSelector": {"kubernetes.io/hostname": node}, "serviceAccountName": service_account,
            "containers": [{"name": "dev", "image": image, "command": list(command or (STANDS if real else SLEEPS))}],
        }  # fmt: skip
        container = spec["containers"][0]
        if env:
            container["env"] = [{"name": name, "value": value} for name, value in env.items()]
        if gpus and claim:
            self.add_resource_claim(claim, node, gpus, namespace=namespace)
            spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": claim}]
            container["resources"] = {"claims": [{"name": "gpus"}]}
        elif gpus:
            amount[gpu_resource] = str(gpus)
        container["resources"] = {**container.get("resources", {}), "limits": amount}
        sources: list[tuple[str, dict[str, Any]]] = [(path, {"emptyDir": {}}) for path in empty_dirs]
        sources += [(path, {"persistentVolumeClaim": {"claimName": name}}) for path, name in (volumes or {}).items()]
        for index, (path, source) in enumerate(sources):
            spec.setdefault("volumes", []).append({"name": f"v{index}", **source})
            container.setdefault("volumeMounts", []).append({"name": f"v{index}", "mountPath": path})
        return self.add_pod(
            name, spec, namespace=namespace, script=Runs(apart=True) if real else Sleeps(), labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        )  # fmt: skip

    def add_claim(self, name: str, path: Path, *, namespace: str = "", bound: bool = True) -> None:
        """A PersistentVolumeClaim whose volume is the folder `path`."""
        claim = {
            "metadata": {"name": name, "annotations": {CLAIM_PATH: str(path)}},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}},
        }
        made = self.api.create(CLAIMS, namespace or self.namespace, claim)
        phase = "Bound" if bound else "Pending"
        self.api.change(CLAIMS, made, lambda obj: obj.update(status={"phase": phase}))

    def add_resource_claim(self, name: str, node: str, gpus: int, *, namespace: str = "") -> None:
        """A claim on `gpus` devices, allocated on `node`."""
        request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": gpus}}
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        made = self.api.create(RESOURCE_CLAIMS, namespace or self.namespace, claim)
        place = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        results = [
            {"request": "gpus", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{i}"} for i in range(gpus)
        ]
        allocation = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [place]}]},
        }
        self.api.change(RESOURCE_CLAIMS, made, lambda obj: obj.update(status={"allocation": allocation}))

    def add_quota(self, name: str, hard: Mapping[str, str], *, namespace: str = "") -> None:
        self.api.create(QUOTAS, namespace or self.namespace, {"metadata": {"name": name}, "spec": {"hard": dict(hard)}})

    def all(self, plural: str, namespace: str | None = None, **labels: str) -> list[Object]:
        found = self.store.all(resources.named(plural), self.namespace if namespace is None else namespace)
        wanted = labels.items()
        return [obj for obj in found if wanted <= (obj["metadata"].get("labels") or {}).items()]

    def names(self, plural: str, namespace: str | None = None) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.all(plural, namespace)]

    def pods(self, name: str = "*", namespace: str | None = None) -> list[Object]:
        return [pod for pod in self.all("pods", namespace) if fnmatchcase(pod["metadata"]["name"], name)]

    def log(self, pod: Object) -> str:
        """What it printed so far."""
        meta = pod["metadata"]
        try:
            return b"".join(self.kubelets.log(meta["namespace"], meta["name"], {})).decode()
        except Refused:
            return ""

    def install(self, *features: str) -> None:
        """jobset, kueue, visibility (Kueue's), dra: their kinds are served from now on."""
        self.server.features.update(features)

    def add_queue(self, name: str, *, namespace: str = "") -> None:
        """Kueue's LocalQueue."""
        queue = {"metadata": {"name": name}, "spec": {"clusterQueue": "default"}}
        self.api.create(LOCAL_QUEUES, namespace or self.namespace, queue)

    def add_class(self, name: str, value: int) -> None:
        """Kueue's WorkloadPriorityClass."""
        self.api.create(resources.CLASSES, "", {"metadata": {"name": name}, "value": value})

    def add_pod_class(self, name: str, value: int) -> None:
        """Kubernetes' PriorityClass."""
        self.api.create(resources.POD_CLASSES, "", {"metadata": {"name": name}, "value": value})

    def add_storage_class(self, name: str, *, grows: bool, default: bool = False) -> None:
        marks = {DEFAULT_CLASS: "true"} if default else {}
        meta = {"name": name, "annotations": marks}
        made = {"metadata": meta, "provisioner": "example.com/folders", "allowVolumeExpansion": grows}
        self.api.create(resources.STORAGE_CLASSES, "", made)

    def expire(self, name: str = "*") -> None:
        """The time of what Kueue has admitted under such a name, and which says how long it may run, is over."""
        for resource in (JOBS, JOBSETS):
            for obj in self.store.all(resource):
                if obj["metadata"].get("labels", {}).get(MAX_RUN) and fnmatchcase(obj["metadata"]["name"], name):
                    self.kueue.expire(resource, obj)

    def deny_quota(self, name: str = "*", message: str = NO_QUOTA) -> None:
        """Kueue has no quota for what has such a name, until `admit`."""
        self.kueue.held.insert(0, (name, message))

    def preempt(self, name: str = "*") -> None:
        """Kueue gives the quota of what has such a name to somebody else, until `admit`."""
        self.deny_quota(name)
        for resource in (JOBS, JOBSETS):
            for obj in self.store.all(resource):
                if obj["metadata"].get("labels", {}).get(QUEUE) and fnmatchcase(obj["metadata"]["name"], name):
                    self.kueue.preempt(resource, obj)

    def suspend(self, plural: str, *, on: bool = True) -> None:
        """As `kubectl patch --type merge -p '{"spec": {"suspend": true}}'` of all Jobs or JobSets."""
        resource = resources.named(plural)
        for obj in self.store.all(resource, self.namespace):
            self.api.change(resource, obj, lambda new: new["spec"].update(suspend=on))

    def admit(self) -> None:
        self.kueue.held.clear()
        for resource in (JOBS, JOBSETS):
            for obj in self.store.all(resource):
                key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
                if obj["metadata"].get("labels", {}).get(QUEUE):
                    self.manager.reconcile(self.kueue, (resource, key))

    # What clients asked

    def calls(self, verb: str = "*", resource: str = "*", name: str = "*", user_agent: str = "*") -> list[Call]:
        """`verb` "write": whatever changes something. `resource`: plural, with "/log" and the like for subresources."""
        return [call for call in self.server.calls if call.fits(verb, resource, name, user_agent)]

    # What happens to it

    def script(self, name: str, script: Script) -> None:
        """Pods of such names are played from now on; those that wait are looked at again."""
        self.kubelets.scripts.insert(0, (name, script))
        for pod in self.store.all(PODS):
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            if pod["spec"].get("nodeName"):
                self.manager.reconcile(self.kubelets, (key, pod["metadata"]["uid"]))

    def kill(self, pod: Object) -> None:
        """The pod's containers end by SIGKILL, as if the kernel had done it."""
        for container in self.kubelets.runs[pod["metadata"]["uid"]].containers:
            container.kill()

    def kill_container(self, pod: Object, reason: str = "Error", code: int = 137, container: str = "") -> None:
        """All processes of the container (the pod's first, unless it is named) are killed; `reason` and `code` are what
        its status then says: "OOMKilled" and 137 as the kernel's doing. Returns when it has ended; its kubelet begins
        it again at once where the pod's restart policy has it so (kubernetes/kubernetes,
        pkg/kubelet/kuberuntime/kuberuntime_manager.go: computePodActions)."""
        name = container or pod["spec"]["containers"][0]["name"]
        self._until(lambda: self.kubelets.runs_container(pod, name))
        killed = self.kubelets.kill(pod, name, code, reason)
        self._until(lambda: killed.code is not None)

    def processes(self, pod: Object, container: str = "") -> list[Found]:
        """Those that live in the pod's container (its first, unless it is named), the first process first."""
        name = container or pod["spec"]["containers"][0]["name"]
        run = self.kubelets.runs.get(pod["metadata"]["uid"])
        pids = [one.pid for one in (run.containers if run else []) if one.name == name and one.pid]
        return [one for pid in pids for one in found_below(pid)]

    def evict(self, pod: Object, message: str = "The node was low on resource: memory.") -> None:
        """Its containers are asked to end, and killed after a second; then it has failed."""
        self.kubelets.evict(pod, message)

    def lose_node(self, name: str, *, processes_die: bool = True, lease_age: float = 60.0) -> None:
        """The node falls silent, its last heartbeat `lease_age` seconds ago; what ran on it dies with it, or goes on
        unseen."""
        with self.store.lock:
            self.kubelets.dead.add(name)
            self.nodes.lost.add(name)
            self.kubelets.renew(name, time.time() - lease_age)
            for run in self.kubelets.runs.values():
                if run.pod["spec"]["nodeName"] == name and processes_die:
                    for container in run.containers:
                        container.kill()
        self.manager.reconcile(self.nodes, name)

    def restore_node(self, name: str) -> None:
        """The node answers again; its kubelet ends what was deleted meanwhile."""
        with self.store.lock:
            self.kubelets.dead.discard(name)
            self.nodes.lost.discard(name)
            self.kubelets.renew(name, time.time())
            for uid in self.kubelets.report_all(name):
                meta = self.kubelets.runs[uid].pod["metadata"]
                self.manager.reconcile(self.kubelets, ((meta["namespace"], meta["name"]), uid))
        self.manager.reconcile(self.nodes, name)

    def restart_kubelet(self, node: str, refuses: int = 1) -> None:
        """The streams to it end, and the commands that they run. For a moment the new one knows no pods, and says so to
        the next commands; containers go on."""
        self.kubelets.starting[node] = refuses
        self.server.sever(node)

    def cordon(self, name: str, *, on: bool = True) -> None:
        self.api.change(NODES, self.api.get(NODES, "", name), lambda node: node["spec"].update(unschedulable=on))

    def make_unschedulable(self, name: str, message: str) -> None:
        """Pods of such names stay pending with this message."""
        self.scheduler.unschedulable.insert(0, (name, message))

    def compact(self) -> None:
        """Every watch that resumes from before now is told 410 Gone."""
        self.store.compact()

    def break_connections(self) -> None:
        """As a load balancer does: every open connection ends, watches in the middle."""
        self.server.break_connections()

    def stop_api(self) -> None:
        self.server.stop()

    def start_api(self) -> None:
        self.server.start()

    def restart_api(self, seconds: float = 0.0, *, forget: bool = True) -> None:
        """The API server ends without a word on any connection, and for so many seconds nobody listens; then it serves
        the same objects on the same port, with a watch cache that begins anew. Kubelets and containers go on; what
        becomes of commands `executing` says."""
        self.server.stop()
        threading.Event().wait(seconds)
        if forget:
            self.compact()
        self.server.start()

    def take_time(self, latency: float) -> None:
        """Requests take so many seconds, and controllers hold back as they do by default: kube-controller-manager gives
        each of its controllers a client of 20 requests a second (--kube-api-qps) and 30 at once (--kube-api-burst),
        kube-scheduler has 50 and 100 (https://kubernetes.io/docs/reference/command-line-tools-reference/)."""
        self.server.latency = latency
        for one in self.manager.controllers:
            if isinstance(one, (Jobs, JobSets, Garbage, PodCollector)):
                self.manager.paces[one] = Pace(20, 30)
            elif isinstance(one, Scheduler):
                self.manager.paces[one] = Pace(50, 100)

    def pause_controllers(self, *, on: bool = True) -> None:
        self.manager.pause(on)

    @staticmethod
    def _until(condition: Any) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            threading.Event().wait(0.002)


NODE_INFO = {
    "kubeletVersion": "v1.34.0", "osImage": "Debian GNU/Linux 13", "kernelVersion": "6.12.0", "architecture": "amd64",
    "containerRuntimeVersion": "containerd://2.1.0", "kubeProxyVersion": "", "operatingSystem": "linux",
    "machineID": "", "systemUUID": "", "bootID": "",
}  # fmt: skip

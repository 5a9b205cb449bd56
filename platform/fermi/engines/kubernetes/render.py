"""A plan as Kubernetes objects. Pure: the objects are what the user previews, what tests compare, and what is sent
(`submit` adds to each the one thing that only the API server knows, the root's uid)."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from fermi.engines import bundle, connection_options
from fermi.engines.inside.render import render_node as order
from fermi.engines.kubernetes import inside, module_configmap, names, volumes
from fermi.engines.kubernetes.volumes import JOB_DIR, RUN_DIR
from fermi.jobs import bounds
from fermi.jobs.code import CodeLocation
from fermi.jobs.spec import (
    Artifact,
    JobSpec,
    Late,
    Node,
    NodePlan,
    Plan,
    Rendered,
    Value,
    encode_value,
    has_unknown_values,
    resolve,
)
from fermi.runner.caches import CACHE_VARIABLE

TERMINATION_LOG = "/dev/termination-log"  # Kubernetes' default
KILL_MARGIN_SECONDS = 5
"""Time beyond the ranks' grace: the runner kills what is left of them, reads the rest of their output, and reports."""
RUNNER_VARIABLES = ("FERMI_RANKS", "FERMI_TERMINATION_LOG", "FERMI_POD_IP")
"""Variables of the runner that commands beside a rank do not get."""
RUN_LIMIT_MARGIN_SECONDS = 60
"""Time beyond a task's own limit and its grace: the platform ends it, and the cluster only where the platform cannot.
"""
DAY_SECONDS = 86_400
MAX_QUEUED_SECONDS = 30 * DAY_SECONDS
"""How long nodes that have started wait for others that Kueue has not admitted; the end of the attempt ends them."""
LOST_NODE_SECONDS = 30  # Kubernetes' own default is 300
DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"

CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def build_pod_security(user: int) -> dict[str, Any]:
    """Return the security context of a pod; CONTAINER_SECURITY is its containers'."""
    ids = {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}


def render(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> Rendered:
    """Return the objects of an attempt."""
    return _GangRenderer(job, plan, connection).rendered()


class _GangRenderer:
    def __init__(self, job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> None:
        self.job, self.plan, self.connection = (
            job,
            plan,
            connection_options.resolve_options(connection, job, names.VARIABLE_OPTIONS),
        )
        self.namespace = connection.get("namespace") or "default"
        self.jobset = bool(connection.get("jobset"))
        self.labels = {names.MANAGED_BY: "fermi", names.TASK: job.task_id, names.ATTEMPT: str(job.attempt)}
        if job.project:
            self.labels[names.PROJECT] = job.project
        # in a JobSet the Job's controller gives the host name, and the set the subdomain
        head = f"{names.build_node_name(job.name, 0)}-0-0" if self.jobset else "node-0"
        self.head = f"{head}.{job.name}.{self.namespace}.svc"
        self.bindings = {Late.HEAD_HOST: self.head, Late.FILES_DIR: f"{RUN_DIR}/files", Late.PYTHON: "python3"}
        self.modules = bundle.collect_modules(
            bundle.POD_MODULES, (word for node in plan.nodes for word in node.command)
        )
        self._modules = module_configmap.build_config_map(self.modules, self.namespace)
        paths = ["job.json", *(f"files/{name}" for name in plan.files)]
        self._config_volume = module_configmap.build_volume(
            volumes.JOB_VOLUME, job.name, paths, self._modules, self.modules
        )
        self._secrets = [self._secret(name) for name in job.secret_env]
        cache = volumes.find_cache_folder(job, connection)
        self._caches = {CACHE_VARIABLE: cache} if cache else {}
        self._env: dict[tuple[str, Value], dict[str, Any]] = {}
        self._class = (self.connection.get("priority_classes") or {}).get(job.priority)
        self._longest = (
            math.ceil(job.max_run + plan.grace_seconds + RUN_LIMIT_MARGIN_SECONDS) if job.max_run is not None else None
        )
        self._queue = self._queue_labels()

    def rendered(self) -> Rendered:
        """Return all objects. Where all nodes run inside of environments, the root is the only one."""
        jobs = {node.node_rank: self._job(node) for node in self.plan.nodes if not node.node.inside}
        objects = [self._config()]
        if jobs:
            objects += [self._jobset(jobs)] if self.jobset else [self._service(), *jobs.values()]
            objects.append(self._modules)
        artifacts = tuple(Artifact(obj["kind"], obj["metadata"]["name"], obj) for obj in objects)
        return Rendered(self.job.name, "kubernetes", (*artifacts, *self._orders()))

    def _orders(self) -> Iterator[Artifact]:
        """Yield the orders for nodes inside. Where others have to be admitted first, they wait as long as that
        takes."""
        inner = [node for node in self.plan.nodes if node.node.inside]
        patience = MAX_QUEUED_SECONDS if self._queue and len(inner) < len(self.plan.nodes) else None
        for node in inner:
            yield order(
                self.job, self.plan, node, self.connection, root=volumes.get_data_root(self.connection),
                data=volumes.find_data_mount(node.node, self.connection), patience=patience,
            )  # fmt: skip

    def _queue_labels(self) -> dict[str, str]:
        """Return the labels that Kueue reads, where it decides: kubernetes-sigs/kueue,
        pkg/controller/constants/constants.go."""
        if not self.connection.get("queue"):
            return {}
        found = {names.QUEUE: str(self.connection["queue"])}
        if self._class:
            found[names.PRIORITY] = str(self._class)
        if self._longest:
            found[names.MAX_RUN] = str(self._longest)
        return found

    def _deadline(self) -> int | None:
        """Return the Jobs' deadline. Where Kueue decides, it enforces the task's own limit: from the admission of the
        whole gang on."""
        limits = (self.connection.get("max_run_seconds"), None if self._queue else self._longest)
        return min((int(limit) for limit in limits if limit), default=None)

    def _meta(self, name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace, "labels": dict(self.labels), **more}

    def _config(self) -> dict[str, Any]:
        marks = {names.NODES: str(len(self.plan.nodes)), names.SUCCESS: self.plan.success}
        if self.job.code:
            marks[names.CODE] = self.job.code.snapshot
        labels = dict(self.labels)
        if inner := [node for node in self.plan.nodes if node.node.inside]:
            marks[names.INSIDE] = inside.serialize_nodes(inner, self.namespace, self.connection)
            marks[names.POD_NODE_RANKS] = ",".join(str(one.node_rank) for one in self.plan.nodes if not one.node.inside)
        if len(inner) < len(self.plan.nodes):
            labels |= module_configmap.build_label(self._modules)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._meta(self.job.name, annotations=marks, labels=labels),
            "data": {module_configmap.encode_path(path): text for path, text in self._files().items()},
        }

    def _files(self) -> dict[str, str]:
        files = {f"files/{name}": resolve(text, self.bindings) for name, text in self.plan.files.items()}
        return {"job.json": json.dumps(self._order(), sort_keys=True) + "\n", **files}

    def _order(self) -> dict[str, Any]:
        """Return what the runner reads; what differs between nodes is in their environment. A value with late pieces is
        a list of them: only the runner knows the address that answered for the head, and its own interpreter."""
        first, known = self.plan.nodes[0], {Late.FILES_DIR: self.bindings[Late.FILES_DIR]}
        return {
            "name": self.job.name,
            "command": [encode_value(word, known) for word in first.command],
            "env": {
                name: encode_value(value, known)
                for name, value in first.env.items()
                if has_unknown_values(value, known)
            },
            "nodes": len(self.plan.nodes),
            "head": self.head,
            "port": self.plan.master_port,
            "stop_signal": self.plan.stop_signal,
            "grace_seconds": self.plan.grace_seconds,
            **self.job.build_watch_options(),
            **bounds.build_bounds(self.connection, shared=False),
            **CodeLocation(volumes.get_data_root(self.connection), f"{RUN_DIR}/packages", RUN_DIR).order(self.job, 0),
            **({"secrets": sorted(self.job.secret_env)} if self.job.secret_env else {}),
        }

    def _python(self, node: Node) -> str:
        return str(node.engine.get("python") or self.connection.get("python") or "python3")

    def _service(self) -> dict[str, Any]:
        selector = {names.TASK: self.job.task_id, names.ATTEMPT: str(self.job.attempt)}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._meta(self.job.name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": [{"name": "rendezvous", "port": self.plan.master_port, "protocol": "TCP"}],
            },
        }

    def _job(self, node: NodePlan) -> dict[str, Any]:
        labels = {**self.labels, names.NODE_RANK: str(node.node_rank)}
        marks = {
            names.ENVIRONMENT: node.node.name,
            names.FIRST_RANK: str(node.processes[0].rank),
            names.PROCESSES: str(len(node.processes)),
        }
        meta = {
            "name": names.build_node_name(self.job.name, node.node_rank),
            "namespace": self.namespace,
            "labels": labels,
        }
        pod, left_out = self._pod(node)
        if left_out:
            marks[names.OMITTED_MOUNTS] = ", ".join(left_out)
        spec: dict[str, Any] = {
            "parallelism": 1,
            "completions": 1,
            "completionMode": "Indexed" if self.jobset else "NonIndexed",
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {"metadata": {"labels": labels, "annotations": marks}, "spec": pod},
        }
        if limit := self._deadline():
            spec["activeDeadlineSeconds"] = limit
        if not self.jobset:
            spec["ttlSecondsAfterFinished"] = int(self.connection.get("ttl_seconds", DAY_SECONDS))
            if self._queue:
                meta["labels"] = {**labels, **self._queue}
                spec["suspend"] = True
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}

    def _jobset(self, jobs: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """Return the JobSet. It makes the headless Service itself. Any failed job fails the set: the platform restarts
        the gang as a whole."""
        replicated = [
            {
                "name": f"node-{rank}",
                "replicas": 1,
                "template": {"metadata": {"labels": job["metadata"]["labels"]}, "spec": job["spec"]},
            }
            for rank, job in jobs.items()
        ]
        meta, spec = self._meta(self.job.name), {
            "replicatedJobs": replicated,
            "network": {"enableDNSHostnames": True, "subdomain": self.job.name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": int(self.connection.get("ttl_seconds", DAY_SECONDS)),
        }  # fmt: skip
        if self.plan.success == "head" and 0 in jobs:
            spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["node-0"]}
        if self._queue:
            meta["labels"] |= self._queue
            spec["suspend"] = True
        return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}

    def _pod(self, plan: NodePlan) -> tuple[dict[str, Any], list[str]]:
        """Return the pod's spec, and which of the environment's own mounts it does not get."""
        node, engine, user = plan.node, plan.node.engine, volumes.get_user(self.connection)
        own, mounts, left_out = self._volumes(node)
        container = {
            "name": names.CONTAINER,
            "image": node.image,
            "command": [self._python(node), "-u", "-m", "fermi.runner.pod", JOB_DIR, RUN_DIR],
            "env": self._environment(plan),
            "resources": self._resources(plan),
            "volumeMounts": mounts,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": _build_container_security(engine),
        }
        if policy := engine.get("imagePullPolicy"):
            container["imagePullPolicy"] = policy
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": math.ceil(self.plan.grace_seconds) + KILL_MARGIN_SECONDS,
            "securityContext": build_pod_security(user),
            "containers": [container],
            "volumes": own,
            "tolerations": [
                *_LOST_NODE_TOLERATIONS, *engine.get("tolerations", ()), *(_GPU_TOLERATIONS if self._gpus(node) else
            ()), ],
        }  # fmt: skip
        if not self.jobset:
            spec |= {"hostname": f"node-{plan.node_rank}", "subdomain": self.job.name}
        if account := engine.get("serviceAccount"):
            spec["serviceAccountName"] = account
        if secrets := engine.get("imagePullSecrets"):
            spec["imagePullSecrets"] = secrets
        if runtime := engine.get("runtimeClassName"):
            spec["runtimeClassName"] = runtime
        if name := engine.get("node"):
            pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pinned]}}
            spec["affinity"] = {"nodeAffinity": required}
        if claims := engine.get("resourceClaims"):
            spec["resourceClaims"] = [{"name": f"gpus-{i}", "resourceClaimName": c} for i, c in enumerate(claims)]
        if self._class and not self._queue:
            spec["priorityClassName"] = str(self._class)
        patch = self.connection.get("pod")
        return (apply_merge_patch(spec, patch) if patch else spec), left_out

    def _volumes(self, node: Node) -> tuple[volumes.Volumes, volumes.Volumes, list[str]]:
        """Return volumes, mounts, and the mounts that were left out."""
        made: volumes.Volumes = [
            self._config_volume,
            {"name": volumes.RUN_VOLUME, "emptyDir": {"sizeLimit": disk} if (disk := self._disk()) else {}},
            {"name": volumes.SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": f"{self._shm(node)}Gi"}},
        ]
        mounts: volumes.Volumes = [
            {"name": volumes.JOB_VOLUME, "mountPath": JOB_DIR, "readOnly": True},
            {"name": volumes.RUN_VOLUME, "mountPath": RUN_DIR},
            {"name": volumes.SHM_VOLUME, "mountPath": "/dev/shm"},
        ]
        if shared := volumes.build_data_mounts(self.job, self.connection):
            made.append({**self.connection["data"]["volume"], "name": volumes.DATA_VOLUME})
            mounts += shared
        left_out = volumes.add_environment_volumes(node, made, mounts, self.connection)
        return made, mounts, left_out

    def _shm(self, node: Node) -> int:
        wanted = self.connection.get("shm_gb") or min(2 * node.processes, node.memory_gb // 2)
        return max(1, int(wanted))

    def _disk(self) -> str:
        """Return the limit of a pod's use of its machine's own disk, beyond which the kubelet evicts it: its run
        folder, its containers' own layer and their output (kubernetes/website: Local ephemeral storage)."""
        asked = (self.connection.get("bounds") or {}).get("diskGb")
        return f"{math.ceil(asked)}Gi" if asked else ""

    def _gpus(self, node: Node) -> int:
        """Return how many GPUs the pod requests of the scheduler: none that are emulated, none that a claim holds
        already."""
        return node.gpu_count if node.has_cuda and not node.engine.get("resourceClaims") else 0

    def _resources(self, plan: NodePlan) -> dict[str, Any]:
        """Return requests and limits. Requests are small, because the environment itself still holds its own; limits
        are the environment's size."""
        node, count = plan.node, len(plan.processes)
        requests = {"cpu": f"{count * (100 if node.emulated else 1000)}m", "memory": f"{count * 256}Mi"}
        limits = {"cpu": str(max(node.cpu_cores, count)), "memory": f"{max(node.memory_gb, count)}Gi"}
        requests |= self.connection.get("requests") or {}
        limits |= {"ephemeral-storage": disk} if (disk := self._disk()) else {}
        limits |= self.connection.get("limits") or {}
        if gpus := self._gpus(node):
            resource = node.engine.get("resource") or DEFAULT_GPU_RESOURCE
            requests[resource] = limits[resource] = str(gpus)
        for resource, amount in (node.engine.get("devices") or {}).items():
            requests[resource] = limits[resource] = str(amount)
        found: dict[str, Any] = {"requests": requests, "limits": limits}
        if claims := node.engine.get("resourceClaims"):
            found["claims"] = [{"name": f"gpus-{i}"} for i in range(len(claims))]
        return found

    def _environment(self, plan: NodePlan) -> list[dict[str, Any]]:
        """Return the variables of the whole node; the ranks' own are in FERMI_RANKS. Entries that nodes share are one
        object: making them takes most of the time of rendering."""
        ours = {
            "HOME": RUN_DIR, "USER": "fermi", "PYTHONUNBUFFERED": "1",
            **self._caches,
            **{name: value for name, value in plan.env.items() if name not in self.job.secret_env},
            "PYTHONPATH": ":".join(filter(None, [JOB_DIR, str(plan.env.get("PYTHONPATH", ""))])),
            "FERMI_RANKS": json.dumps([_build_rank(process) for process in plan.processes]),
            "FERMI_TERMINATION_LOG": TERMINATION_LOG,
        }  # fmt: skip
        return [*(self._variable(item) for item in ours.items()), *_FIELD_VARIABLES, *self._secrets]

    def _secret(self, name: str) -> dict[str, Any]:
        """Return a variable of the Secret, which has the attempt's name and is made when the attempt is submitted."""
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": self.job.name, "key": name}}}

    def _variable(self, item: tuple[str, Value]) -> dict[str, Any]:
        if (found := self._env.get(item)) is None:
            text = resolve(item[1], self.bindings).replace("$(", "$$(")  # Kubernetes would expand it
            found = self._env[item] = {"name": item[0], "value": text}
        return found


def _build_container_security(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the security context of a container. `capabilities`: those that its environment has and training needs
    too."""
    added = {"add": engine["capabilities"]} if engine.get("capabilities") else {}
    return {**CONTAINER_SECURITY, "capabilities": {"drop": ["ALL"], **added}} if added else CONTAINER_SECURITY


_FIELD_VARIABLES = [{"name": "FERMI_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
_LOST_NODE_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": LOST_NODE_SECONDS}
    for what in ("not-ready", "unreachable")
]  # fmt: skip
_GPU_TOLERATIONS = [{"key": DEFAULT_GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}]


def _build_rank(process: Any) -> dict[str, Any]:
    return {"rank": process.rank, "local_rank": process.local_rank, "env": dict(process.env)}


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Return a JSON merge patch (RFC 7396) of `target`, except that lists of named objects are merged by name, as it is
    meant for volumes, containers and mounts."""
    if isinstance(patch, Mapping):
        base = dict(target) if isinstance(target, Mapping) else {}
        for name, value in patch.items():
            if value is None:
                base.pop(name, None)
            else:
                base[name] = apply_merge_patch(base.get(name), value)
        return base
    if isinstance(patch, list) and isinstance(target, list) and all(_has_name(item) for item in [*patch, *target]):
        merged = {_get_identity(item): item for item in target}
        for item in patch:
            merged[_get_identity(item)] = apply_merge_patch(merged.get(_get_identity(item)), item)
        return list(merged.values())
    return patch


def _has_name(item: Any) -> bool:
    return isinstance(item, Mapping) and "name" in item


def _get_identity(item: Mapping[str, Any]) -> tuple[Any, Any]:
    return item["name"], item.get("mountPath")

"""A dev environment as Kubernetes objects. Pure.

PersistentVolumeClaim <environment>   its disk; stays when it is stopped
ResourceClaim <environment>           its GPUs, where the connection names a DeviceClass; stays, too
Service <environment>                 headless, without ports: nothing listens on the pod network
ConfigMap <environment>-<run>         spec of the environment daemon; the run's record; owns its Secret
ConfigMap fermi-modules-<hash>        modules of the daemon; shared by all runs with the same (`module_configmap`)
StatefulSet <environment>             one replica, none while it is stopped; its template is the newest run's
"""

import json
from collections.abc import Mapping
from typing import Any

from fermi.engines import bundle
from fermi.engines.environments import EnvironmentSpec
from fermi.engines.kubernetes import module_configmap, names, volumes
from fermi.engines.kubernetes.causes import HOSTNAME_LABEL
from fermi.engines.kubernetes.environment_pods import EMULATED, PRODUCT, ZONE
from fermi.engines.kubernetes.render import (
    CONTAINER_SECURITY,
    DEFAULT_GPU_RESOURCE,
    TERMINATION_LOG,
    apply_merge_patch,
    build_pod_security,
)
from fermi.engines.kubernetes.volumes import JOB_DIR, RUN_DIR
from fermi.jobs.spec import Artifact, Rendered

ENVD_PORT = 8732
"""Port of the environment daemon, on the pod's own loopback."""
HOME_DIR = "/home/fermi"
DISK_VOLUME = "disk"
DEFAULT_DISK_GB = 10  # the default
GRACE_SECONDS = 30
GRACE_MARGIN_SECONDS = 5  # beyond the processes' own grace
START_PROGRAM = (
    f"import os, runpy, shutil, sys; spec = '{RUN_DIR}/keeper.json'; shutil.copy('{JOB_DIR}/keeper.json', spec); "
    f"log = '{RUN_DIR}/keeper.log'; os.path.lexists(log) or os.symlink('/proc/self/fd/1', log); "
    "sys.argv = ['keeper', spec]; runpy.run_module('fermi.envd', run_name='__main__')"
)
"""Program that starts the environment daemon: the daemon writes beside its spec, so that is copied to a folder where it
may; and its log is the pod's log."""


def render(spec: EnvironmentSpec, connection: Mapping[str, Any]) -> Rendered:
    """Return the objects of a run."""
    return _EnvironmentRenderer(spec, connection).rendered()


def format_disk_size(spec: EnvironmentSpec) -> str:
    """Return the size of the disk as Kubernetes takes it."""
    return f"{spec.disk_gb or DEFAULT_DISK_GB}Gi"


class _EnvironmentRenderer:
    def __init__(self, spec: EnvironmentSpec, connection: Mapping[str, Any]) -> None:
        self.spec, self.connection = spec, connection
        self.options: Mapping[str, Any] = connection.get("environments") or {}
        self.namespace = connection.get("namespace") or "default"
        self.python = str(connection.get("python") or "python3")
        self.labels = {names.MANAGED_BY: "fermi", names.ENVIRONMENT_ID: spec.id}
        if spec.project:
            self.labels[names.PROJECT] = spec.project
        self.of_run = {**self.labels, names.RUN_NUMBER: str(spec.run)}
        self.modules = bundle.collect_modules(bundle.ENVD_MODULES, ())
        self._made = module_configmap.build_config_map(self.modules, self.namespace)
        self.has_claim = bool(self.options.get("deviceClass") and spec.gpu_count and not spec.emulated)

    def rendered(self) -> Rendered:
        claims = [self._claim()] if self.has_claim else []
        objects = [self._config(), self._made, self._disk(), *claims, self._service(), self._set()]
        artifacts = tuple(Artifact(obj["kind"], obj["metadata"]["name"], obj) for obj in objects)
        return Rendered(self.spec.run_name, "kubernetes", artifacts)

    def _object(self, version: str, kind: str, name: str, labels: Mapping[str, str], **more: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.namespace, "labels": dict(labels)}
        return {"apiVersion": version, "kind": kind, "metadata": meta, **more}

    def _config(self) -> dict[str, Any]:
        data = {"keeper.json": json.dumps(self._told(), sort_keys=True) + "\n"}
        labels = {**self.of_run, **module_configmap.build_label(self._made)}
        return self._object("v1", "ConfigMap", self.spec.run_name, labels, data=data)

    def _told(self) -> dict[str, Any]:
        """Return the spec of the environment daemon."""
        spec = self.spec
        return {
            "name": spec.run_name, "kind": spec.kind, "workspace": f"{HOME_DIR}/work", "home": HOME_DIR,
            "service": f"{RUN_DIR}/service", "cache": f"{HOME_DIR}/.cache/fermi", "tools": f"{HOME_DIR}/.local/fermi",
            "python": self.python, "lab": self.python, "packages": list(spec.packages), "env": {},
            "ports": [{"name": port.name, "port": port.port} for port in spec.ports],
            "start_script": spec.start_script, "lazy": False, "grace_seconds": GRACE_SECONDS, "tcp": ENVD_PORT,
            "foreground": True, "termination_message": TERMINATION_LOG,
        }  # fmt: skip

    def _disk(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": format_disk_size(self.spec)}},
        }
        if name := self.options.get("storageClass"):
            wanted["storageClassName"] = str(name)
        return self._object("v1", "PersistentVolumeClaim", self.spec.id, self.labels, spec=wanted)

    def _claim(self) -> dict[str, Any]:
        """Return the ResourceClaim. Its devices belong to the environment and not to a pod: pods that name it share
        them, and are scheduled to where they are
        (https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/)."""
        wanted = {
            "deviceClassName": str(self.options["deviceClass"]),
            "allocationMode": "ExactCount",
            "count": self.spec.gpu_count,
        }
        devices = {"requests": [{"name": "gpus", "exactly": wanted}]}
        return self._object("resource.k8s.io/v1", "ResourceClaim", self.spec.id, self.labels, spec={"devices": devices})

    def _service(self) -> dict[str, Any]:
        wanted = {"clusterIP": "None", "selector": {names.ENVIRONMENT_ID: self.spec.id}}
        return self._object("v1", "Service", self.spec.id, self.labels, spec=wanted)

    def _set(self) -> dict[str, Any]:
        marks = {names.ENVIRONMENT: self.spec.name}
        if self.spec.emulated:
            marks[EMULATED] = str(self.spec.gpu_count)
        spec = {
            "replicas": 1,
            "serviceName": self.spec.id,
            "selector": {"matchLabels": {names.ENVIRONMENT_ID: self.spec.id}},
            "template": {"metadata": {"labels": dict(self.of_run), "annotations": marks}, "spec": self._pod()},
        }
        return self._object("apps/v1", "StatefulSet", self.spec.id, self.of_run, spec=spec)

    def _pod(self) -> dict[str, Any]:
        engine = self.spec.engine
        container = {
            "name": names.CONTAINER,
            "image": self.spec.image,
            "command": [self.python, "-u", "-c", START_PROGRAM],
            "env": self._variables(),
            "resources": self._resources(),
            "volumeMounts": [
                {"name": volumes.JOB_VOLUME, "mountPath": JOB_DIR, "readOnly": True},
                {"name": volumes.RUN_VOLUME, "mountPath": RUN_DIR},
                {"name": volumes.SHM_VOLUME, "mountPath": "/dev/shm"},
                {"name": DISK_VOLUME, "mountPath": HOME_DIR},
            ],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": CONTAINER_SECURITY,
        }
        memory = {
            "medium": "Memory",
            "sizeLimit": f"{self.spec.shared_memory_gb or max(1, self.spec.memory_gb // 2)}Gi",
        }
        pod: dict[str, Any] = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": GRACE_SECONDS + GRACE_MARGIN_SECONDS,
            "securityContext": build_pod_security(volumes.get_user(self.connection)),
            "containers": [container],
            "volumes": [
                module_configmap.build_volume(
                    volumes.JOB_VOLUME, self.spec.run_name, ["keeper.json"], self._made, self.modules
                ),
                {"name": volumes.RUN_VOLUME, "emptyDir": {}},
                {"name": volumes.SHM_VOLUME, "emptyDir": memory},
                {"name": DISK_VOLUME, "persistentVolumeClaim": {"claimName": self.spec.id}},
            ],
        }
        if self._asks_for_gpus() or self.has_claim:
            pod["tolerations"] = [{"key": DEFAULT_GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}]
        if placed := self._affinity():
            pod["affinity"] = placed
        if self.has_claim:
            pod["resourceClaims"] = [{"name": "gpus-0", "resourceClaimName": self.spec.id}]
        for name in ("imagePullSecrets", "runtimeClassName"):
            if engine.get(name):
                pod[name] = engine[name]
        patch = self.connection.get("pod")
        return apply_merge_patch(pod, patch) if patch else pod

    def _variables(self) -> list[dict[str, Any]]:
        """Return the variables. In the environment's own, Kubernetes would expand `$(`. The daemon removes those that
        only it is to know."""
        token = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.ENVD_TOKEN}']"}}
        path = ":".join(filter(None, [JOB_DIR, self.spec.env.get("PYTHONPATH", "")]))
        own = {"HOME": HOME_DIR, "USER": "fermi", "PYTHONUNBUFFERED": "1", **self.spec.env, "PYTHONPATH": path}
        plain = {name: text for name, text in own.items() if name not in self.spec.secret_env}
        secret = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": self.spec.run_name, "key": name}}}
            for name in self.spec.secret_env
        ]
        return [
            *({"name": name, "value": text.replace("$(", "$$(")} for name, text in plain.items()),
            *secret,
            {"name": "FERMI_KEEPER_TOKEN", "valueFrom": token},
        ]

    def _asks_for_gpus(self) -> bool:
        return bool(self.spec.gpu_count) and not self.spec.emulated and not self.has_claim

    def _resources(self) -> dict[str, Any]:
        """Return requests and limits, which are equal."""
        size = {"cpu": str(self.spec.cpu_cores), "memory": f"{self.spec.memory_gb}Gi"}
        if self._asks_for_gpus():
            size[str(self.spec.engine.get("resource") or DEFAULT_GPU_RESOURCE)] = str(self.spec.gpu_count)
        found: dict[str, Any] = {"requests": dict(size), "limits": size}
        if self.has_claim:
            found["claims"] = [{"name": "gpus-0"}]
        return found

    def _affinity(self) -> dict[str, Any]:
        wanted = []
        if self.spec.zone:
            wanted.append({"key": ZONE, "operator": "In", "values": [self.spec.zone]})
        product = (self.options.get("gpuProducts") or {}).get(self.spec.gpu_type)
        if product and self.spec.gpu_count and not self.spec.emulated:
            wanted.append({"key": PRODUCT, "operator": "In", "values": [str(product)]})
        if self.spec.host:
            wanted.append({"key": HOSTNAME_LABEL, "operator": "In", "values": [self.spec.host]})
        if not wanted:
            return {}
        terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

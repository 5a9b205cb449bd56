"""Read a pod that is a dev environment: what it has, and what a training pod beside it needs to have the same."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from fermi.engines.discovery import DiscoveredEnvironment
from fermi.jobs.gpus import shorten_name

PROJECT, KIND, EMULATED, GPU_TYPE, OWNER, PYTHON = (
    f"fermi.io/{name}" for name in ("project", "kind", "emulated-gpus", "gpu-type", "owner", "python")
)
"""Labels (the first two) and annotations with which users state what the cluster does not know."""

GPU_RESOURCE = re.compile(r"/(gpu|mig-|vgpu)|\.com/(pgpu|npu|dcu)")
ZONE, PRODUCT = "topology.kubernetes.io/zone", "nvidia.com/gpu.product"
OMITTED_MOUNT_PATHS = ("/var/run/secrets/kubernetes.io/serviceaccount", "/dev/shm")
"""Mounts that are the pod's own: its token, and the shared memory that a training pod gets in its own size."""
KEPT_CAPABILITIES = ("IPC_LOCK",)
"""Capabilities that training uses: RDMA pins memory."""
NETWORK_RESOURCE = re.compile(r"^rdma/|/(rdma|hca|roce|ib|efa|infiniband)", re.IGNORECASE)
"""Extended resources that are network adapters."""
NODE_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""Taints that the API server lets every pod tolerate; the backend sets for how long."""

IMAGE_KINDS = {"jupyter": ("jupyter", "notebook"), "vscode": ("vscode", "code-server", "openvscode")}
_UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([a-zA-Z]*)$")

CountDevices = Callable[[str, str], int]
"""Function that returns how many devices the ResourceClaim (namespace, name) has."""
HeldGpus = Mapping[tuple[str, str], int]
"""How many GPUs are held, by their node and by the resource's name."""


def read_environment(
    pod: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], devices: CountDevices, project: str
) -> DiscoveredEnvironment:
    """Return the environment of a pod. `nodes` by key; `project` where the pod's label names none."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    namespace = meta["namespace"]
    node = spec.get("nodeName") or ""
    about_node = (nodes.get(f"/{node}") or {}).get("metadata", {}).get("labels") or {}
    main = _find_main_container(spec, notes)
    size = _read_resources(main)
    resource, gpus = _find_gpus(size)
    claims = _list_claims(spec, status)
    gpus += sum(devices(namespace, claim) for claim in claims)
    share = _estimate_share(nodes.get(f"/{node}") or {}, gpus)
    emulated = 0 if gpus else _parse_count(notes.get(EMULATED, ""))
    product = notes.get(GPU_TYPE) or about_node.get(PRODUCT) or (spec.get("nodeSelector") or {}).get(PRODUCT) or ""
    running, healthy = _read_state(meta, status)
    return DiscoveredEnvironment(
        key=f"{namespace}/{meta['name']}",
        name=meta["name"],
        project=labels.get(PROJECT) or project,
        running=running,
        healthy=healthy,
        owner=notes.get(OWNER, ""),
        kind=labels.get(KIND) or _guess_kind(main.get("image", "")),
        zone=about_node.get(ZONE) or labels.get(ZONE) or "",
        gpu_type=shorten_name(product) if gpus or emulated else "",
        gpu_count=gpus or emulated,
        emulated=bool(emulated),
        cpu_cores=max(int(size.get("cpu") or share.get("cpu", 0.0)), 1),
        memory_gb=max(int((size.get("memory") or share.get("memory", 0.0)) / 2**30), 1),
        image=main.get("image", ""),
        host=node,
        ip=status.get("podIP") or "",
        started_at=_parse_timestamp(status.get("startTime")) if running else None,
        engine=_build_engine(spec, main, meta, resource, claims, notes),
    )


def count_held_gpus(pods: Iterable[Mapping[str, Any]]) -> HeldGpus:
    """Return how many GPUs of device plugins these pods hold: a pod that is bound to a node holds them until it is
    over."""
    found = Counter[tuple[str, str]]()
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            for one in pod["spec"]["containers"]:
                resource, count = _find_gpus(_read_resources(one))
                found[node, resource] += count
    return found


def add_gpu_counts(engine: Mapping[str, Any], node: Mapping[str, Any], held_gpus: HeldGpus) -> Mapping[str, Any]:
    """Return `engine` with how many GPUs a device plugin offers on its node, and how many dev environments hold
    there."""
    resource, amounts = engine.get("resource"), (node.get("status") or {}).get("allocatable") or {}
    if not resource or resource not in amounts:
        return engine
    there = int(parse_quantity(amounts[resource]))
    return {**engine, "gpus": {"there": there, "held": held_gpus.get((engine.get("node") or "", resource), 0)}}


def build_set_pods(stateful_set: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the pods a StatefulSet would have if they ran; at least one, so that one scaled to zero stays known."""
    meta, spec = stateful_set["metadata"], stateful_set["spec"]
    first = (spec.get("ordinals") or {}).get("start", 0)
    template = spec["template"]
    for ordinal in range(first, first + max(spec.get("replicas", 1), 1)):
        about = {**template.get("metadata", {}), "namespace": meta["namespace"], "name": f"{meta['name']}-{ordinal}"}
        yield {"metadata": about, "spec": template["spec"], "status": {}}


def parse_quantity(text: str) -> float:
    """Return a quantity as a number: `500m` is 0.5, `2Gi` is 2147483648; 0 for what is none."""
    parts = _QUANTITY.match(str(text))
    return float(parts[1]) * _UNITS.get(parts[2], 0) if parts else 0.0


def _find_main_container(spec: Mapping[str, Any], notes: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the container that kubectl would choose; without its annotation the first that has GPUs: a sidecar that
    was put in front of it has none."""
    named = notes.get("kubectl.kubernetes.io/default-container")
    containers: list[Mapping[str, Any]] = spec["containers"]
    with_gpus = (one for one in containers if _find_gpus(_read_resources(one))[1])
    return next((one for one in containers if one["name"] == named), None) or next(with_gpus, containers[0])


def _read_resources(container: Mapping[str, Any]) -> dict[str, float]:
    """Return what a container may use: its limits, and what it requests where there is no limit."""
    resources = container.get("resources") or {}
    wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: parse_quantity(text) for name, text in wanted.items()}


def _estimate_share(node: Mapping[str, Any], gpus: int) -> dict[str, float]:
    """Return what of its node's CPUs and memory a container counts as having that says neither: by its part of the
    node's GPUs; all of a node that has none."""
    amounts = (node.get("status") or {}).get("allocatable") or {}
    _, there = _find_gpus({name: parse_quantity(text) for name, text in amounts.items()})
    part = min(gpus / there, 1.0) if there and gpus else 1.0
    return {name: parse_quantity(amounts.get(name, "0")) * part for name in ("cpu", "memory")}


def _find_gpus(size: Mapping[str, float]) -> tuple[str, int]:
    """Return the GPU resource and how many of it; the largest where there are several."""
    counts = {name: int(count) for name, count in size.items() if GPU_RESOURCE.search(name)}
    resource = max(counts, key=lambda name: counts[name], default="")
    return resource, counts.get(resource, 0)


def _list_claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> list[str]:
    """Return the names of ResourceClaims that exist; one that was made from a template is named in the status."""
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or []}
    wanted = [one.get("resourceClaimName") or made.get(one["name"]) for one in spec.get("resourceClaims") or []]
    return [name for name in wanted if name]


def _read_state(meta: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return (running, healthy). One that is pending or being deleted is merely not running."""
    if meta.get("deletionTimestamp"):
        return False, True
    phase = status.get("phase", "Pending")
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    return phase == "Running" and ready, phase in ("Pending", "Succeeded") or (phase == "Running" and ready)


def _build_engine(
    spec: Mapping[str, Any], main: Mapping[str, Any], meta: Mapping[str, Any], resource: str, claims: list[str],
    notes: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Return `Node.engine`, as this backend reads it."""
    mounts = [mount for mount in main.get("volumeMounts") or [] if mount["mountPath"] not in OMITTED_MOUNT_PATHS]
    used = {mount["name"] for mount in mounts}
    known = {
        "pod": meta["name"],
        "container": main["name"],
        "namespace": meta["namespace"],
        "node": spec.get("nodeName"),
        "serviceAccount": spec.get("serviceAccountName"),
        "volumes": [volume for volume in spec.get("volumes") or [] if volume["name"] in used],
        "volumeMounts": mounts,
        "tolerations": [one for one in spec.get("tolerations") or [] if one.get("key") not in NODE_TAINTS],
        "imagePullSecrets": spec.get("imagePullSecrets"),
        "imagePullPolicy": main.get("imagePullPolicy"),
        "runtimeClassName": spec.get("runtimeClassName"),
        "capabilities": [one for one in _list_capabilities(main) if one in KEPT_CAPABILITIES],
        "devices": {name: int(count) for name, count in _read_resources(main).items() if NETWORK_RESOURCE.search(name)},
        "resource": resource,
        "resourceClaims": claims,
        "python": notes.get(PYTHON),
    }
    return {name: value for name, value in known.items() if value}


def _list_capabilities(main: Mapping[str, Any]) -> list[str]:
    return ((main.get("securityContext") or {}).get("capabilities") or {}).get("add") or []


def _guess_kind(image: str) -> str:
    return next((kind for kind, words in IMAGE_KINDS.items() if any(word in image for word in words)), "custom")


def _parse_count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _parse_timestamp(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None

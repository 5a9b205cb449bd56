"""What a kubelet checks before it takes a pod, and the devices that it gives to containers.

A pod may come past the scheduler (`spec.nodeName`), so its kubelet counts what its node has left
(kubernetes/kubernetes, pkg/kubelet/lifecycle/predicate.go). A container's devices are chosen then and stay its own
through its restarts, until the pod has ended (pkg/kubelet/cm/devicemanager/manager.go). Of a device plugin the
container sees what its response to Allocate has: NVIDIA's with its default, `envvar`, the variable
NVIDIA_VISIBLE_DEVICES with the devices' UUIDs (NVIDIA/k8s-device-plugin, internal/plugin/server.go:
getAllocateResponse)."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal

from tests.fakes.kubernetes import quantities
from tests.fakes.kubernetes.store import Object

FIRST = ("pods", "cpu", "memory", "ephemeral-storage")
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
Held = dict[str, dict[str, list[str]]]
"""Ids of devices, by container and resource."""


def refusal(pod: Object, node: Object, others: Iterable[Object]) -> tuple[str, str] | None:
    """Why the node has no room for the pod beside the others: a reason and a message. None: it has."""
    capacity: Mapping[str, str] = (node.get("status") or {}).get("allocatable") or {}
    used: Counter[str] = Counter()
    for other in others:
        used.update(quantities.requests(other["spec"]))
    asked = quantities.requests(pod["spec"])
    for name in sorted(asked, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
        if "/" in name and name not in capacity:
            continue  # as removeMissingExtendedResources: it may be the whole cluster's
        there = quantities.number(capacity.get(name, 0))
        if asked[name] and asked[name] + used[name] > there:
            amounts = [_whole(name, amount) for amount in (Decimal(asked[name]), Decimal(used[name]), there)]
            numbers = "requested: {}, used: {}, capacity: {}".format(*amounts)
            return f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}"
    return None


def _whole(name: str, amount: Decimal) -> int:
    return int(amount * 1000 if name == "cpu" else amount)


def allocate_devices(pod: Object, node: Object, held: Iterable[Held]) -> Held:
    """Devices for each container of a pod for which there is room. `held`: those of the node's other pods."""
    taken = {one for pod in held for container in pod.values() for devices in container.values() for one in devices}
    capacity: Mapping[str, str] = (node.get("status") or {}).get("allocatable") or {}
    given: Held = {}
    for container in pod["spec"]["containers"]:
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" not in name or name not in capacity:
                continue
            free = [one for one in ids(node, name) if one not in taken][: int(quantities.number(amount))]
            taken.update(free)
            given.setdefault(container["name"], {})[name] = free
    return given


def ids(node: Object, resource: str) -> list[str]:
    """Of all devices of this kind that the node has, in order."""
    count = int(quantities.number(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0)))
    name = f"{node['metadata']['name']}/{resource}"
    return [f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{name}/{number}')}" for number in range(count)]


def env(held: Held, container: str) -> dict[str, str]:
    """What the container runtime sets, before the variables of the container's own."""
    found = [one for name, ids in held.get(container, {}).items() if name.startswith("nvidia.com/") for one in ids]
    return {NVIDIA: ",".join(found)} if found else {}

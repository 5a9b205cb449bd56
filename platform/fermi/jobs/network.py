"""How ranks on several nodes reach each other: NCCL's and gloo's variables, from what is known of the nodes.

A wrong interface kills a job, while a missing one leaves the choice to the library: so only what a node's `network`
states is set, and a variable of the user's own wins over all of it.

    interface    the network interface by which the other nodes reach it, such as `eth0`
    infiniband   its InfiniBand or RoCE devices, such as `mlx5_0`; [] = it has none, absent = not known

Where ranks run inside of an environment, and nobody states its devices, those count that its container was seen to have
(`Node.engine["inside"]["rdma"]`).
"""

from collections.abc import Iterable
from typing import Any

from fermi.jobs.spec import JobSpec, Node, Problem

TIMEOUT_SCHEMA: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 86_400}
"""Schema of the option `timeoutSeconds` of the torch frameworks."""


def has_infiniband(nodes: Iterable[Node]) -> bool | None:
    """Return whether every node is known to have InfiniBand or RoCE: one that lacks it could not talk to the others.
    None = nothing is known of any node, and NCCL detects it itself."""
    known = [list_rdma_devices(node) for node in nodes]
    return None if all(devices is None for devices in known) else all(known)


def list_rdma_devices(node: Node) -> list[str] | None:
    """Return a node's InfiniBand or RoCE devices, or None where nothing is known."""
    stated: list[str] | None = node.network.get("infiniband")
    if stated is not None or not node.inside:
        return stated
    seen = (node.engine.get("inside") or {}).get("rdma")
    return list(map(str, seen)) if isinstance(seen, list | tuple) else None


def build_job_env(nodes: Iterable[Node], backend: str) -> dict[str, str]:
    """Return the NCCL variables that all nodes share."""
    if backend != "nccl":
        return {}
    env = {"NCCL_DEBUG": "WARN"}
    if (infiniband := has_infiniband(nodes)) is not None:
        env["NCCL_IB_DISABLE"] = "0" if infiniband else "1"
    return env


def build_node_env(node: Node, backend: str, *, infiniband: bool) -> dict[str, str]:
    """Return the variables that differ between nodes. In NCCL's values `=` means that exact name, not a prefix."""
    env = {}
    if interface := node.network.get("interface"):
        env["GLOO_SOCKET_IFNAME"] = interface  # beside NCCL, gloo carries what lies in CPU memory
        if backend == "nccl":
            env["NCCL_SOCKET_IFNAME"] = f"={interface}"
    if infiniband and (devices := list_rdma_devices(node)):
        env["NCCL_IB_HCA"] = "=" + ",".join(devices)
    return env


def build_torch_env(spec: JobSpec, backend: str) -> dict[str, str]:
    """Return variables for frameworks on torch.distributed. With 3, torch's default from 2.2 on, a rank whose NCCL call
    fails or times out ends at once, instead of first tearing down communicators, which may hang. TORCHELASTIC_RUN_ID
    marks the ranks as started by torchrun (`torch.distributed.is_torchelastic_launched`): Lightning checks it first
    (`_choose_and_init_cluster_environment` of its `accelerator_connector.py`), and would otherwise read Slurm's
    variables, which are the node's, or start MPI."""
    env = {
        "TORCHELASTIC_RUN_ID": spec.task_id,
        "TORCHELASTIC_RESTART_COUNT": str(max(spec.attempt - 1, 0)),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
    }
    if backend == "nccl":
        env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
    if (seconds := spec.options.get("timeoutSeconds")) is not None:
        env["FERMI_TIMEOUT_SECONDS"] = str(seconds)
    return env


def find_warnings(nodes: Iterable[Node]) -> list[Problem]:
    """Return a warning of InfiniBand that stays unused because some nodes are not known to have it."""
    nodes = list(nodes)
    fast = [node.name for node in nodes if list_rdma_devices(node)]
    slow = [node.name for node in nodes if not list_rdma_devices(node)]
    if not fast or not slow:
        return []
    return [Problem("", "INFINIBAND_NOT_EVERYWHERE", {"with": ", ".join(fast), "without": ", ".join(slow)})]

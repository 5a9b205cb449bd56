"""Nodes of an attempt that run inside of dev environments' pods: how these are entered, and what becomes of them.

The root names them (`names.INSIDE`) and where each was started (`names.STARTED_CONTAINERS`: the pod's uid, the
container's id), so any process of the platform finds them again. A container that was replaced has nothing of the
attempt any more.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from fermi.engines.inside import bundle
from fermi.engines.inside.download import TransferLimits
from fermi.engines.inside.followers import EnvironmentEntry, NodeInEnvironment, StopRequest
from fermi.engines.inside.render import ARTIFACT_KIND
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.engines.kubernetes import causes, names, volumes
from fermi.engines.kubernetes.channels import PodExecStream
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient, open_in_time
from fermi.engines.kubernetes.gang import FINISHED_PHASES, Gang, Object, find_condition, get_phase
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Node, NodePlan, Rendered

ENTER_SECONDS = 15.0
ANSWER_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class NodeInPod:
    """Node inside of a pod. `first`: its first rank. `python`: the interpreter by which the pod is entered, if it is
    known. `brings`: what its ranks write is downloaded, because it does not see the platform's data directory."""

    node_rank: int
    environment: str
    namespace: str
    pod: str
    container: str
    first: int
    processes: int
    python: str = ""
    brings: bool = False

    @property
    def container_name(self) -> str:
        """Name of its container within the cluster."""
        return f"{self.namespace}/{self.pod}/{self.container}"


def serialize_nodes(plans: Iterable[NodePlan], namespace: str, connection: Mapping[str, Any]) -> str:
    """Return the value of the root's annotation for these nodes."""
    return json.dumps([asdict(_build_node(node, namespace, connection)) for node in plans], sort_keys=True)


def _build_node(plan: NodePlan, namespace: str, connection: Mapping[str, Any]) -> NodeInPod:
    return NodeInPod(
        plan.node_rank, plan.node.name, *locate_pod(plan.node, namespace), plan.processes[0].rank,
        len(plan.processes), get_interpreter(plan.node), brings=not volumes.find_data_mount(plan.node, connection),
    )  # fmt: skip


def locate_pod(node: Node, namespace: str) -> tuple[str, str, str]:
    """Return the namespace, pod and container of an environment; the container is empty where it is the only one."""
    engine = node.engine
    return str(engine.get("namespace") or namespace), str(engine.get("pod") or ""), str(engine.get("container") or "")


def get_interpreter(node: Node) -> str:
    """Return the interpreter by which an environment was entered before; empty: not known."""
    return str((node.engine.get("inside") or {}).get("python") or "")


def list_nodes(gang: Gang) -> list[NodeInPod]:
    """Return the nodes of an attempt that run inside."""
    return parse_nodes(gang.marks)


def parse_nodes(annotations: Mapping[str, str]) -> list[NodeInPod]:
    """Return the nodes of a root's annotations."""
    return [NodeInPod(**one) for one in json.loads(annotations.get(names.INSIDE) or "[]")]


def list_orders(rendered: Rendered) -> dict[int, Mapping[str, Any]]:
    """Return the order for each node inside, by its rank."""
    found = (artifact.content for artifact in rendered.artifacts if artifact.kind == ARTIFACT_KIND)
    return {int(order["spec"]["node_rank"]): order for order in found}


def get_stop_request(gang: Gang) -> StopRequest | None:
    """Return the request to end an attempt; None: it is not cancelled."""
    said = gang.marks.get(names.STOP_REQUEST)
    if not gang.cancelled:
        return None
    found = json.loads(said) if said else {}
    return StopRequest(float(found.get("kill_at") or 0.0), found.get("still"))


class PodEnvironments:
    """Pods of a cluster's environments. Raise BackendError for a pod in a namespace that the connection does not
    name."""

    def __init__(self, client: KubernetesClient, limits: TransferLimits | None = None) -> None:
        self._client, self._limits = client, limits or TransferLimits()

    def enter(self, namespace: str, pod: str, container: str, python: str = "", *module: str) -> InsideSession:
        """Return a session inside of a container. `module`: one of the bundle, with its arguments. Raise BackendError
        with the message of the API server or of the environment."""
        self._check_named(namespace, pod)
        command = bundle.build_command(python, *module)
        try:
            talk = open_in_time(ENTER_SECONDS, partial(self._client.execute, pod, container, command, namespace))
        except TimeoutError:
            raise InsideError("INSIDE_SILENT", why="the API server does not answer") from None
        except KubernetesApiError as refused:
            if refused.status in (400, 404, 500):
                raise _build_entry_error(refused.message, python) from refused
            raise
        running = PodExecStream(talk)
        try:
            return InsideSession(running.stream, ANSWER_SECONDS).greet()
        except InsideError as error:
            if error.code == "INSIDE_SILENT" and (why := running.why()):
                raise _build_entry_error(why, python) from error
            raise

    def pod(self, node: NodeInPod) -> Object | None:
        """Return the pod of a node; None where there is none. Raise BackendError."""
        self._check_named(node.namespace, node.pod)
        return self._client.find(self._client.path("Pod", node.pod, namespace=node.namespace))

    def _check_named(self, namespace: str, pod: str) -> None:
        if namespace not in self._client.namespaces:
            raise BackendError("INSIDE_OTHER_NAMESPACE", permanent=True, environment=pod, found=namespace)

    def delete_attempt(self, node: NodeInPod, attempt: str) -> None:
        """Remove what is kept there of an attempt that has ended. Raise BackendError."""
        with self.enter(node.namespace, node.pod, node.container, node.python) as session:
            session.request("forget", of=attempt)

    def build_follow_target(self, gang: Gang, node: NodeInPod) -> tuple[EnvironmentEntry, NodeInEnvironment]:
        """Return what `inside.followers` needs to follow a node."""
        begun = json.loads(gang.marks.get(names.STARTED_CONTAINERS) or "{}").get(str(node.node_rank)) or {}
        enter = partial(self.enter, node.namespace, node.pod, node.container, node.python)
        fate = partial(self.find_end, node, begun)
        brings = self._limits if node.brings else None
        place = NodeInEnvironment(
            gang.name, node.node_rank, node.first, node.processes, fate, get_stop_request(gang), brings
        )
        return EnvironmentEntry(node.container_name, enter), place

    def find_end(self, node: NodeInPod, begun: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what became of the container in which the node was started; None: it runs, as far as the API server
        knows. Raise BackendError."""
        pod = self.pod(node)
        if pod is None or (begun.get("uid") and pod["metadata"]["uid"] != begun["uid"]):
            return _build_end("POD_DELETED", node, evidence="the environment's pod is not there any more")
        status = pod.get("status") or {}
        if status.get("reason") == "Evicted":
            return _build_end("EVICTED", node, evidence=str(status.get("message") or "Evicted"))
        found = find_container_status(pod, node.container)
        if found is None or not begun.get("id"):
            return None
        if found.get("containerID") == begun["id"] and "running" in (found.get("state") or {}):
            return None
        ended = _find_termination(found, begun["id"]) or {}
        said = f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode')}" if ended else ""
        if ended.get("reason") == "OOMKilled":
            return _build_end("OUT_OF_MEMORY", node, evidence=said, limit=_get_memory_limit(pod, str(found["name"])))
        if disruption := find_condition(pod, "DisruptionTarget"):
            evidence = f"{disruption.get('reason')}: {disruption.get('message')}"
            return _build_end(causes.get_disruption_code(disruption), node, evidence=evidence)
        if pod["metadata"].get("deletionTimestamp"):
            return _build_end("POD_DELETED", node, evidence="the pod was deleted")
        if ended:
            return _build_end("CONTAINER_RESTARTED", node, evidence=said, exitCode=ended.get("exitCode"))
        if get_phase(pod) in FINISHED_PHASES:
            return _build_end("POD_DELETED", node, evidence=str(status.get("message") or get_phase(pod)))
        return None if found.get("containerID") in ("", None, begun["id"]) else _build_end("CONTAINER_RESTARTED", node)


def identify_container(pod: Object, container: str) -> dict[str, str]:
    """Return the pod's uid and address and the container's id, by which this life of the container is known. Raise
    InsideError where it does not run."""
    found = find_container_status(pod, container) or {}
    if "running" not in (found.get("state") or {}) or pod["metadata"].get("deletionTimestamp"):
        raise InsideError("INSIDE_NOT_RUNNING", pod=pod["metadata"]["name"])
    return {"uid": pod["metadata"]["uid"], "id": str(found.get("containerID") or ""),
            "ip": str((pod.get("status") or {}).get("podIP") or "")}  # fmt: skip


def find_container_status(pod: Object, container: str) -> Object | None:
    """Return the status of a container; empty name: of the first one. None where there is none."""
    statuses: Sequence[Object] = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in statuses if one["name"] == container or not container), None)


def explain_not_running(pod: Object, container: str) -> str:
    """Return why that container does not run, in the words of Kubernetes, such as `CrashLoopBackOff, exit code 1`;
    empty: it runs, or nothing is known yet."""
    if pod["metadata"].get("deletionTimestamp"):
        return "the pod is being deleted"
    status, found = pod.get("status") or {}, find_container_status(pod, container) or {}
    state = found.get("state") or {}
    if "running" in state:
        return ""
    ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated") or {}
    reason = (state.get("waiting") or ended).get("reason") or status.get("reason") or get_phase(pod)
    return f"{reason}, exit code {ended['exitCode']}" if "exitCode" in ended else str(reason)


def _find_termination(status: Mapping[str, Any], life: str) -> Mapping[str, Any] | None:
    """Return how that life of the container ended, as the kubelet reports; None: not known."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended and ended.get("containerID", life) == life:
            return dict(ended)
    return None


def _get_memory_limit(pod: Object, container: str) -> str:
    """Return the memory limit as the pod's spec has it, such as `4Gi`; empty: it has none."""
    found: Object = next((one for one in pod["spec"]["containers"] if one["name"] == container), {})
    return str(((found.get("resources") or {}).get("limits") or {}).get("memory") or "")


def _build_end(code: str, node: NodeInPod, **params: Any) -> dict[str, Any]:
    told = {name: value for name, value in params.items() if value not in ("", None)}
    return {"code": code, "params": {"pod": node.pod, **told}, "at": time.time()}


def _build_entry_error(why: str, python: str) -> InsideError:
    """Return the error for a message of the API server or the container runtime (containerd and runc: `exec: "sh":
    executable file not found in $PATH`; the kubelet: `container not found ("main")`, and `pod does not exist` for a
    moment after its own start)."""
    said = why.lower()
    why = why.rpartition("unable to start container process: ")[
        2
    ]  # the runtime's own message, without the prefixes of the layers above
    if "executable file not found" in said or "no such file or directory" in said:
        code = "INSIDE_PYTHON_UNUSABLE" if python else "INSIDE_NO_SHELL"
        return InsideError(code, permanent=True, python=python, why=why)
    if any(words in said for words in ("not found", "does not exist", "does not have a host")):
        return InsideError("INSIDE_NOT_RUNNING", why=why)
    return InsideError("INSIDE_SILENT", why=why)

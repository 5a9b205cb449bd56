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
from fermi.engines.inside.download import Limits
from fermi.engines.inside.followers import End, Environment, Place
from fermi.engines.inside.render import KIND
from fermi.engines.inside.session import InsideError, Session
from fermi.engines.kubernetes import causes, names, volumes
from fermi.engines.kubernetes.client import Client, Refused, in_time
from fermi.engines.kubernetes.gang import FINISHED, Gang, Object, condition, phase
from fermi.engines.kubernetes.pod_exec import Executing
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Node, NodePlan, Rendered

ENTER_SECONDS = 15.0
ANSWER_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Inside:
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
    def place(self) -> str:
        """Name of its container within the cluster."""
        return f"{self.namespace}/{self.pod}/{self.container}"


def listed(plan: Iterable[NodePlan], namespace: str, connection: Mapping[str, Any]) -> str:
    """Return the value of the root's annotation for these nodes."""
    return json.dumps([asdict(_of(node, namespace, connection)) for node in plan], sort_keys=True)


def _of(plan: NodePlan, namespace: str, connection: Mapping[str, Any]) -> Inside:
    return Inside(
        plan.node_rank, plan.node.name, *whereabouts(plan.node, namespace), plan.processes[0].rank,
        len(plan.processes), interpreter(plan.node), brings=not volumes.inside(plan.node, connection),
    )  # fmt: skip


def whereabouts(node: Node, namespace: str) -> tuple[str, str, str]:
    """Return the namespace, pod and container of an environment; the container is empty where it is the only one."""
    engine = node.engine
    return str(engine.get("namespace") or namespace), str(engine.get("pod") or ""), str(engine.get("container") or "")


def interpreter(node: Node) -> str:
    """Return the interpreter by which an environment was entered before; empty: not known."""
    return str((node.engine.get("inside") or {}).get("python") or "")


def nodes(gang: Gang) -> list[Inside]:
    """Return the nodes of an attempt that run inside."""
    return listed_in(gang.marks)


def listed_in(marks: Mapping[str, str]) -> list[Inside]:
    """Return the nodes of a root's annotations."""
    return [Inside(**one) for one in json.loads(marks.get(names.INSIDE) or "[]")]


def orders(rendered: Rendered) -> dict[int, Mapping[str, Any]]:
    """Return the order for each node inside, by its rank."""
    found = (artifact.content for artifact in rendered.artifacts if artifact.kind == KIND)
    return {int(order["spec"]["node_rank"]): order for order in found}


def end_of(gang: Gang) -> End | None:
    """Return the request to end an attempt; None: it is not cancelled."""
    said = gang.marks.get(names.END)
    if not gang.cancelled:
        return None
    found = json.loads(said) if said else {}
    return End(float(found.get("kill_at") or 0.0), found.get("still"))


class Environments:
    """Pods of a cluster's environments. Raise BackendError for a pod in a namespace that the connection does not
    name."""

    def __init__(self, client: Client, limits: Limits | None = None) -> None:
        self._client, self._limits = client, limits or Limits()

    def enter(self, namespace: str, pod: str, container: str, python: str = "", *module: str) -> Session:
        """Return a session inside of a container. `module`: one of the bundle, with its arguments. Raise BackendError
        with the message of the API server or of the environment."""
        self._check_named(namespace, pod)
        command = bundle.command(python, *module)
        try:
            talk = in_time(ENTER_SECONDS, partial(self._client.execute, pod, container, command, namespace))
        except TimeoutError:
            raise InsideError("INSIDE_SILENT", why="the API server does not answer") from None
        except Refused as refused:
            if refused.status in (400, 404, 500):
                raise _unreached(refused.message, python) from refused
            raise
        running = Executing(talk)
        session = Session(running.stream, ANSWER_SECONDS)
        try:
            return session.greet()
        except InsideError as error:
            session.close()
            if error.code == "INSIDE_SILENT" and (why := running.why()):
                raise _unreached(why, python) from error
            raise

    def pod(self, one: Inside) -> Object | None:
        """Return the pod of a node; None where there is none. Raise BackendError."""
        self._check_named(one.namespace, one.pod)
        return self._client.find(self._client.path("Pod", one.pod, namespace=one.namespace))

    def _check_named(self, namespace: str, pod: str) -> None:
        if namespace not in self._client.namespaces:
            raise BackendError("INSIDE_OTHER_NAMESPACE", permanent=True, environment=pod, found=namespace)

    def forget(self, one: Inside, attempt: str) -> None:
        """Remove what is kept there of an attempt that has ended. Raise BackendError."""
        with self.enter(one.namespace, one.pod, one.container, one.python) as session:
            session.ask("forget", of=attempt)

    def followed(self, gang: Gang, one: Inside) -> tuple[Environment, Place]:
        """Return what `inside.followers` needs to follow a node."""
        begun = json.loads(gang.marks.get(names.BEGUN) or "{}").get(str(one.node_rank)) or {}
        enter = partial(self.enter, one.namespace, one.pod, one.container, one.python)
        fate = partial(self.fate, one, begun)
        brings = self._limits if one.brings else None
        place = Place(gang.name, one.node_rank, one.first, one.processes, fate, end_of(gang), brings)
        return Environment(one.place, enter), place

    def fate(self, one: Inside, begun: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what became of the container in which the node was started; None: it runs, as far as the API server
        knows. Raise BackendError."""
        pod = self.pod(one)
        if pod is None or (begun.get("uid") and pod["metadata"]["uid"] != begun["uid"]):
            return _gone("POD_DELETED", one, evidence="the environment's pod is not there any more")
        status = pod.get("status") or {}
        if status.get("reason") == "Evicted":
            return _gone("EVICTED", one, evidence=str(status.get("message") or "Evicted"))
        found = container_status(pod, one.container)
        if found is None or not begun.get("id"):
            return None
        if found.get("containerID") == begun["id"] and "running" in (found.get("state") or {}):
            return None
        ended = _ended(found, begun["id"]) or {}
        said = f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode')}" if ended else ""
        if ended.get("reason") == "OOMKilled":
            return _gone("OUT_OF_MEMORY", one, evidence=said, limit=_memory_limit(pod, str(found["name"])))
        if disruption := condition(pod, "DisruptionTarget"):
            evidence = f"{disruption.get('reason')}: {disruption.get('message')}"
            return _gone(causes.disruption_code(disruption), one, evidence=evidence)
        if pod["metadata"].get("deletionTimestamp"):
            return _gone("POD_DELETED", one, evidence="the pod was deleted")
        if ended:
            return _gone("CONTAINER_RESTARTED", one, evidence=said, exitCode=ended.get("exitCode"))
        if phase(pod) in FINISHED:
            return _gone("POD_DELETED", one, evidence=str(status.get("message") or phase(pod)))
        return None if found.get("containerID") in ("", None, begun["id"]) else _gone("CONTAINER_RESTARTED", one)


def begun_in(pod: Object, container: str) -> dict[str, str]:
    """Return the pod's uid and address and the container's id, by which this life of the container is known. Raise
    InsideError where it does not run."""
    found = container_status(pod, container) or {}
    if "running" not in (found.get("state") or {}) or pod["metadata"].get("deletionTimestamp"):
        raise InsideError("INSIDE_NOT_RUNNING", pod=pod["metadata"]["name"])
    return {"uid": pod["metadata"]["uid"], "id": str(found.get("containerID") or ""),
            "ip": str((pod.get("status") or {}).get("podIP") or "")}  # fmt: skip


def container_status(pod: Object, container: str) -> Object | None:
    """Return the status of a container; empty name: of the first one. None where there is none."""
    statuses: Sequence[Object] = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in statuses if one["name"] == container or not container), None)


def why_not_running(pod: Object, container: str) -> str:
    """Return why that container does not run, in the words of Kubernetes, such as `CrashLoopBackOff, exit code 1`;
    empty: it runs, or nothing is known yet."""
    if pod["metadata"].get("deletionTimestamp"):
        return "the pod is being deleted"
    status, found = pod.get("status") or {}, container_status(pod, container) or {}
    state = found.get("state") or {}
    if "running" in state:
        return ""
    ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated") or {}
    reason = (state.get("waiting") or ended).get("reason") or status.get("reason") or phase(pod)
    return f"{reason}, exit code {ended['exitCode']}" if "exitCode" in ended else str(reason)


def _ended(found: Mapping[str, Any], life: str) -> Mapping[str, Any] | None:
    """Return how that life of the container ended, as the kubelet reports; None: not known."""
    for state in (found.get("state") or {}, found.get("lastState") or {}):
        ended = state.get("terminated")
        if ended and ended.get("containerID", life) == life:
            return dict(ended)
    return None


def _memory_limit(pod: Object, container: str) -> str:
    """Return the memory limit as the pod's spec has it, such as `4Gi`; empty: it has none."""
    found: Object = next((one for one in pod["spec"]["containers"] if one["name"] == container), {})
    return str(((found.get("resources") or {}).get("limits") or {}).get("memory") or "")


def _gone(code: str, one: Inside, **params: Any) -> dict[str, Any]:
    told = {name: value for name, value in params.items() if value not in ("", None)}
    return {"code": code, "params": {"pod": one.pod, **told}, "at": time.time()}


def _unreached(why: str, python: str) -> InsideError:
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

"""Commands beside a rank in a pod: `fermi.envd.rank_exec`, started there through `pods/exec`, as the container's user.

A process that is executed in a container has the container's own variables, the task's secrets among them; the program
removes those before anything runs (`without`).
"""

import json
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fermi.engines.base import Beside, not_running, out_of_reach
from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.client import Client, Refused, in_time
from fermi.engines.kubernetes.gang import Gang, Object, container, phase
from fermi.engines.kubernetes.pod_exec import Executing
from fermi.engines.kubernetes.render import OWN_OF_RUNNER
from fermi.engines.local.rank_exec import chosen
from fermi.engines.subprocess_stream import answers
from fermi.envd import protocol
from fermi.jobs.spec import Handle, Rendered

DIAL_SECONDS = 8.0
PROGRAM = "fermi.envd.rank_exec"


def beside(client: Client, rendered: Rendered, handle: Handle, rank: int) -> Beside:
    """Return how commands are started beside a rank. Asks for the attempt's pods, and stores nothing: web processes
    watch no clusters. Raise BackendError."""
    template = _template(rendered, rank)
    if template is None:
        raise not_running(handle, rank)
    node_rank, gang = names.node_rank(template), Gang(handle.name)
    query = {"labelSelector": names.selector(handle.name)}
    for found in client.request("GET", client.path("Pod"), query=query, timeout=DIAL_SECONDS)["items"]:
        gang.put("Pod", found)
    pod = gang.by_node().get(node_rank)
    if pod is None or not _runs(pod):
        raise not_running(handle, rank)
    order = _order(rendered, template, gang, rank)
    return Beside(node_rank, partial(_dial, client, pod, template["spec"]["containers"][0], order, handle, rank))


def _runs(pod: Object) -> bool:
    return phase(pod) == "Running" and "running" in container(pod) and not pod["metadata"].get("deletionTimestamp")


def _template(rendered: Rendered, rank: int) -> Object | None:
    """Return the template of the pod that has the rank; None where there is none."""
    for spec in _jobs(rendered):
        template: Object = spec["template"]
        if rank in names.ranks(template):
            return template
    return None


def _jobs(rendered: Rendered) -> Iterator[Mapping[str, Any]]:
    for obj in (artifact.content for artifact in rendered.artifacts if artifact.kind in ("Job", "JobSet")):
        if obj["kind"] == "Job":
            yield obj["spec"]
        for one in obj["spec"]["replicatedJobs"] if obj["kind"] == "JobSet" else ():
            yield one["template"]["spec"]


def _order(rendered: Rendered, template: Object, gang: Gang, rank: int) -> dict[str, Any]:
    """Return the order that `fermi.envd.rank_exec` reads: what the runner adds to the container's own variables for
    this rank."""
    config = next(one.content for one in rendered.artifacts if one.kind == "ConfigMap")
    job = json.loads(config["data"]["job.json"])
    main = next(one for one in template["spec"]["containers"] if one["name"] == names.CONTAINER)
    variables = {one["name"]: one for one in main["env"]}
    ranks = json.loads(variables["FERMI_RANKS"]["value"].replace("$$(", "$("))
    node_rank, head = names.node_rank(template), gang.pod(0)
    secret = [name for name, one in variables.items() if "secretKeyRef" in (one.get("valueFrom") or {})]
    own: dict[str, Any] = next(one["env"] for one in ranks if one["rank"] == rank)
    return {
        "name": rendered.name,
        "env": {**job["env"], **own},
        "without": [*secret, *OWN_OF_RUNNER],
        "head": str((head or {}).get("status", {}).get("podIP") or job["head"]),
        "first": node_rank == 0,
        **({"cwd": job["cwd"]} if "cwd" in job else {}),
        **chosen(job),
    }


def _dial(
    client: Client, pod: Object, main: Object, order: Mapping[str, Any], handle: Handle, rank: int
) -> socket.socket:
    """Start the program and return its stream, within twice `DIAL_SECONDS`: the API server's answer, then the
    program's."""
    command = [main["command"][0], "-m", PROGRAM]
    try:
        name = pod["metadata"]["name"]
        running = Executing(in_time(DIAL_SECONDS, partial(client.execute, name, names.CONTAINER, command)))
    except TimeoutError:
        raise out_of_reach(handle, rank) from None
    except Refused as refused:
        if refused.status == 404:
            raise not_running(handle, rank) from refused
        if refused.status in (400, 500):
            raise out_of_reach(handle, rank, refused.message) from refused
        raise
    if answers(running.stream, DIAL_SECONDS):
        running.stream.sendall(protocol.line(order))
        return running.stream
    running.stream.close()
    raise out_of_reach(handle, rank, running.why())

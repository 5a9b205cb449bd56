"""Commands beside a rank in a pod: `fermi.envd.rank_exec`, started there through `pods/exec`, as the container's user.

A process that is executed in a container has the container's own variables, the task's secrets among them; the program
removes those before anything runs (`without`).
"""

import json
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fermi.engines.base import RankExec, build_rank_not_running_error, build_rank_unreachable_error
from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.channels import PodExecStream
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient, open_in_time
from fermi.engines.kubernetes.gang import Gang, Object, get_container_state, get_phase
from fermi.engines.kubernetes.render import RUNNER_VARIABLES
from fermi.engines.local.rank_exec import build_chosen_option
from fermi.engines.subprocess_stream import wait_until_ready
from fermi.envd import protocol
from fermi.jobs.spec import Handle, Rendered

DIAL_SECONDS = 8.0
EXEC_MODULE = "fermi.envd.rank_exec"


def find_rank_exec(client: KubernetesClient, rendered: Rendered, handle: Handle, rank: int) -> RankExec:
    """Return how commands are started beside a rank. Asks for the attempt's pods, and stores nothing: web processes
    watch no clusters. Raise BackendError."""
    template = _find_template(rendered, rank)
    if template is None:
        raise build_rank_not_running_error(handle, rank)
    node_rank, gang = names.get_node_rank(template), Gang(handle.name)
    query = {"labelSelector": names.build_selector(handle.name)}
    for found in client.request("GET", client.path("Pod"), query=query, timeout=DIAL_SECONDS)["items"]:
        gang.put("Pod", found)
    pod = gang.get_pods_by_node().get(node_rank)
    if pod is None or not _is_running(pod):
        raise build_rank_not_running_error(handle, rank)
    order = _build_order(rendered, template, gang, rank)
    return RankExec(node_rank, partial(_dial_rank, client, pod, template["spec"]["containers"][0], order, handle, rank))


def _is_running(pod: Object) -> bool:
    return (
        get_phase(pod) == "Running"
        and "running" in get_container_state(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def _find_template(rendered: Rendered, rank: int) -> Object | None:
    """Return the template of the pod that has the rank; None where there is none."""
    for spec in _iterate_job_specs(rendered):
        template: Object = spec["template"]
        if rank in names.get_ranks(template):
            return template
    return None


def _iterate_job_specs(rendered: Rendered) -> Iterator[Mapping[str, Any]]:
    for obj in (artifact.content for artifact in rendered.artifacts if artifact.kind in ("Job", "JobSet")):
        if obj["kind"] == "Job":
            yield obj["spec"]
        for one in obj["spec"]["replicatedJobs"] if obj["kind"] == "JobSet" else ():
            yield one["template"]["spec"]


def _build_order(rendered: Rendered, template: Object, gang: Gang, rank: int) -> dict[str, Any]:
    """Return the order that `fermi.envd.rank_exec` reads: what the runner adds to the container's own variables for
    this rank."""
    config = next(one.content for one in rendered.artifacts if one.kind == "ConfigMap")
    job = json.loads(config["data"]["job.json"])
    main = next(one for one in template["spec"]["containers"] if one["name"] == names.CONTAINER)
    variables = {one["name"]: one for one in main["env"]}
    ranks = json.loads(variables["FERMI_RANKS"]["value"].replace("$$(", "$("))
    node_rank, head = names.get_node_rank(template), gang.pod(0)
    secret = [name for name, one in variables.items() if "secretKeyRef" in (one.get("valueFrom") or {})]
    own: dict[str, Any] = next(one["env"] for one in ranks if one["rank"] == rank)
    return {
        "name": rendered.name,
        "env": {**job["env"], **own},
        "without": [*secret, *RUNNER_VARIABLES],
        "head": str((head or {}).get("status", {}).get("podIP") or job["head"]),
        "first": node_rank == 0,
        **({"cwd": job["cwd"]} if "cwd" in job else {}),
        **build_chosen_option(job),
    }


def _dial_rank(
    client: KubernetesClient, pod: Object, main: Object, order: Mapping[str, Any], handle: Handle, rank: int
) -> socket.socket:
    """Start the program and return its stream, within twice `DIAL_SECONDS`: the API server's answer, then the
    program's."""
    command = [main["command"][0], "-m", EXEC_MODULE]
    try:
        name = pod["metadata"]["name"]
        running = PodExecStream(open_in_time(DIAL_SECONDS, partial(client.execute, name, names.CONTAINER, command)))
    except TimeoutError:
        raise build_rank_unreachable_error(handle, rank) from None
    except KubernetesApiError as refused:
        if refused.status == 404:
            raise build_rank_not_running_error(handle, rank) from refused
        if refused.status in (400, 500):
            raise build_rank_unreachable_error(handle, rank, refused.message) from refused
        raise
    if wait_until_ready(running.stream, DIAL_SECONDS):
        running.stream.sendall(protocol.encode_line(order))
        return running.stream
    running.stream.close()
    raise build_rank_unreachable_error(handle, rank, running.why())

"""A plan as orders for workers. Pure.

Paths are the host's own, so they stay open: a word with a late value is a list of pieces, some of which only the agent
knows (`{"late": "files directory"}`), and logs are named relative to its state folder.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fermi.engines.agent.store import Order
from fermi.engines.fork_rules import may_fork
from fermi.engines.inside import render as inside
from fermi.engines.local.containers import WORK
from fermi.engines.watch_options import watched
from fermi.jobs import bounds
from fermi.jobs.code import Place
from fermi.jobs.spec import Artifact, JobSpec, Late, Node, NodePlan, Plan, Rendered, encode
from fermi.jobs.user_paths import HOMES


def render(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> Rendered:
    """Return the plan as one artifact per node and file; nodes inside of containers are orders for `fermi.inside`."""
    known = {Late.HEAD_HOST: plan.nodes[0].node.hostname}
    files = [Artifact("file", name, encode(text, known)) for name, text in plan.files.items()]
    common = {**watched(job), **bounds.order(connection, shared=True)}
    nodes = [
        _in_container(job, plan, node, connection)
        if node.node.inside and node.node.image
        else Artifact("node", f"node-{node.node_rank}", _node(job, plan, node, known, common, connection))
        for node in plan.nodes
    ]
    return Rendered(job.name, "agent", (*nodes, *files))


def orders(rendered: Rendered) -> list[Order]:
    """Return one order per worker: its rank of its node's spec, and the files of all."""
    files = {artifact.name: artifact.content for artifact in rendered.artifacts if artifact.kind == "file"}
    return [
        order
        for artifact in rendered.artifacts
        if artifact.kind == "node"
        for order in _orders(rendered.name, artifact.content, files)
    ]


def workers(node: Node) -> list[str]:
    """Return the workers of a node in rank order; of a node that agents do not describe, the ids that it would have."""
    return list(node.engine.get("workers") or (f"{node.name}-{number}" for number in range(node.processes)))


def _orders(name: str, node: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[Order]:
    for rank in node["ranks"]:
        spec = {**node, "ranks": [{key: value for key, value in rank.items() if key != "worker"}]}
        if rank["rank"] != 0:
            spec.pop("port", None)
        content = {"name": name, "spec": spec, "files": files}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        body = {**content, "digest": digest}
        yield Order(rank["worker"], rank["rank"], node["node_rank"], node["node"], digest, body)


def _node(
    job: JobSpec, plan: Plan, node: NodePlan, known: Mapping[Late, str], common: Mapping[str, Any],
    connection: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    fork = may_fork(job)
    env = {name: encode(value, known) for name, value in node.env.items()}
    if node.node.has_cuda:
        env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, _gpus(node.node))))
    return {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [encode(word, known) for word in node.command],
        "env": env,
        "ranks": [
            {
                "worker": worker,
                "rank": process.rank,
                "local_rank": process.local_rank,
                "env": {name: encode(value, known) for name, value in process.env.items()},
                "log": f"logs/{job.task_id}/{job.attempt}/{process.rank}.log",
            }
            for worker, process in zip(workers(node.node), node.processes, strict=False)  # a pre-flight has just one
        ],
        "stop_signal": plan.stop_signal,
        "grace_seconds": plan.grace_seconds,
        **common,
        "fork": fork,
        "home": f"{HOMES}/{job.project or 'default'}",
        **_inside(job, node.node),
        **Place(_data(connection), "packages", "").order(job, node.node_rank),
        "preload": list(plan.preload) if fork else [],
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }


def _in_container(job: JobSpec, plan: Plan, node: NodePlan, connection: Mapping[str, Any]) -> Artifact:
    """Return an order for `fermi.inside`. Its nodes wait for no others: the head is where its host is."""
    made = inside.artifact(job, plan, node, connection, root=_data(connection))
    more = {"environment": node.node.id, "head": plan.nodes[0].node.hostname, "success": plan.success}
    meeting = {**made.content["meeting"], "nodes": 1}
    return replace(made, content={**made.content, **more, "meeting": meeting,
                                  "spec": {**made.content["spec"], "start_in": WORK}})  # fmt: skip


def _inside(job: JobSpec, node: Node) -> dict[str, Any]:
    """Return the environment of its host that a node runs inside of, and the interpreter where the job names one.
    `paths`: the files that the script may be; where the environment has one, ranks start in its workspace."""
    named = {"python": job.python} if job.python else {}
    if not node.inside:
        return named
    own = job.entrypoint
    paths = own.paths if own and not job.brings(own.script) else ()
    return {"inside": {"environment": node.id, "project": job.project, "paths": list(paths)}, **named}


def _data(connection: Mapping[str, Any]) -> str:
    """Return the path at which hosts see the platform's data directory."""
    return str((connection.get("data") or {}).get("mountPath") or connection.get("data_dir") or "")


def _gpus(node: Node) -> list[int]:
    """Return the GPU indices by local rank, so that a script's `cuda:LOCAL_RANK` is the GPU of its worker."""
    return list(node.engine.get("gpus") or (int(worker.rpartition("-")[2]) for worker in workers(node)))

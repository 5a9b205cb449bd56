"""A plan as orders for workers. Pure.

Paths are the host's own, so they stay open: a word with a late value is a list of pieces, some of which only the agent
knows (`{"late": "files directory"}`), and logs are named relative to its state folder.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fermi.engines.agent.store import RankOrder
from fermi.engines.fork_rules import can_fork_ranks, explain_import
from fermi.engines.inside import render as inside
from fermi.engines.local.containers import WORKSPACE_DIR
from fermi.jobs import bounds
from fermi.jobs.code import CodeLocation
from fermi.jobs.ranks import parse_worker_name
from fermi.jobs.spec import Artifact, JobSpec, Late, Node, NodePlan, Plan, Rendered, encode_value
from fermi.jobs.user_paths import HOMES_FOLDER


def render(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> Rendered:
    """Return the plan as one artifact per node and file; nodes inside of containers are orders for `fermi.inside`."""
    known = {Late.HEAD_HOST: plan.nodes[0].node.hostname}
    files = [Artifact("file", name, encode_value(text, known)) for name, text in plan.files.items()]
    common = {**job.build_watch_options(), **bounds.build_bounds(connection, shared=True)}
    nodes = [
        _build_container_order(job, plan, node, connection)
        if node.node.inside and node.node.image
        else Artifact("node", f"node-{node.node_rank}", _build_node_spec(job, plan, node, known, common, connection))
        for node in plan.nodes
    ]
    return Rendered(job.name, "agent", (*nodes, *files))


def build_orders(rendered: Rendered) -> list[RankOrder]:
    """Return one order per worker: its rank of its node's spec, and the files of all."""
    files = {artifact.name: artifact.content for artifact in rendered.artifacts if artifact.kind == "file"}
    return [
        order
        for artifact in rendered.artifacts
        if artifact.kind == "node"
        for order in _build_node_orders(rendered.name, artifact.content, files)
    ]


def list_workers(node: Node) -> list[str]:
    """Return the workers of a node in rank order; of a node that agents do not describe, the ids that it would have."""
    return list(node.engine.get("workers") or (f"{node.name}-{number}" for number in range(node.processes)))


def _build_node_orders(name: str, node: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[RankOrder]:
    for rank in node["ranks"]:
        spec = {**node, "ranks": [{key: value for key, value in rank.items() if key != "worker"}]}
        if rank["rank"] != 0:
            spec.pop("port", None)
        content = {"name": name, "spec": spec, "files": files}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        body = {**content, "digest": digest}
        yield RankOrder(rank["worker"], rank["rank"], node["node_rank"], node["node"], digest, body)


def _build_node_spec(
    job: JobSpec, plan: Plan, node: NodePlan, bindings: Mapping[Late, str], common: Mapping[str, Any],
    connection: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    fork = can_fork_ranks(job)
    env = {name: encode_value(value, bindings) for name, value in node.env.items()}
    if node.node.has_cuda:
        env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, _list_gpus(node.node))))
    return {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [encode_value(word, bindings) for word in node.command],
        "env": env,
        "ranks": [
            {
                "worker": worker,
                "rank": process.rank,
                "local_rank": process.local_rank,
                "env": {name: encode_value(value, bindings) for name, value in process.env.items()},
                "log": f"logs/{job.task_id}/{job.attempt}/{process.rank}.log",
            }
            for worker, process in zip(
                list_workers(node.node), node.processes, strict=False
            )  # a pre-flight has just one
        ],
        "stop_signal": plan.stop_signal,
        "grace_seconds": plan.grace_seconds,
        **common,
        "own_files": True,
        "fork": fork,
        **({} if fork else {"imports": explain_import(job)}),
        "home": f"{HOMES_FOLDER}/{job.project or 'default'}",
        **_build_inside_options(job, node.node),
        **CodeLocation(_get_data_root(connection), "packages", "").order(job, node.node_rank),
        "preload": list(plan.preload) if fork else [],
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }


def _build_container_order(job: JobSpec, plan: Plan, node: NodePlan, connection: Mapping[str, Any]) -> Artifact:
    """Return an order for `fermi.inside`. Its nodes wait for no others: the head is where its host is."""
    made = inside.render_node(job, plan, node, connection, root=_get_data_root(connection))
    more = {"environment": node.node.id, "head": plan.nodes[0].node.hostname, "success": plan.success}
    meeting = {**made.content["meeting"], "nodes": 1}
    return replace(made, content={**made.content, **more, "meeting": meeting,
                                  "spec": {**made.content["spec"], "start_in": WORKSPACE_DIR}})  # fmt: skip


def _build_inside_options(job: JobSpec, node: Node) -> dict[str, Any]:
    """Return the environment of its host that a node runs inside of, and the interpreter where the job names one.
    `paths`: the files that the script may be; where the environment has one, ranks start in its workspace."""
    named = {"python": job.python} if job.python else {}
    if not node.inside:
        return named
    own = job.entrypoint
    paths = own.paths if own and not job.brings(own.script) else ()
    return {"inside": {"environment": node.id, "project": job.project, "paths": list(paths)}, **named}


def _get_data_root(connection: Mapping[str, Any]) -> str:
    """Return the path at which hosts see the platform's data directory."""
    return str((connection.get("data") or {}).get("mountPath") or connection.get("data_dir") or "")


def _list_gpus(node: Node) -> list[int]:
    """Return the GPU indices by local rank, so that a script's `cuda:LOCAL_RANK` is the GPU of its worker."""
    return list(node.engine.get("gpus") or (parse_worker_name(worker)[1] for worker in list_workers(node)))

"""A node of a plan as an order for `fermi.inside.node_runs`. Pure.

Nothing is known here of the folders inside: paths below the platform's data directory stay as the plan has them
(`root`), and become those of the environment there (`data`; empty: a folder of its user's home, and then `resume`, the
checkpoint that the job resumes from, and `reads`, paths below the data directory, are sent there).
"""

from collections.abc import Mapping
from typing import Any

from fermi.engines.fork_rules import can_fork_ranks, explain_import
from fermi.engines.inside.upload import list_parent_paths, list_read_paths
from fermi.jobs import bounds
from fermi.jobs.code import CodeLocation
from fermi.jobs.spec import PREFLIGHT, Artifact, JobSpec, NodePlan, Plan, encode_value

ARTIFACT_KIND = "inside"
"""Kind of the artifact."""
YIELD_OPTIONS = {"oom": 300, "nice": 5}
"""Out-of-memory score and niceness by which ranks give way to other processes of the environment: see
`fermi.runner.inside`."""
RENDEZVOUS_SECONDS = 20
"""Time for nodes to find each other that are started together and wait for no image."""


def render_node(
    job: JobSpec, plan: Plan, node: NodePlan, connection: Mapping[str, Any], *, root: str, data: str = "",
    patience: float | None = None,
) -> Artifact:  # fmt: skip
    """Return the order of a node. `root`: the data directory as the plan's paths have it; `data`: where the environment
    has it, if it has. Unless the job names an interpreter, the environment uses that of its notebook. `patience`:
    seconds for which it waits for the other nodes; None: as long as the runner does by itself."""
    spec = {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [encode_value(word, {}) for word in node.command],
        "env": {name: encode_value(value, {}) for name, value in node.env.items() if name not in job.secret_env},
        "ranks": [
            {
                "rank": process.rank,
                "local_rank": process.local_rank,
                "env": {name: encode_value(value, {}) for name, value in process.env.items()},
            }
            for process in node.processes
        ],
        "stop_signal": plan.stop_signal,
        "grace_seconds": plan.grace_seconds,
        "yields": YIELD_OPTIONS,
        "own_cwd": True,
        "own_files": True,
        "fork": can_fork_ranks(job),
        **({"imports": why} if (why := explain_import(job)) else {}),
        **job.build_watch_options(),
        **bounds.build_bounds(connection, shared=True),
        **bounds.build_memory_guard(connection),
        **CodeLocation(root, "", "").order(job, node.node_rank),
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }
    meeting: dict[str, Any] = {"nodes": len(plan.nodes), "port": plan.master_port}
    if job.framework == PREFLIGHT and all(one.node.inside for one in plan.nodes):
        meeting |= {"patience": RENDEZVOUS_SECONDS, "goes_on": True}
    reads = [] if data else [*list_read_paths(job, root)[0], *list_parent_paths(job, root)]
    sent = {} if data else {"resume": job.resume_from, "reads": reads}
    content: dict[str, Any] = {
        "name": job.name,
        "root": root,
        "data": data,
        **sent,
        "python": job.python,
        "meeting": meeting | ({"patience": patience} if patience else {}),
        "files": {name: encode_value(text, {}) for name, text in plan.files.items()},
        "spec": spec,
    }
    return Artifact(ARTIFACT_KIND, f"node-{node.node_rank}", content)

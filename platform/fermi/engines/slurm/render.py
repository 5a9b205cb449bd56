"""A plan as an sbatch script. Pure: the script is what the user previews, what tests compare, and what is sent (through
slurmrestd, which does not read `#SBATCH` lines, together with the same options as data)."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.engines import bundle, connection_options
from fermi.engines.inside.render import YIELDS
from fermi.engines.slurm import allocations, sandbox
from fermi.engines.slurm.components import CHOSEN, Component, components
from fermi.engines.watch_options import watched
from fermi.jobs import bounds
from fermi.jobs.code import Place
from fermi.jobs.spec import Artifact, JobSpec, Late, Node, NodePlan, Plan, Rendered, encode, is_open, resolve

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_OURS = 75
"""Exit code of a job that may not run: the attempt was cancelled, or another job of it was first."""


def render(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> Rendered:
    """Return the script, its options, and the specs of nodes. Nodes inside of environments are no part of the job that
    is submitted; without others there is none."""
    connection = connection_options.of(connection, job, CHOSEN)
    folder = folder_of(connection)
    run = f"{folder}/runs/{job.name}"
    outer = replace(plan, nodes=tuple(_placed(node) for node in plan.nodes if not node.node.inside))
    asked = components(job, outer, connection, f"{run}/slurm.log") if outer.nodes else []
    bindings = {Late.FILES_DIR: f"{run}/files"}
    submission = {"components": [dict(component.options) for component in asked], "folder": run}
    nodes = [
        Artifact("node", f"node-{node.node_rank}", _node(job, plan, node, bindings, folder, connection))
        for node in plan.nodes
    ]
    shown = {**bindings, Late.HEAD_HOST: _head_name(plan, asked), Late.PYTHON: "python3"}
    files = [Artifact("file", name, resolve(text, shown)) for name, text in plan.files.items()]
    submitted = (
        Artifact("script", "job.sh", script(job, outer, connection, asked, run)),
        Artifact("submission", "submission", submission),
    )
    order = Artifact("order", "order", _order(job, plan, asked, bindings, connection))
    return Rendered(job.name, "slurm", (*(submitted if asked else ()), order, *nodes, *files))


def _placed(plan: NodePlan) -> NodePlan:
    """Return a node beside its environment's allocation, bound to the same machine."""
    node = plan.node
    if not allocations.is_environment(node) or node.engine.get("node") or not node.host:
        return plan
    return replace(plan, node=replace(node, engine={**node.engine, "node": node.host}))


def files(rendered: Rendered) -> dict[str, str | dict[str, Any]]:
    """Return all that has to lie in the attempt's folder before its job starts: path -> text, or what is written as
    JSON."""
    found: dict[str, str | dict[str, Any]] = {}
    for artifact in rendered.artifacts:
        if artifact.kind == "file":
            found[f"files/{artifact.name}"] = artifact.content
        elif artifact.kind == "script":
            found[artifact.name] = artifact.content
        elif artifact.kind in ("order", "node"):
            found[f"{artifact.name}.json"] = artifact.content
    trainers = found["order.json"]["trainers"]  # type: ignore[index]
    return {**bundle.modules(bundle.SLURM, trainers), **found}


def folder_of(connection: Mapping[str, Any]) -> str:
    """Return the platform's data directory as the nodes see it."""
    return str(connection.get("folder") or connection.get("data_dir") or "/shared/fermi").rstrip("/")


def _order(
    job: JobSpec, plan: Plan, asked: list[Component], bindings: Mapping[Late, str], connection: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what every node's runner reads. `hosts`: which Slurm node is which node of the plan; None = as Slurm
    counts them. `beside`: for each node, options of srun and a shell command (see `rank_exec.py`). `files`: those that
    the head node writes anew, because they name its address."""
    hosts = [host for component in asked for host in (component.hosts or [None] * len(component.nodes))]
    return {
        "name": job.name,
        "nodes": len(plan.nodes),
        "names": [node.node.name for node in plan.nodes],
        "hosts": hosts,
        **_of_inside(job, plan, connection),
        "port": plan.master_port,
        "files": {name: encode(text, bindings) for name, text in plan.files.items() if is_open(text, bindings)},
        "beside": [_beside(node, asked, connection) for node in plan.nodes],
        **({"secrets": sorted(job.secret_env)} if job.secret_env else {}),
        "trainers": sorted(set(bundle.trainers(word for node in plan.nodes for word in node.command))),
    }


def _beside(node: NodePlan, asked: list[Component], connection: Mapping[str, Any]) -> tuple[list[str], str]:
    if node.node.inside:
        return [], f"{quoted(interpreter(node.node, connection))} -m {_BESIDE}"
    component = next(one for one in asked if node.node_rank in (member.node_rank for member in one.nodes))
    return _command(component, connection, _BESIDE)


def _of_inside(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return nodes inside, by node rank, as `allocations.build_order` has them; and the ranks of
    the others, in the order of `hosts`."""
    run = f"{folder_of(connection)}/runs/{job.name}"
    inner = {
        str(node.node_rank): allocations.order(node.node, job.python, _shell(job, node, connection, run))
        for node in plan.nodes
        if node.node.inside
    }
    return {"inside": inner, "ranks": [n.node_rank for n in plan.nodes if not n.node.inside]} if inner else {}


def _shell(job: JobSpec, node: NodePlan, connection: Mapping[str, Any], run: str) -> list[str]:
    """Return the command of the step of a node inside."""
    runner = f"exec {quoted(interpreter(node.node, connection))} -m {_RUNNER} {node.node_rank}"
    lines = [f"run={quoted(run)}", 'cd "$run" || exit 1', *environment(connection), _folders(job, connection), runner]
    return ["bash", *(["-l"] if needs_login(connection) else []), "-c", "\n".join(lines)]


def interpreter(node: Node, connection: Mapping[str, Any]) -> str:
    """Return the interpreter of our own programs on a node; ranks may have another one."""
    return str(node.engine.get("python") or connection.get("python") or "python3")


def _node(
    job: JobSpec, plan: Plan, node: NodePlan, bindings: Mapping[Late, str], folder: str, connection: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a node runner's spec in which the head's address and the interpreter are still open."""
    if node.node.inside:  # an environment's allocation is no container
        connection = {**connection, "container": None}
    packages = f"{folder}/packages/{job.project}/{node.node.hostname}"
    at = Place(folder, packages, f"{folder}/runs/{job.name}")
    disk = allocations.disk_of(node.node, folder) if node.node.inside else ""
    home = {"HOME": f"{disk}/home"} if disk and not sandbox.is_confined(connection) else {}
    workspace = f"{disk}/workspace" if disk else workspace_of(connection)
    return {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [encode(word, bindings) for word in node.command],
        "cwd": workspace,
        "env": {**home, **{name: encode(value, bindings) for name, value in node.env.items()}},
        "ranks": [
            {
                "rank": process.rank,
                "local_rank": process.local_rank,
                "env": {name: encode(value, bindings) for name, value in process.env.items()},
                "log": f"{folder}/logs/{job.task_id}/{job.attempt}/{process.rank}.log",
            }
            for process in node.processes
        ],
        "stop_signal": plan.stop_signal,
        "grace_seconds": plan.grace_seconds,
        **watched(job),
        **bounds.order(connection, shared=False),
        **at.order(job, node.node_rank),
        **sandbox.confine_rank(job, node, at, folder, workspace, connection, disk),
        **({"yields": YIELDS, **bounds.guard(connection)} if node.node.inside else {}),
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }


def _head_name(plan: Plan, asked: list[Component]) -> str:
    """Return the head's name, as far as it is known before the job runs."""
    first = plan.nodes[0].node
    return asked[0].hosts[0] if asked and asked[0].hosts and not first.inside else first.hostname


# The script --------------------------------------------------------------------------------------------------------


def script(job: JobSpec, plan: Plan, connection: Mapping[str, Any], asked: list[Component], run: str) -> str:
    """Return the text of the batch script."""
    login = needs_login(connection)
    gpus = sum(len(node.processes) for node in plan.nodes)
    return "\n".join(
        [
            "#!/bin/bash -l" if login else "#!/bin/bash",
            *"\n#SBATCH hetjob\n".join("\n".join(_sbatch(component)) for component in asked).split("\n"),
            f"# {len(plan.nodes)} nodes, {gpus} ranks. Each task of srun is a node, which starts its ranks:",
            *(f"#   {_ranks(node)} on {_line(node.node.name)}" for node in plan.nodes),
            f"run={quoted(run)}",
            'cd "$run" || exit 1',
            "# Once, and never after it was cancelled: whatever was submitted twice or queued again.",
            'if [ -e stop.json ] || [ -n "${SLURM_RESTART_COUNT:-}" ] || ! ln -s "$SLURM_JOB_ID" begun; then',
            f"  exit {NOT_OURS}",
            "fi",
            *environment(connection),
            *_head(asked, job),
            _folders(job, connection),
            _srun(asked, connection),
            "code=$?",
            """printf '{"exit_code": %d, "job": "%s"}\\n' "$code" "$SLURM_JOB_ID" > end.tmp && mv end.tmp end.json""",
            'exit "$code"',
            "",
        ]
    )


def needs_login(connection: Mapping[str, Any]) -> bool:
    """Return whether a login shell is needed: profiles define `module`, and find conda."""
    return bool(connection.get("modules") or connection.get("conda"))


def _sbatch(component: Component) -> list[str]:
    return [
        f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={quoted(value)}"
        for key, value in component.options.items()
    ]


def variables(user: str) -> dict[str, str]:
    """Return the variables of a new job or step: nothing of the platform's host."""
    return {"PATH": PATH, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8"}


def environment(connection: Mapping[str, Any]) -> list[str]:
    """Return the shell lines that load the training stack, and our modules, which lie in `run`."""
    path = 'export PYTHONPATH="$run${PYTHONPATH:+:$PYTHONPATH}"'
    return [*setup(connection), path, "export PYTHONUNBUFFERED=1"]


def setup(connection: Mapping[str, Any]) -> list[str]:
    """Return the shell lines that load the training stack on a node."""
    lines = [
        'if [ -z "${HOME:-}" ]; then HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"; export HOME; fi',
    ]
    if modules := connection.get("modules"):
        lines.append("module load " + " ".join(quoted(name) for name in modules))
    if conda := connection.get("conda"):
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {quoted(conda)}"]
    return [*lines, *(str(line) for line in connection.get("setup") or ())]


def _head(asked: list[Component], job: JobSpec) -> list[str]:
    """Return the shell lines that find where rank 0 runs: the first host of the first component, at the address by
    which Slurm reaches it. Of a job with nodes inside of environments, all read it in the folder."""
    if job.head.inside:
        return ['FERMI_HEAD="$(cat head)"; export FERMI_HEAD']
    if asked[0].hosts:
        first = f"head={quoted(asked[0].hosts[0])}"
    else:
        first = 'head="$(scontrol show hostnames "${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}" | head -n 1)"'
    told = ['printf "%s" "$FERMI_HEAD" > head.tmp && mv head.tmp head']
    return [
        first,
        """address="$(scontrol show node "$head" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\"""",
        'export FERMI_HEAD="${address:-$head}"',
        *(told if any(node.inside for node in job.nodes) else ()),
    ]


def _srun(asked: list[Component], connection: Mapping[str, Any]) -> str:
    """Return the srun command. One step; its tasks are the nodes, in the plan's order. A node that ends does not end
    the others: the platform does, which gives them time."""
    parts = []
    for number, component in enumerate(asked):
        count = len(component.nodes)
        words = [f"--het-group={number}"] if len(asked) > 1 else []
        words += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--cpus-per-task={component.cpus}"]
        if component.hosts:  # counts tasks in this order and not in Slurm's own
            words += ["--distribution=arbitrary", f"--nodelist={quoted(','.join(component.hosts))}"]
        ending = ["--kill-on-bad-exit=0", "--wait=0", "--input=none", "--mpi=none", "--export=ALL"]
        own, command = _command(component, connection, _RUNNER)
        lines = [" ".join(words), " ".join(ending), " ".join([*map(_option, own), command])]
        parts.append(" \\\n    ".join(lines))
    return "srun " + " : \\\n  ".join(parts)


def _command(component: Component, connection: Mapping[str, Any], words: str) -> tuple[list[str], str]:
    """Return options of srun, and a shell command that runs a module of ours as ranks are run."""
    command = f"{quoted(component.python)} -m {words}"
    container = connection.get("container")
    if not container:
        return [], command
    mounts = [folder_of(connection), *container.get("mounts", ())]
    if container["runtime"] == "pyxis":
        binds = ",".join(mount if ":" in mount else f"{mount}:{mount}" for mount in mounts)
        return [f"--container-image={_line(component.image)}", f"--container-mounts={_line(binds)}"], command
    gpus = ["--nv"] if component.nodes[0].node.has_cuda else []
    binds = " ".join(f"--bind={quoted(mount)}" for mount in mounts)
    return [], " ".join(["apptainer exec", *gpus, binds, quoted(component.image), command])


_RUNNER, _BESIDE = 'fermi.runner.slurm "$run"', bundle.BESIDE


def _option(option: str) -> str:
    name, _, value = option.partition("=")
    return f"{name}={quoted(value)}"


def workspace_of(connection: Mapping[str, Any]) -> str:
    """Return the folder of relative scripts, as the nodes see it."""
    return str(connection.get("workspace") or f"{folder_of(connection)}/workspace")


def _folders(job: JobSpec, connection: Mapping[str, Any]) -> str:
    return f"mkdir -p -- {quoted(workspace_of(connection))} {quoted(_logs(job, connection))}"


def _logs(job: JobSpec, connection: Mapping[str, Any]) -> str:
    return f"{folder_of(connection)}/logs/{job.task_id}/{job.attempt}"


def quoted(value: object) -> str:
    """Return a value as a word of the shell and of an `#SBATCH` line, which ends at the line's end."""
    return shlex.quote(_line(value))


def _line(value: object) -> str:
    return " ".join(str(value).splitlines())


def _ranks(node: NodePlan) -> str:
    first, last = node.processes[0].rank, node.processes[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"

"""A plan as an sbatch script. Pure: the script is what the user previews, what tests compare, and what is sent (through
slurmrestd, which does not read `#SBATCH` lines, together with the same options as data)."""

import shlex
from collections.abc import Mapping
from typing import Any

from fermi.launch import bounds, shipped
from fermi.launch.backends import chosen
from fermi.launch.backends.slurm import confinement
from fermi.launch.backends.slurm.components import CHOSEN, Component, components
from fermi.launch.backends.watched import watched
from fermi.launch.code import Place
from fermi.launch.spec import Artifact, JobSpec, Late, NodePlan, Plan, Rendered, encode, is_open, resolve

NOT_OURS = 75
"""What a job ends with that may not run: the attempt was cancelled, or another job of it was first."""


def render(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> Rendered:
    connection = chosen.of(connection, job, CHOSEN)
    folder = folder_of(connection)
    run = f"{folder}/runs/{job.name}"
    asked = components(job, plan, connection, f"{run}/slurm.log")
    bindings = {Late.FILES_DIR: f"{run}/files"}
    submission = {"components": [dict(component.options) for component in asked], "folder": run}
    nodes = [
        Artifact("node", f"node-{node.node_rank}", _node(job, plan, node, bindings, folder, connection))
        for node in plan.nodes
    ]
    shown = {**bindings, Late.HEAD_HOST: _head_name(plan, asked), Late.PYTHON: "python3"}
    files = [Artifact("file", name, resolve(text, shown)) for name, text in plan.files.items()]
    return Rendered(
        job.name,
        "slurm",
        (
            Artifact("script", "job.sh", script(job, plan, connection, asked, run)),
            Artifact("submission", "submission", submission),
            Artifact("order", "order", _order(job, plan, asked, bindings, connection)),
            *nodes,
            *files,
        ),
    )


def files(rendered: Rendered) -> dict[str, str | dict[str, Any]]:
    """All that has to lie in the attempt's folder before its job begins: path -> text, or what is written as JSON."""
    found: dict[str, str | dict[str, Any]] = {}
    for artifact in rendered.artifacts:
        if artifact.kind == "file":
            found[f"files/{artifact.name}"] = artifact.content
        elif artifact.kind == "script":
            found[artifact.name] = artifact.content
        elif artifact.kind in ("order", "node"):
            found[f"{artifact.name}.json"] = artifact.content
    trainers = found["order.json"]["trainers"]  # type: ignore[index]
    return {**shipped.modules(shipped.SLURM, trainers), **found}


def folder_of(connection: Mapping[str, Any]) -> str:
    """The platform's data directory as the nodes see it."""
    return str(connection.get("folder") or connection.get("data_dir") or "/shared/fermi").rstrip("/")


def _order(
    job: JobSpec, plan: Plan, asked: list[Component], bindings: Mapping[Late, str], connection: Mapping[str, Any]
) -> dict[str, Any]:
    """What every node's runner reads. `hosts`: which Slurm node is which node of the plan; None = as Slurm counts
    them. `beside`: for each node, options of srun and a line of the shell (see `beside.py`). `files`: those
    that the head node writes anew, because they say where it is."""
    hosts = [host for component in asked for host in (component.hosts or [None] * len(component.nodes))]
    return {
        "name": job.name,
        "nodes": len(plan.nodes),
        "names": [node.node.name for node in plan.nodes],
        "hosts": hosts,
        "port": plan.master_port,
        "files": {name: encode(text, bindings) for name, text in plan.files.items() if is_open(text, bindings)},
        "beside": [_command(component, connection, _BESIDE) for component in asked for _ in component.nodes],
        **({"secrets": sorted(job.secret_env)} if job.secret_env else {}),
        "trainers": sorted(set(shipped.trainers(word for node in plan.nodes for word in node.command))),
    }


def _node(
    job: JobSpec, plan: Plan, node: NodePlan, bindings: Mapping[Late, str], folder: str, connection: Mapping[str, Any]
) -> dict[str, Any]:
    """A node runner's spec in which the head's address and the interpreter are still open."""
    packages = f"{folder}/packages/{job.project}/{node.node.hostname}"
    at = Place(folder, packages, f"{folder}/runs/{job.name}")
    return {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [encode(word, bindings) for word in node.command],
        "cwd": workspace_of(connection),
        "env": {name: encode(value, bindings) for name, value in node.env.items()},
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
        **confinement.confine_rank(job, node, at, folder, workspace_of(connection), connection),
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }


def _head_name(plan: Plan, asked: list[Component]) -> str:
    """As well as it is known before the job runs."""
    return asked[0].hosts[0] if asked[0].hosts else plan.nodes[0].node.hostname


# The script --------------------------------------------------------------------------------------------------------


def script(job: JobSpec, plan: Plan, connection: Mapping[str, Any], asked: list[Component], run: str) -> str:
    login = bool(connection.get("modules") or connection.get("conda"))  # profiles define `module` and find conda
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
            *_head(asked),
            f"mkdir -p -- {quoted(workspace_of(connection))} {quoted(_logs(job, connection))}",
            _srun(asked, connection),
            "code=$?",
            """printf '{"exit_code": %d, "job": "%s"}\\n' "$code" "$SLURM_JOB_ID" > end.tmp && mv end.tmp end.json""",
            'exit "$code"',
            "",
        ]
    )


def _sbatch(component: Component) -> list[str]:
    return [
        f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={quoted(value)}"
        for key, value in component.options.items()
    ]


def environment(connection: Mapping[str, Any]) -> list[str]:
    lines = [
        'if [ -z "${HOME:-}" ]; then HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"; export HOME; fi',
    ]
    if modules := connection.get("modules"):
        lines.append("module load " + " ".join(quoted(name) for name in modules))
    if conda := connection.get("conda"):
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {quoted(conda)}"]
    lines += [str(line) for line in connection.get("setup") or ()]
    return [*lines, 'export PYTHONPATH="$run${PYTHONPATH:+:$PYTHONPATH}"', "export PYTHONUNBUFFERED=1"]


def _head(asked: list[Component]) -> list[str]:
    """Where rank 0 runs: the first host of the first component, at the address by which Slurm reaches it."""
    if asked[0].hosts:
        first = f"head={quoted(asked[0].hosts[0])}"
    else:
        first = 'head="$(scontrol show hostnames "${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}" | head -n 1)"'
    return [
        first,
        """address="$(scontrol show node "$head" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\"""",
        'export FERMI_HEAD="${address:-$head}"',
    ]


def _srun(asked: list[Component], connection: Mapping[str, Any]) -> str:
    """One step; its tasks are the nodes, in the plan's order. A node that ends does not end the others: that is the
    platform's business, which gives them time."""
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
    """Options of srun, and a line of the shell with which a module of ours is run as ranks are."""
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


_RUNNER, _BESIDE = 'fermi.runner.slurm "$run"', shipped.BESIDE


def _option(option: str) -> str:
    name, _, value = option.partition("=")
    return f"{name}={quoted(value)}"


def workspace_of(connection: Mapping[str, Any]) -> str:
    return str(connection.get("workspace") or f"{folder_of(connection)}/workspace")


def _logs(job: JobSpec, connection: Mapping[str, Any]) -> str:
    return f"{folder_of(connection)}/logs/{job.task_id}/{job.attempt}"


def quoted(value: object) -> str:
    """Safe as a word of the shell and of an `#SBATCH` line, which ends at the line's end."""
    return shlex.quote(_line(value))


def _line(value: object) -> str:
    return " ".join(str(value).splitlines())


def _ranks(node: NodePlan) -> str:
    first, last = node.processes[0].rank, node.processes[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


__all__ = ["NOT_OURS", "environment", "files", "folder_of", "quoted", "render", "script", "workspace_of"]

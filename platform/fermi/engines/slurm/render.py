"""A plan as an sbatch script. Pure: the script is what the user previews, what tests compare, and what is sent (through
slurmrestd, which does not read `#SBATCH` lines, together with the same options as data)."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.engines import bundle, connection_options
from fermi.engines.inside.render import YIELD_OPTIONS
from fermi.engines.slurm import allocations, sandbox
from fermi.engines.slurm.components import VARIABLE_OPTIONS, JobComponent, build_components
from fermi.jobs import bounds
from fermi.jobs.code import CodeLocation
from fermi.jobs.spec import (
    Artifact,
    JobSpec,
    Late,
    Node,
    NodePlan,
    Plan,
    Rendered,
    encode_value,
    has_unknown_values,
    resolve,
)
from fermi.runner.caches import NODE_CACHE_VARIABLE

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_OURS_EXIT_CODE = 75
"""Exit code of a job that may not run: the attempt was cancelled, or another job of it was first."""


def render(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> Rendered:
    """Return the script, its options, and the specs of nodes. Nodes inside of environments are no part of the job that
    is submitted; without others there is none."""
    connection = connection_options.resolve_options(connection, job, VARIABLE_OPTIONS)
    folder = get_data_root(connection)
    run = f"{folder}/runs/{job.name}"
    outer = replace(plan, nodes=tuple(_pin_node(node) for node in plan.nodes if not node.node.inside))
    asked = build_components(job, outer, connection, f"{run}/slurm.log") if outer.nodes else []
    bindings = {Late.FILES_DIR: f"{run}/files"}
    submission = {"components": [dict(component.options) for component in asked], "folder": run}
    nodes = [
        Artifact("node", f"node-{node.node_rank}", _build_node_spec(job, plan, node, bindings, folder, connection))
        for node in plan.nodes
    ]
    shown = {**bindings, Late.HEAD_HOST: _find_head_name(plan, asked), Late.PYTHON: "python3"}
    files = [Artifact("file", name, resolve(text, shown)) for name, text in plan.files.items()]
    submitted = (
        Artifact("script", "job.sh", render_script(job, outer, connection, asked, run)),
        Artifact("submission", "submission", submission),
    )
    order = Artifact("order", "order", _build_order(job, plan, asked, bindings, connection))
    return Rendered(job.name, "slurm", (*(submitted if asked else ()), order, *nodes, *files))


def _pin_node(plan: NodePlan) -> NodePlan:
    """Return a node beside its environment's allocation, bound to the same machine."""
    node = plan.node
    if not allocations.is_environment(node) or node.engine.get("node") or not node.host:
        return plan
    return replace(plan, node=replace(node, engine={**node.engine, "node": node.host}))


def build_files(rendered: Rendered) -> dict[str, str | dict[str, Any]]:
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
    return {**bundle.collect_modules(bundle.SLURM_MODULES, trainers), **found}


def get_data_root(connection: Mapping[str, Any]) -> str:
    """Return the platform's data directory as the nodes see it."""
    return str(connection.get("folder") or connection.get("data_dir") or "/shared/fermi").rstrip("/")


def _build_order(
    job: JobSpec,
    plan: Plan,
    components: list[JobComponent],
    bindings: Mapping[Late, str],
    connection: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what every node's runner reads. `hosts`: which Slurm node is which node of the plan; None = as Slurm
    counts them. `beside`: for each node, options of srun and a shell command (see `rank_exec.py`). `files`: those that
    the head node writes anew, because they name its address."""
    hosts = [host for component in components for host in (component.hosts or [None] * len(component.nodes))]
    return {
        "name": job.name,
        "nodes": len(plan.nodes),
        "names": [node.node.name for node in plan.nodes],
        "hosts": hosts,
        **_build_inside_orders(job, plan, connection),
        "port": plan.master_port,
        "files": {
            name: encode_value(text, bindings)
            for name, text in plan.files.items()
            if has_unknown_values(text, bindings)
        },
        "beside": [_build_exec_command(node, components, connection) for node in plan.nodes],
        **({"secrets": sorted(job.secret_env)} if job.secret_env else {}),
        "trainers": sorted(set(bundle.list_trainers(word for node in plan.nodes for word in node.command))),
    }


def _build_exec_command(
    node: NodePlan, components: list[JobComponent], connection: Mapping[str, Any]
) -> tuple[list[str], str]:
    if node.node.inside:
        return [], f"{quote_word(get_interpreter(node.node, connection))} -m {_EXEC_MODULE}"
    component = next(one for one in components if node.node_rank in (member.node_rank for member in one.nodes))
    return _build_command(component, connection, _EXEC_MODULE)


def _build_inside_orders(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return nodes inside, by node rank, as `allocations.build_order` has them; and the ranks of
    the others, in the order of `hosts`."""
    run = f"{get_data_root(connection)}/runs/{job.name}"
    inner = {
        str(node.node_rank): allocations.build_order(
            node.node, job.python, _build_step_command(job, node, connection, run)
        )
        for node in plan.nodes
        if node.node.inside
    }
    return {"inside": inner, "ranks": [n.node_rank for n in plan.nodes if not n.node.inside]} if inner else {}


def _build_step_command(job: JobSpec, node: NodePlan, connection: Mapping[str, Any], run: str) -> list[str]:
    """Return the command of the step of a node inside."""
    runner = f"exec {quote_word(get_interpreter(node.node, connection))} -m {_RUNNER_ARGS} {node.node_rank}"
    lines = [
        f"run={quote_word(run)}",
        'cd "$run" || exit 1',
        *build_environment_lines(connection),
        _build_mkdir_line(job, connection),
        runner,
    ]
    return ["bash", *(["-l"] if needs_login(connection) else []), "-c", "\n".join(lines)]


def get_interpreter(node: Node, connection: Mapping[str, Any]) -> str:
    """Return the interpreter of our own programs on a node; ranks may have another one."""
    return str(node.engine.get("python") or connection.get("python") or "python3")


def _build_node_spec(
    job: JobSpec, plan: Plan, node: NodePlan, bindings: Mapping[Late, str], folder: str, connection: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a node runner's spec in which the head's address and the interpreter are still open."""
    if node.node.inside:  # an environment's allocation is no container
        connection = {**connection, "container": None}
    packages = f"{folder}/packages/{job.project}/{node.node.hostname}"
    at = CodeLocation(folder, packages, f"{folder}/runs/{job.name}")
    disk = allocations.build_disk_path(node.node, folder) if node.node.inside else ""
    node_cache = sandbox.get_node_cache(job, connection)
    home = {"HOME": f"{disk}/home"} if disk and not sandbox.is_confined(connection) else {}
    workspace = f"{disk}/workspace" if disk else get_workspace(connection)
    return {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [encode_value(word, bindings) for word in node.command],
        "cwd": workspace,
        "env": {
            **home,
            **{name: encode_value(value, bindings) for name, value in node.env.items()},
            **({NODE_CACHE_VARIABLE: node_cache} if node_cache else {}),
        },
        "ranks": [
            {
                "rank": process.rank,
                "local_rank": process.local_rank,
                "env": {name: encode_value(value, bindings) for name, value in process.env.items()},
                "log": f"{folder}/logs/{job.task_id}/{job.attempt}/{process.rank}.log",
            }
            for process in node.processes
        ],
        "stop_signal": plan.stop_signal,
        "grace_seconds": plan.grace_seconds,
        **job.build_watch_options(),
        **bounds.build_bounds(connection, shared=False),
        **at.order(job, node.node_rank),
        **sandbox.confine_rank(job, node, at, folder, workspace, connection, disk),
        **({"yields": YIELD_OPTIONS, **bounds.build_memory_guard(connection)} if node.node.inside else {}),
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }


def _find_head_name(plan: Plan, components: list[JobComponent]) -> str:
    """Return the head's name, as far as it is known before the job runs."""
    first = plan.nodes[0].node
    return components[0].hosts[0] if components and components[0].hosts and not first.inside else first.hostname


# The script --------------------------------------------------------------------------------------------------------


def render_script(
    job: JobSpec, plan: Plan, connection: Mapping[str, Any], components: list[JobComponent], run: str
) -> str:
    """Return the text of the batch script."""
    login = needs_login(connection)
    gpus = sum(len(node.processes) for node in plan.nodes)
    return "\n".join(
        [
            "#!/bin/bash -l" if login else "#!/bin/bash",
            *"\n#SBATCH hetjob\n".join("\n".join(_build_sbatch_lines(component)) for component in components).split(
                "\n"
            ),
            f"# {len(plan.nodes)} nodes, {gpus} ranks. Each task of srun is a node, which starts its ranks:",
            *(f"#   {node.format_ranks()} on {_join_lines(node.node.name)}" for node in plan.nodes),
            f"run={quote_word(run)}",
            'cd "$run" || exit 1',
            "# Once, and never after it was cancelled: whatever was submitted twice or queued again.",
            'if [ -e stop.json ] || [ -n "${SLURM_RESTART_COUNT:-}" ] || ! ln -s "$SLURM_JOB_ID" begun; then',
            f"  exit {NOT_OURS_EXIT_CODE}",
            "fi",
            *build_environment_lines(connection),
            *_build_head_lines(components, job),
            _build_mkdir_line(job, connection),
            _build_srun_line(components, connection),
            "code=$?",
            """printf '{"exit_code": %d, "job": "%s"}\\n' "$code" "$SLURM_JOB_ID" > end.tmp && mv end.tmp end.json""",
            'exit "$code"',
            "",
        ]
    )


def needs_login(connection: Mapping[str, Any]) -> bool:
    """Return whether a login shell is needed: profiles define `module`, and find conda."""
    return bool(connection.get("modules") or connection.get("conda"))


def _build_sbatch_lines(component: JobComponent) -> list[str]:
    return [
        f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={quote_word(value)}"
        for key, value in component.options.items()
    ]


def build_variables(user: str) -> dict[str, str]:
    """Return the variables of a new job or step: nothing of the platform's host."""
    return {"PATH": DEFAULT_PATH, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8"}


def build_environment_lines(connection: Mapping[str, Any]) -> list[str]:
    """Return the shell lines that load the training stack, and our modules, which lie in `run`."""
    path = 'export PYTHONPATH="$run${PYTHONPATH:+:$PYTHONPATH}"'
    return [*build_setup_lines(connection), path, "export PYTHONUNBUFFERED=1"]


def build_setup_lines(connection: Mapping[str, Any]) -> list[str]:
    """Return the shell lines that load the training stack on a node."""
    lines = [
        'if [ -z "${HOME:-}" ]; then HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"; export HOME; fi',
    ]
    if modules := connection.get("modules"):
        lines.append("module load " + " ".join(quote_word(name) for name in modules))
    if conda := connection.get("conda"):
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {quote_word(conda)}"]
    return [*lines, *(str(line) for line in connection.get("setup") or ())]


def _build_head_lines(components: list[JobComponent], job: JobSpec) -> list[str]:
    """Return the shell lines that find where rank 0 runs: the first host of the first component, at the address by
    which Slurm reaches it. Of a job with nodes inside of environments, all read it in the folder."""
    if job.head.inside:
        return ['FERMI_HEAD="$(cat head)"; export FERMI_HEAD']
    if components[0].hosts:
        first = f"head={quote_word(components[0].hosts[0])}"
    else:
        first = 'head="$(scontrol show hostnames "${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}" | head -n 1)"'
    told = ['printf "%s" "$FERMI_HEAD" > head.tmp && mv head.tmp head']
    return [
        first,
        """address="$(scontrol show node "$head" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\"""",
        'export FERMI_HEAD="${address:-$head}"',
        *(told if any(node.inside for node in job.nodes) else ()),
    ]


def _build_srun_line(components: list[JobComponent], connection: Mapping[str, Any]) -> str:
    """Return the srun command. One step; its tasks are the nodes, in the plan's order. A node that ends does not end
    the others: the platform does, which gives them time."""
    parts = []
    for number, component in enumerate(components):
        count = len(component.nodes)
        words = [f"--het-group={number}"] if len(components) > 1 else []
        words += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--cpus-per-task={component.cpus}"]
        if component.hosts:  # counts tasks in this order and not in Slurm's own
            words += ["--distribution=arbitrary", f"--nodelist={quote_word(','.join(component.hosts))}"]
        ending = ["--kill-on-bad-exit=0", "--wait=0", "--input=none", "--mpi=none", "--export=ALL"]
        own, command = _build_command(component, connection, _RUNNER_ARGS)
        lines = [" ".join(words), " ".join(ending), " ".join([*map(_quote_option, own), command])]
        parts.append(" \\\n    ".join(lines))
    return "srun " + " : \\\n  ".join(parts)


def _build_command(component: JobComponent, connection: Mapping[str, Any], words: str) -> tuple[list[str], str]:
    """Return options of srun, and a shell command that runs a module of ours as ranks are run."""
    command = f"{quote_word(component.python)} -m {words}"
    container = connection.get("container")
    if not container:
        return [], command
    mounts = [get_data_root(connection), *container.get("mounts", ())]
    if container["runtime"] == "pyxis":
        binds = ",".join(mount if ":" in mount else f"{mount}:{mount}" for mount in mounts)
        return [
            f"--container-image={_join_lines(component.image)}",
            f"--container-mounts={_join_lines(binds)}",
        ], command
    gpus = ["--nv"] if component.nodes[0].node.has_cuda else []
    binds = " ".join(f"--bind={quote_word(mount)}" for mount in mounts)
    return [], " ".join(["apptainer exec", *gpus, binds, quote_word(component.image), command])


_RUNNER_ARGS, _EXEC_MODULE = 'fermi.runner.slurm "$run"', bundle.RANK_EXEC_MODULE


def _quote_option(option: str) -> str:
    name, _, value = option.partition("=")
    return f"{name}={quote_word(value)}"


def get_workspace(connection: Mapping[str, Any]) -> str:
    """Return the folder of relative scripts, as the nodes see it."""
    return str(connection.get("workspace") or f"{get_data_root(connection)}/workspace")


def _build_mkdir_line(job: JobSpec, connection: Mapping[str, Any]) -> str:
    return f"mkdir -p -- {quote_word(get_workspace(connection))} {quote_word(_build_log_folder(job, connection))}"


def _build_log_folder(job: JobSpec, connection: Mapping[str, Any]) -> str:
    return f"{get_data_root(connection)}/logs/{job.task_id}/{job.attempt}"


def quote_word(value: object) -> str:
    """Return a value as a word of the shell and of an `#SBATCH` line, which ends at the line's end."""
    return shlex.quote(_join_lines(value))


def _join_lines(value: object) -> str:
    return " ".join(str(value).splitlines())

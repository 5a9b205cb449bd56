"""Parts that the start scripts of all targets share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fermi.export.shell_quotes import quote_assignment, quote_text, quote_value, quote_word
from fermi.jobs import bounds
from fermi.jobs.spec import JobSpec, Late, NodePlan, Plan, Value, resolve

LATE_VARIABLES = {Late.HEAD_HOST: "head", Late.FILES_DIR: "files", Late.PYTHON: "python"}
"""The variables of a start script."""

CONFIGS_FOLDER, LIB_FOLDER = "configs", "lib"


def rename_exported_job(job: JobSpec) -> JobSpec:
    """Return the job under another name, so that no engine takes it for an attempt that a platform started there."""
    return replace(job, task_id=f"{job.task_id}-hand")


def get_script_name(node_rank: int) -> str:
    return f"start-node-{node_rank}.sh"


def render_configs(plan: Plan, host: str) -> dict[str, str]:
    """Return the plan's files, in a folder beside the scripts."""
    bindings = {Late.HEAD_HOST: host, Late.FILES_DIR: CONFIGS_FOLDER, Late.PYTHON: "python3"}
    return {f"{CONFIGS_FOLDER}/{name}": resolve(text, bindings) for name, text in plan.files.items()}


def render_start_script(job: JobSpec, plan: Plan, node: NodePlan, host: str, body: Sequence[str]) -> str:
    """Return the script of a node. `body` may use $here, $head, $files and $python."""
    place = f"node {node.node_rank} of {len(plan.nodes)}, {_one_line(node.node.name)} ({_one_line(node.node.address)})"
    return _join_lines(
        "#!/usr/bin/env bash",
        f"# {job.name}: {place}: {node.format_ranks()} of {plan.world_size}.",
        "# FERMI_PYTHON: the interpreter that has the training stack. FERMI_WORKDIR: the folder to train in.",
        "set -euo pipefail",
        'here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)',
        "python=${FERMI_PYTHON:-python3}",
        f"head={quote_text(host)}",
        f"files=$here/{CONFIGS_FOLDER}",
        *_UNUSED,
        'if ! command -v -- "$python" >/dev/null; then',
        '  echo "fermi: there is no $python here: set FERMI_PYTHON to the interpreter with the training stack" >&2',
        "  exit 127",
        "fi",
        'cd -- "${FERMI_WORKDIR:-$here}"',
        *_check_script(job),
        *render_secrets(job),
        "",
        *body,
    )


_UNUSED = (': "$head" "$files"  # not every job needs both',)


def _check_script(job: JobSpec) -> Iterable[str]:
    if job.entrypoint is None or not job.entrypoint.script:  # a module or a program may be an installed one
        return ()
    return (
        f"script={quote_text(job.entrypoint.script)}",
        'if [[ ! -f $script ]]; then',
        '  echo "fermi: there is no $script in $PWD: copy it to this node, or set FERMI_WORKDIR to its folder" >&2',
        "  exit 2",
        "fi",
    )  # fmt: skip


def render_secrets(job: JobSpec) -> Iterator[str]:
    """Yield lines that require the values of secrets: no script holds one. Each is set around the script, or in a file
    beside it. `$here` is the script's folder."""
    if not job.secret_env:
        return
    yield "# Values that stand in none of these files: export them, or have them in secrets.env beside this script,"
    yield "# mode 600, as NAME='value', one a line."
    yield "# shellcheck source=/dev/null"
    yield 'if [[ -r $here/secrets.env ]]; then set -a; . "$here/secrets.env"; set +a; fi'
    for name, secret in job.secret_env.items():
        yield f': "${{{name}:?set it to the value of the secret {secret}}}"'
        yield f"export {name}"


def render_command(words: Sequence[Value]) -> Iterator[str]:
    """Yield the lines of an array: an option and its value on one."""
    line: list[str] = []
    for part in words:
        if isinstance(part, str) and part.startswith("--") and line:
            yield " ".join(line)
            line = []
        line.append(quote_value(part, LATE_VARIABLES))
    yield " ".join(line)


def render_array(name: str, words: Iterable[str]) -> tuple[str, ...]:
    return (f"{name}=(", *(f"  {word}" for word in words), ")")


def list_watch_options(job: JobSpec) -> Iterator[str]:
    """Yield options of the node runner that differ from its defaults."""
    if not job.pulse:
        yield "--no-pulse"
    if job.hang_seconds is not None:
        yield f"--hang-seconds {job.hang_seconds:g}"
    if job.starts_ranks:
        yield "--starts-ranks"


def list_bound_options(connection: Mapping[str, Any]) -> Iterator[str]:
    """Yield options of the node runner: what a node may use of its machine, by `connection` or by default, and what it
    may read."""
    asked = bounds.build_bounds(connection, shared=False)["bounds"]
    yield f"--processes {asked['processes']} --open-files {asked['open_files']}"
    sizes = [f"--{name}-gb {(asked[name] or 0) / 2**30:g}" for name in ("memory", "disk")]
    yield " ".join([*sizes, f"--reserve-percent {asked['reserve'] * 100:g}"])
    yield '--read "$here"'  # with --confine


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _join_lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


START_ALL_TEMPLATE = r"""#!/usr/bin/env bash
# @name@: copies this folder to all nodes over ssh, starts them, and stays until they end. Ctrl-C stops all of them.
# FERMI_SSH: another ssh, or its options.  FERMI_FOLDER: where the folder goes (from the home there).
# FERMI_COPY=0: nothing is copied, because all nodes see this folder under the same path.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
@hosts@
read -r -a ssh <<<"${FERMI_SSH:-ssh -o BatchMode=yes -o ConnectTimeout=15}"
folder=${FERMI_FOLDER:-@folder@}
settings=()
options=(--until-eof "$@")  # of each node's script
for name in FERMI_PYTHON FERMI_WORKDIR FERMI_LOGS; do
  if [[ -n ${!name:-} ]]; then settings+=("$name=${!name}"); fi
done

is_here() {  # this machine needs no ssh to itself
  [[ -z ${FERMI_SSH:-} && $1 =~ ^(127\.0\.0\.1|::1|localhost)$ ]]
}

at() {  # host, command for its shell
  if is_here "$1"; then (cd && exec bash -c "$2"); else "${ssh[@]}" "$1" "$2"; fi
}

copy() {  # to a host; what ranks have written here stays here
  local there
  there=$(printf '%q' "$folder")
  tar -C "$here" --exclude=./logs --exclude=./checkpoints -cf - . |
    at "$1" "mkdir -p -- $there && tar -C $there -xf -" ||
    { echo "fermi: cannot copy to $1: can you \`${ssh[*]} $1 true\` without a password?" >&2; exit 255; }
}

elsewhere=no
for host in "${hosts[@]}"; do
  if ! is_here "$host"; then elsewhere=yes; fi
done
if [[ ${FERMI_COPY:-1} == 0 || $elsewhere == no ]]; then
  folder=$here
else
  declare -A copied=()
  for host in "${hosts[@]}"; do
    if [[ -z ${copied[$host]:-} ]]; then copy "$host"; fi
    copied[$host]=yes
  done
fi

# The nodes stop when their standard input ends, so they cannot outlive this script, whatever becomes of it.
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
mkfifo "$scratch/life" "$scratch/ended"
exec 8<>"$scratch/ended" 9<>"$scratch/life"
result=0
stop() { exec 9>&-; }
# shellcheck disable=SC2317  # the trap calls it
interrupted() {
  if ((result == 0)); then result=130; fi
  stop
}
trap interrupted INT TERM HUP

start() {  # node rank
  local code=0 there
  there=$(printf '%q ' env ${settings[@]+"${settings[@]}"} bash "$folder/start-node-$1.sh" "${options[@]}")
  at "${hosts[$1]}" "exec $there" <"$scratch/life" 8>&- || code=$?
  echo "$1 $code" >&8
}

for node in "${!hosts[@]}"; do
  start "$node" 9>&- &  # only this script holds the other end
done
for ((left = ${#hosts[@]}; left > 0; left--)); do
  until read -r -u 8 node code; do :; done
  if ((code != 0 && result == 0)); then
    result=$code
    echo "fermi: node $node (${hosts[$node]}) ended with exit code $code; the others are stopped" >&2
    if ((code == 255)); then
      echo "fermi: 255 is ssh's own: does \`${ssh[*]} ${hosts[$node]} true\` work without a password?" >&2
    fi
    stop
  fi
done
wait
exit "$result"
"""


def render_start_all(job: JobSpec, plan: Plan) -> str:
    hosts = "\n".join(render_array("hosts", (quote_text(node.node.address) for node in plan.nodes)))
    return (
        START_ALL_TEMPLATE.replace("@name@", job.name)
        .replace("@hosts@", hosts)
        .replace("@folder@", quote_word(f"fermi/{job.name}"))
    )


def render_environment(node: NodePlan, without: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the words of an array: what all ranks of a node share, our modules first on Python's path."""
    own = node.env.get("PYTHONPATH")
    path = f"PYTHONPATH=$here/{LIB_FOLDER}" + ("" if own else "${PYTHONPATH:+:$PYTHONPATH}")
    left_out = {"PYTHONPATH", *without}
    return (
        *(quote_assignment(name, text, LATE_VARIABLES) for name, text in node.env.items() if name not in left_out),
        f'"{path}"' + (quote_word(f":{own}") if own else ""),
    )

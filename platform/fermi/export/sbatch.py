"""`fermi launch --mode create_slurm`: renders a batch script that starts a user's own command on Slurm. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fermi.export.shell_quotes import quote_word
from fermi.jobs.errors import LaunchError

_SAFE = re.compile(r"[A-Za-z0-9_@%+:,./=-]+")


@dataclass(frozen=True, slots=True)
class SbatchOptions:
    """Options of the script. `per_node`: processes, and GPUs unless `gpus` states another number (0: none)."""

    nodes: int = 1
    per_node: int = 1
    gpus: int | None = None
    name: str = "fermi"
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = ""
    cpus: int | None = None
    log: str = "%x-%j.out"


def render_script(batch: SbatchOptions, command: Sequence[str]) -> str:
    """Return the script. Ranks and master come from Slurm, in each task. Raises LaunchError (SBATCH_VALUE) for a value
    of several lines, which would be a line of the script itself."""
    gpus = batch.per_node if batch.gpus is None else batch.gpus
    options = {
        "job-name": batch.name, "nodes": batch.nodes, "ntasks-per-node": batch.per_node,
        "gpus-per-node": gpus or None, "cpus-per-task": batch.cpus, "partition": batch.partition,
        "account": batch.account, "qos": batch.qos, "time": batch.time, "output": batch.log,
    }  # fmt: skip
    return "\n".join([
        "#!/usr/bin/env bash",
        *(f"#SBATCH --{name}={_format_option(name, str(text))}" for name, text in options.items() if text),
        "#SBATCH --signal=TERM@60",
        "# A minute before the time limit the ranks are asked to save a checkpoint and end.",
        "",
        "# Ranks and the master's address come from Slurm: SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, the first host",
        "# of SLURM_JOB_NODELIST. `fermi` must be there on the nodes; FERMI names another one.",
        "set -euo pipefail",
        'exec srun --kill-on-bad-exit=1 "${FERMI:-fermi}" launch --mode slurm -- \\',
        "  " + " ".join(map(quote_word, command)),
        "",
    ])  # fmt: skip


def _format_option(name: str, text: str) -> str:
    if "\n" in text or '"' in text:
        raise LaunchError("SBATCH_VALUE", name=name, found=text)
    return text if _SAFE.fullmatch(text) else f'"{text}"'

"""Exports the batch script that the Slurm engine would submit, with all it needs, for sbatch."""

import json
import re
from collections.abc import Mapping
from typing import Any

from fermi.engines.slurm import render as backend
from fermi.export import scripts
from fermi.export.scripts import rename_exported_job
from fermi.export.shell_quotes import quote_text
from fermi.jobs.spec import JobSpec, Plan, Problem

_COMMENT_OPTION = re.compile(r"^#SBATCH --comment=.*\n", re.MULTILINE)
"""The comment by which a platform would take the job for a leftover of its own and cancel it."""


_SRUN_OPTIONS = ("--kill-on-bad-exit=0 --wait=0", "--kill-on-bad-exit=1 --wait=60")
"""Options that end the job when a rank fails, because no platform watches it."""


def problems(job: JobSpec) -> list[Problem]:
    return []


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    """Return the files. `connection.folder`: a folder that all nodes see; the exported folder must be there, or is
    copied there."""
    own = rename_exported_job(job)
    rendered = backend.render(own, plan, connection)
    folder = backend.get_data_root(connection)
    found = {
        f"runs/{own.name}/{path}": content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
        for path, content in backend.build_files(rendered).items()
    }
    script = f"runs/{own.name}/job.sh"
    found[script] = _COMMENT_OPTION.sub("", found[script]).replace(*_SRUN_OPTIONS)
    return {**found, "submit.sh": _render_submit(own, folder)}


def _render_submit(job: JobSpec, folder: str) -> str:
    """sbatch hands the environment on to the job."""
    secrets = "".join(f"{line}\n" for line in scripts.render_secrets(job))
    return (
        _SUBMIT_TEMPLATE.replace("@name@", job.name)
        .replace("@folder@", quote_text(folder))
        .replace("@secrets@\n", secrets)
    )


_SUBMIT_TEMPLATE = """#!/usr/bin/env bash
# @name@: submits runs/@name@/job.sh. SBATCH: another sbatch, or more of its options.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
@secrets@
folder=@folder@  # as all nodes see it; the job's script names it too
run=$folder/runs/@name@
read -r -a sbatch <<<"${SBATCH:-sbatch}"
if [[ -L $run/begun && -n $(squeue --noheader --jobs "$(readlink -- "$run/begun")" 2>/dev/null) ]]; then
  echo "fermi: job $(readlink -- "$run/begun") is this one, and it still runs: scancel it first" >&2
  exit 1
fi
mkdir -p -- "$folder/runs"
if [[ ! $here -ef $folder ]]; then cp -R -- "$here/runs/." "$folder/runs/"; fi
rm -f -- "$run"/begun "$run"/stop.json "$run"/end.json "$run"/*.{status,pulse}.json "$run"/*.lock  # of an earlier start
exec "${sbatch[@]}" "$run/job.sh"
"""

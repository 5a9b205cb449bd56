"""The batch script that the Slurm backend would submit, as a file for sbatch."""

from collections.abc import Mapping
from typing import Any

from fermi.launch import registry
from fermi.launch.spec import JobSpec, Plan, Problem


def problems(job: JobSpec) -> list[Problem]:
    return []


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    rendered = registry.backend("slurm", dict(connection)).render(job, plan)
    return {artifact.name: str(artifact.content) for artifact in rendered.artifacts}

"""Checks whether what a framework needs is installed where its ranks will run: a problem where it is known to be
missing, a warning where it cannot be found out."""

from collections.abc import Sequence

from fermi.engines.base import Backend
from fermi.frameworks.base import Info
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.planning import plugins

FIELD = "distributedConfig.framework"


def find_problems(spec: JobSpec, backend: Backend) -> list[Problem]:
    """Return a problem for each set of missing packages. A user's own script may do without the library that the
    framework's models are usually written in."""
    info = plugins.get_framework(spec.framework).info
    names = info.packages if spec.entrypoint else [info.stack, *info.packages]
    by_lack: dict[tuple[str, ...], list[Node]] = {}
    for node in spec.nodes:
        could = node.has_cuda or not info.needs_cuda
        if lack := could and list_missing_packages(backend, node, names, spec):
            by_lack.setdefault(tuple(lack), []).append(node)
    return [
        build_missing_problem(info, lack, ", ".join(node.name for node in nodes)) for lack, nodes in by_lack.items()
    ]


def find_warnings(spec: JobSpec, backend: Backend) -> list[Problem]:
    """Return a warning of nodes whose packages are unknown."""
    info = plugins.get_framework(spec.framework).info
    unknown = [
        node.name
        for node in spec.nodes
        if info.packages and list_missing_packages(backend, node, info.packages, spec) is None
    ]
    if not unknown:
        return []
    params = {"framework": info.label, "packages": ", ".join(info.packages), "where": ", ".join(unknown)}
    return [Problem(FIELD, "FRAMEWORK_NOT_ASKED", {**params, "command": info.install_command})]


def list_missing_packages(
    backend: Backend, node: Node, names: Sequence[str], spec: JobSpec | None = None
) -> list[str] | None:  # fmt: skip
    """Return which packages the node lacks; None: unknown. The versions that the environment states count where its
    engine cannot tell, unless a task names an interpreter: that may be another one than the environment means."""
    lack = backend.find_missing_packages(node, names, spec)
    told = not (spec and spec.python) and all(node.versions.get(name) for name in names)
    return [] if lack is None and told else lack


def build_missing_problem(info: Info, packages: Sequence[str], where: str) -> Problem:
    """Return the problem of packages that the nodes `where` lack."""
    params = {"framework": info.label, "packages": ", ".join(packages), "where": where, "command": info.install_command}
    return Problem(FIELD, "FRAMEWORK_NOT_INSTALLED", params)

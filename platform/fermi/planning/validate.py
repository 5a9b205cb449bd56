"""Checks all rules that need only the specification: the general ones here, the framework's own from its plug-in."""

from fermi.frameworks.base import Framework
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import entry, plugins, variables
from fermi.planning.request import MASTER_PORTS
from fermi.schema import suggestions


def find_problems(spec: JobSpec) -> list[Problem]:
    """Return all broken rules at once; empty = the framework's `plan` will succeed. The framework's name must be
    known."""
    return find_general_problems(spec) + find_framework_problems(spec)


def find_general_problems(spec: JobSpec) -> list[Problem]:
    """Return the broken rules that hold for every framework, also for a job whose nodes are not known yet."""
    found = variables.find_problems(spec.env, spec.secret_env)
    found += check_master_port(spec.master_port, "distributedConfig.masterPort")
    if spec.backend not in ("auto", "nccl", "gloo"):
        near_name = suggestions.suggest_name(spec.backend, ("nccl", "gloo")) or "auto"
        params = {"found": spec.backend, "allowed": "auto, nccl, gloo", "nearest": near_name}
        found.append(Problem("distributedConfig.backend", "BACKEND_UNKNOWN", params))
    return found + entry.find_problems(spec.entrypoint) + recipes.find_problems(spec)


def find_framework_problems(spec: JobSpec) -> list[Problem]:
    plugin = plugins.get_framework(spec.framework)
    return plugin.problems(spec) + _check_cuda(spec, plugin)


def check_master_port(port: int, field: str) -> list[Problem]:
    if port in MASTER_PORTS:
        return []
    low, high = MASTER_PORTS[0], MASTER_PORTS[-1]
    params = {
        "found": port,
        "low": low,
        "high": high,
        "nearest": suggestions.suggest_number(port, low, high, integer=True),
    }
    return [Problem(field, "PORT_OUT_OF_RANGE", params)]


def _check_cuda(spec: JobSpec, plugin: Framework) -> list[Problem]:
    """Return the problem of nodes without CUDA. It is apart from the framework's own rules, so that a preview shows
    what real GPUs would be sent."""
    without = [node.name for node in spec.nodes if not node.has_cuda]
    if not without or not plugin.info.needs_cuda:
        return []
    params = {"framework": plugin.info.label, "environments": ", ".join(without)}
    return [Problem("distributedConfig.framework", "FRAMEWORK_NEEDS_CUDA", params)]

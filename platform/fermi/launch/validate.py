"""All rules that need only the specification: the general ones here, the framework's own from its plugin."""

from fermi.launch import nearest, recipes, registry, variables
from fermi.launch.frameworks.base import Framework
from fermi.launch.spec import JobSpec, Problem


def problems(spec: JobSpec) -> list[Problem]:
    """All broken rules at once; empty = the framework's `plan` will succeed. The framework's name must be known."""
    found = variables.problems(spec.env, spec.secret_env)
    if not 1024 <= spec.master_port <= 65535:
        near = nearest.number(spec.master_port, 1024, 65535, whole=True)
        allowed = {"found": spec.master_port, "low": 1024, "high": 65535, "nearest": near}
        found.append(Problem("distributedConfig.masterPort", "PORT_OUT_OF_RANGE", allowed))
    if spec.backend not in ("auto", "nccl", "gloo"):
        near_name = nearest.name(spec.backend, ("nccl", "gloo")) or "auto"
        params = {"found": spec.backend, "allowed": "auto, nccl, gloo", "nearest": near_name}
        found.append(Problem("distributedConfig.backend", "BACKEND_UNKNOWN", params))
    plugin = registry.framework(spec.framework)
    return found + recipes.problems(spec) + plugin.problems(spec) + _cuda(spec, plugin)


def _cuda(spec: JobSpec, plugin: Framework) -> list[Problem]:
    """Apart from the framework's own rules, so that a preview shows what real GPUs would be sent."""
    without = [node.name for node in spec.nodes if not node.has_cuda]
    if not without or not plugin.info.needs_cuda:
        return []
    params = {"framework": plugin.info.label, "environments": ", ".join(without)}
    return [Problem("distributedConfig.framework", "FRAMEWORK_NEEDS_CUDA", params)]

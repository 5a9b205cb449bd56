"""Environment templates that a new platform starts with; operators may change them."""

from typing import Any

from apps.clusters.models import Cluster
from apps.environments.models import Template

# id, name, description, what it is made of
CATALOGUE: list[tuple[str, str, str, dict[str, Any]]] = [
    ("template-jupyter", "JupyterLab", "Notebooks and terminals, without GPUs.",
     {"kind": "jupyter", "cpu_cores": 2, "memory_gb": 4, "idle_stop_minutes": 240,
      "ports": [{"name": "tensorboard", "port": 6006}]}),
    ("template-vscode", "VS Code", "An editor in the browser, without GPUs. Takes code-server on "
     "this machine, or Node.js 20, 22 or 24 with npm, a C++ compiler and make to install it.",
     {"kind": "vscode", "cpu_cores": 2, "memory_gb": 4, "idle_stop_minutes": 240,
      "ports": [{"name": "tensorboard", "port": 6006}]}),
    ("template-custom", "Shell", "Terminals alone, or a service that your own script starts.",
     {"kind": "custom", "cpu_cores": 1, "memory_gb": 2, "idle_stop_minutes": 240}),
]  # fmt: skip
DEMO_GPUS = (2, 4, 8)


def add_templates(cluster: Cluster) -> None:
    """Create the templates that do not exist by name."""
    for key, name, description, made_of in CATALOGUE:
        _add_template(key, name, description, cluster, made_of)


def add_demo_templates(cluster: Cluster) -> None:
    """Create templates whose GPUs are emulated by processes of this machine."""
    for gpus in DEMO_GPUS:
        made_of = {"kind": "jupyter", "cpu_cores": gpus * 8, "memory_gb": gpus * 64, "gpu_type": "A100",
                   "gpu_count": gpus, "emulated": True, "idle_stop_minutes": 240,
                   "ports": [{"name": "tensorboard", "port": 6006}]}  # fmt: skip
        description = f"Notebooks with {gpus} emulated A100."
        _add_template(f"template-a100-{gpus}", f"JupyterLab, {gpus} × A100", description, cluster, made_of)


def _add_template(key: str, name: str, description: str, cluster: Cluster, made_of: dict[str, Any]) -> None:
    if not Template.objects.filter(project=None, name=name).exists():
        values = {"name": name, "description": description, "cluster": cluster, **made_of}
        Template.objects.get_or_create(pk=key, defaults=values)

"""Write the chart in deploy/helm/fermi as plain manifests (`make manifests`), for installation without Helm.

    python scripts/manifests.py [--namespace fermi] [--name fermi] [--values FILE] [--output build/manifests.yaml]

Helm renders them: the one on the PATH, else the one that `make` installs
(docs/decisions/0032-tools-for-contributors.md).
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm" / "fermi"
KIND_ORDER = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
         "PersistentVolumeClaim", "Service", "StatefulSet", "Job", "Deployment")  # fmt: skip


def find_helm() -> str | None:
    return shutil.which("helm") or shutil.which(ROOT / ".venv" / "bin" / "helm")


def render_manifests(
    values: Mapping[str, Any], *, name: str = "fermi", namespace: str = "fermi"
) -> list[dict[str, Any]]:
    """Return the chart's objects, each with its namespace; `values` override the chart's own."""
    command = [
        find_helm() or "helm",
        "template",
        name,
        str(CHART),
        "--namespace",
        namespace,
        "--kube-version",
        "1.30.0",
    ]
    given = json.dumps(values)  # which is YAML, too
    done = subprocess.run([*command, "--values", "-"], input=given, check=True, text=True, stdout=subprocess.PIPE)
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    for one in objects:
        if not one["kind"].startswith("Cluster"):
            one["metadata"].setdefault("namespace", namespace)
    return objects


def _remove_hooks(one: dict[str, Any]) -> dict[str, Any]:
    """Return the objects without what only Helm reads."""
    notes = one["metadata"].get("annotations", {})
    kept = {key: value for key, value in notes.items() if not key.startswith("helm.sh/")}
    about = {key: value for key, value in one["metadata"].items() if key != "annotations"}
    return {**one, "metadata": {**about, **({"annotations": kept} if kept else {})}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--name", default="fermi")
    parser.add_argument("--namespace", default="fermi")
    parser.add_argument("--values", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "manifests.yaml")
    given = parser.parse_args()
    if not find_helm():
        sys.exit("Helm was not found: put it on the PATH (https://helm.sh/docs/intro/install).")
    values = yaml.safe_load(given.values.read_text()) if given.values else {}
    objects = [_remove_hooks(one) for one in render_manifests(values, name=given.name, namespace=given.namespace)]
    objects.sort(key=lambda one: KIND_ORDER.index(one["kind"]) if one["kind"] in KIND_ORDER else len(KIND_ORDER))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    dumper = yaml.SafeDumper
    dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]  # easier to read
    given.output.write_text(yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=120))
    print(f"{len(objects)} objects in {given.output}")


if __name__ == "__main__":
    main()

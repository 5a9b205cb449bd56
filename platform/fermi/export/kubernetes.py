"""Exports the objects that the Kubernetes engine would create, as files for kubectl."""

from collections.abc import Mapping
from typing import Any

import yaml

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.render import render
from fermi.export import scripts
from fermi.export.scripts import rename_exported_job
from fermi.export.shell_quotes import quote_text, quote_word
from fermi.jobs.spec import JobSpec, Plan, Problem


def problems(job: JobSpec) -> list[Problem]:
    """Return the nodes without an image: pods need one."""
    without = [(index, node.name) for index, node in enumerate(job.nodes) if not node.image]
    return [Problem(f"nodes.{index}.image", "IMAGE_MISSING", {"environment": name}) for index, name in without]


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    own = rename_exported_job(job)
    rendered = render(own, plan, {"data_dir": "/data", **connection})
    objects = [_strip_managed_label(artifact.content) for artifact in rendered.artifacts]
    found = {
        f"manifests/{number:02d}-{obj['kind'].lower()}-{obj['metadata']['name']}.yaml": _dump_object(obj)
        for number, obj in enumerate(objects)
    }
    namespace = objects[0]["metadata"]["namespace"]
    return {
        **found,
        "apply.sh": _fill_script(_APPLY, own, namespace),
        "delete.sh": _fill_script(_DELETE, own, namespace),
    }


def _strip_managed_label(content: Any) -> Any:
    """Return the object without the label by which a platform would take it for a leftover of its own and delete it."""
    if isinstance(content, Mapping):
        return {name: _strip_managed_label(value) for name, value in content.items() if name != names.MANAGED_BY}
    return [_strip_managed_label(item) for item in content] if isinstance(content, list) else content


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes text of several lines as a block, and shared objects each time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_string)


def _dump_object(obj: Mapping[str, Any]) -> str:
    return yaml.dump(obj, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _fill_script(text: str, job: JobSpec, namespace: str) -> str:
    return (
        text.replace("@secrets@\n", _render_secrets(job)).replace("@left@\n", _DELETE_SECRET if job.secret_env else "")
        .replace("@name@", job.name).replace("@namespace@", quote_word(namespace))
        .replace("@selector@", quote_text(f"{names.TASK}={job.task_id}"))
    )  # fmt: skip


def _render_secrets(job: JobSpec) -> str:
    """Return the lines that create a Secret from the environment of the user who applies; values are on no command
    line."""
    if not job.secret_env:
        return ""
    given = [f'--from-file={name}=<(printf %s "${name}")' for name in job.secret_env]
    kubectl = '"${kubectl[@]}" -n @namespace@'
    lines = [
        *scripts.render_secrets(job),
        f"{kubectl} delete --ignore-not-found secret {job.name}",
        f"{kubectl} create secret generic {job.name} {' '.join(given)}",
    ]
    return "".join(f"{line}\n" for line in lines)


_APPLY = """#!/usr/bin/env bash
# @name@: creates its objects and follows the logs of all nodes. KUBECTL: another kubectl, or its options.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
read -r -a kubectl <<<"${KUBECTL:-kubectl}"
@secrets@
"${kubectl[@]}" apply -f "$here/manifests"
pods=("${kubectl[@]}" -n @namespace@ get pods -l @selector@ -o name)
until [[ -n $("${pods[@]}") ]]; do sleep 1; done
"${kubectl[@]}" -n @namespace@ wait --for=condition=Ready pod -l @selector@ --timeout=30m || true
exec "${kubectl[@]}" -n @namespace@ logs -f --prefix --max-log-requests=100 -l @selector@
"""

_DELETE = """#!/usr/bin/env bash
# @name@: deletes what apply.sh created.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
read -r -a kubectl <<<"${KUBECTL:-kubectl}"
@left@
exec "${kubectl[@]}" delete --ignore-not-found -f "$here/manifests"
"""

_DELETE_SECRET = """"${kubectl[@]}" -n @namespace@ delete --ignore-not-found secret @name@
"""

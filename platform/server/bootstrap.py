"""First-start data of an empty platform. Each part is created once and never again, even where an administrator has
since removed it; running all of it again changes nothing."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import transaction
from knox.crypto import hash_token

from apps.accounts import audit, services
from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.clusters.selectors import build_connection
from apps.common.clock import now
from apps.environments.models import Template
from apps.environments.services import adopt
from fermi import messages
from fermi.engines.check_results import CheckLevel
from fermi.engines.local import LocalBackend, check
from server import demo, host_facts

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


ADMINISTRATOR = "admin"
PROJECT = "default"
CLUSTER = "local"
THIS_MACHINE = "env-local"
HARDWARE_FIELDS = ("cpu_cores", "memory_gb", "gpu_type", "gpu_count", "versions", "network")
TOKEN_NAME = "first start"


EXPOSURE_CODES = ("VIEW_MISSING", "SECCOMP_MISSING")
"""Codes of isolation gaps that are reported as open even where isolation is active."""


def bootstrap_platform(data: Path, *, with_demo: bool) -> dict[str, Any]:
    """Create the first-start data and return `{"signInLink": path on the site, "token_path": file with the
    administrator's token, "isolation": description of what separates training from the platform, "exposed": "" unless
    something is open, "notes": what `/readyz` shows of that}`."""
    with transaction.atomic():
        user, project, cluster = _create_essentials()
        facts = host_facts.collect_facts()
        _run_once("machine.register", lambda: _create_machine(user, project, cluster, facts))
        DevEnvironment.objects.filter(pk=THIS_MACHINE).update(**{name: facts[name] for name in HARDWARE_FIELDS})
        _run_once("machine.host", lambda: _adopt_environments([THIS_MACHINE], facts["gpu_count"]))
        for environment in DevEnvironment.objects.filter(pk=THIS_MACHINE):
            adopt.update_sizes(environment)
        _run_once("templates.add", lambda: add_templates(cluster))
        if with_demo:
            _run_once("demo.add", lambda: demo.add_environments(project, cluster, facts["versions"], facts["network"]))
            _run_once("demo.add-catalog", demo.add_catalog)
            _run_once("demo.host", lambda: _adopt_environments([one[0] for one in demo.ENVIRONMENTS], None))
            _run_once("demo.add-templates", lambda: add_demo_templates(cluster))
    path = data / "token"
    _ensure_token(user, path)
    isolation = LocalBackend(build_connection(cluster) | {"warm": False}).isolation
    tried = check.check_isolation(build_connection(cluster))
    said = [isolation.sentences("en"), *(messages.render_text(one.code, "en", **one.params)[0] for one in tried)]
    held = isolation.protects and all(one.level is CheckLevel.PASS for one in tried)
    open_parts = [
        (code, params)
        for code, params in isolation.list_messages()
        if code in EXPOSURE_CODES or (code == isolation.code and not isolation.protects)
    ]
    open_parts += [(one.code, one.params) for one in tried if one.level is not CheckLevel.PASS]
    return {
        "signInLink": services.create_sign_in_link(user), "token_path": str(path),
        "isolation": " ".join(said), "exposed": "" if held else "yes",
        "notes": [{"code": code, "params": {**params}, "at": int(now().timestamp())} for code, params in open_parts],
    }  # fmt: skip


def _create_essentials() -> tuple[User, Project, Cluster]:
    user, made = User.objects.get_or_create(username=ADMINISTRATOR, defaults={"is_superuser": True, "is_staff": True})
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    project, _ = Project.objects.get_or_create(pk=PROJECT, defaults={"name": PROJECT})
    Membership.objects.get_or_create(project=project, user=user, defaults={"role": Role.MAINTAINER})
    cluster, _ = Cluster.objects.get_or_create(pk=CLUSTER, defaults={"name": CLUSTER, "backend": "local"})
    return user, project, cluster


def _create_machine(user: User, project: Project, cluster: Cluster, facts: dict) -> None:
    zone, _ = AvailabilityZone.objects.get_or_create(pk="zone-local", defaults={"name": "local"})
    DevEnvironment.objects.get_or_create(
        pk=THIS_MACHINE,
        defaults={"project": project, "owner": user, "cluster": cluster, "zone": zone, "started_at": now(), **facts},
    )


def _adopt_environments(keys: list[str], gpus: int | None) -> None:
    """Make these environments manageable (open, start, stop); those that were deleted are skipped."""
    for environment in DevEnvironment.objects.select_related("zone").filter(pk__in=keys, cluster=CLUSTER):
        adopt.adopt_environment(environment, gpus)


def _run_once(action: str, part: Callable[[], None]) -> None:
    if not AuditEvent.objects.filter(action=action).exists():
        part()
        audit.record_event(None, action, "platform")


def _ensure_token(user: User, path: Path) -> None:
    """Make sure that the file holds a valid token. A new token is written completely under another name before it is
    renamed, so that a reader never sees half of it; only then are older ones revoked."""
    with suppress(FileNotFoundError, UnicodeDecodeError):
        if ApiToken.objects.filter(user=user, digest=hash_token(path.read_text(encoding="utf-8").strip())).exists():
            return
    made, token = ApiToken.objects.create(user=user, expiry=None, name=TOKEN_NAME)
    mine = path.with_name(f".token.{secrets.token_hex(4)}")
    with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    mine.replace(path)
    ApiToken.objects.filter(user=user, name=TOKEN_NAME).exclude(pk=made.pk).delete()


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

import json
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, Project, User
from apps.catalog import preparation
from apps.catalog.models import Dataset, DatasetVersion, Model
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.environments.models import Hosted, Run, Template
from fermi.jobs import gpus
from server import host_facts

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def data(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    return settings.DATA_DIR


def first_start(*arguments: str) -> dict[str, str]:
    out = StringIO()
    call_command("firststart", *arguments, stdout=out)
    [line] = out.getvalue().splitlines()
    return json.loads(line)


def counts() -> list[int]:
    tables = (User, Project, Cluster, AvailabilityZone, DevEnvironment, Dataset, DatasetVersion, Model, ApiToken)
    return [table.objects.count() for table in tables]


def test_an_empty_platform_is_initialised(data: Path) -> None:
    first_start("--demo")
    assert counts() == [1, 1, 1, 4, 6, 1, 1, 1, 1]
    admin = User.objects.get()
    assert (admin.username, admin.is_superuser, admin.has_usable_password()) == ("admin", True, False)


def test_the_login_link_signs_the_administrator_in() -> None:
    browser = Client()
    assert browser.get(first_start()["signInLink"]).status_code == 302
    me = browser.get("/api/v1/auth/me").json()["data"]
    assert (me["username"], me["isAdministrator"]) == ("admin", True)


def test_the_token_file_belongs_to_the_administrator_with_mode_600(data: Path) -> None:
    path = Path(first_start()["token_path"])
    assert path == data / "token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text(encoding="utf-8").strip()
    answer = Client().get("/api/v1/auth/me", headers={"Authorization": f"Bearer {token}"})
    assert answer.json()["data"]["username"] == "admin"
    assert [file.name for file in data.iterdir() if "token" in file.name] == ["token"]


def test_initialising_twice_changes_nothing(data: Path) -> None:
    first_start("--demo")
    before, token = counts(), (data / "token").read_text()
    first_start("--demo")
    assert counts() == before
    assert (data / "token").read_text() == token


@pytest.mark.parametrize("content", [None, "", "fermi_revoked\n"])
def test_an_invalid_token_file_is_replaced(data: Path, content: str | None) -> None:
    first_start()
    path = data / "token"
    path.unlink() if content is None else path.write_text(content)
    first_start()
    answer = Client().get("/api/v1/auth/me", headers={"Authorization": f"Bearer {path.read_text().strip()}"})
    assert answer.status_code == 200
    assert ApiToken.objects.count() == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_the_demo_only_this_machine_exists() -> None:
    first_start("--no-demo")
    here = DevEnvironment.objects.get()
    assert (here.pk, here.emulated, here.zone.name) == ("env-local", False, "local")
    assert here.versions["torch"]
    assert here.cpu_cores >= 1
    assert not Dataset.objects.exists()


def test_removed_demo_objects_are_not_created_again() -> None:
    first_start("--demo")
    DevEnvironment.objects.filter(pk__in=["env-002", "env-local"]).delete()
    first_start("--demo")
    assert sorted(DevEnvironment.objects.values_list("pk", flat=True)) == ["env-001", "env-003", "env-004", "env-005"]


def test_the_demo_can_be_added_later() -> None:
    first_start("--no-demo")
    first_start("--demo")
    assert DevEnvironment.objects.filter(emulated=True).count() == 5


def test_a_failed_initialisation_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("server.demo.add_catalog", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            first_start("--demo")
    assert counts() == [0] * 9
    first_start("--demo")
    assert counts() == [1, 1, 1, 4, 6, 1, 1, 1, 1]
    assert AuditEvent.objects.filter(action="demo.add").count() == 1


def test_the_demo_inventory_is_that_of_the_requirement_document() -> None:
    first_start("--demo")
    rows = DevEnvironment.objects.filter(emulated=True).order_by("pk")
    columns = ("pk", "name", "kind", "status", "zone__name", "gpu_count", "gpu_type", "cpu_cores", "memory_gb")
    assert list(rows.values_list(*columns)) == [
        ("env-001", "pytorch-dev-env", "jupyter", "running", "北京可用区A", 2, "A100", 16, 128),
        ("env-002", "cv-experiment-env", "jupyter", "running", "北京可用区A", 2, "V100", 16, 128),
        ("env-003", "llm-training-env", "custom", "running", "深圳可用区C", 4, "A100", 32, 256),
        ("env-004", "vscode-debug-env", "vscode", "stopped", "深圳可用区C", 1, "A100", 8, 64),
        ("env-005", "nlp-research-lab", "custom", "running", "上海可用区A", 8, "A100", 64, 512),
    ]


def test_the_demo_dataset_is_the_text_of_the_standard_library() -> None:
    first_start("--demo")
    assert preparation.list_due_versions() == ["version-001"]
    assert preparation.prepare_version("version-001")
    version = DatasetVersion.objects.get()
    assert (version.status, version.dataset_id) == ("ready", "dataset-001")
    assert version.train_tokens > 10 * version.valid_tokens / 2 > 100_000
    text = Path(version.train_path).read_bytes()[::2]
    assert b"import " in text


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA H200", "H200"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Something Else", "Something Else"),
    ],
)
def test_a_gpu_has_its_usual_name(name: str, short: str) -> None:
    assert gpus.shorten_name(name) == short


def test_gpus_are_found_through_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '570.86.15, NVIDIA H200'\necho '570.86.15, NVIDIA H200'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    facts = host_facts.collect_facts()
    assert (facts["gpu_type"], facts["gpu_count"], facts["versions"]["driver"]) == ("H200", 2, "570.86.15")


@pytest.mark.parametrize("script", ["exit 9", "echo 'NVIDIA-SMI has failed'", "echo"])
def test_a_machine_whose_nvidia_smi_fails_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    facts = host_facts.collect_facts()
    assert (facts["gpu_type"], facts["gpu_count"]) == ("", 0)


def test_its_own_environments_are_managed_and_not_started() -> None:
    first_start("--demo")
    lives = dict(Hosted.objects.values_list("pk", "state"))
    assert lives == {"env-local": "running", "env-004": "stopped"} | dict.fromkeys(
        ("env-001", "env-002", "env-003", "env-005"), "running"
    )
    assert Template.objects.filter(project=None).count() == 6
    Template.objects.all().delete()
    DevEnvironment.objects.filter(pk="env-005").delete()
    first_start("--demo")
    assert (Hosted.objects.count(), Template.objects.count()) == (5, 0), "what was removed stays so"


def test_environments_of_an_earlier_release_become_managed() -> None:
    first_start("--demo")
    Hosted.objects.all().delete()
    Run.objects.all().delete()
    AuditEvent.objects.filter(action__in=["machine.host", "demo.host"]).delete()
    first_start("--demo")
    assert Hosted.objects.count() == 6
    assert Run.objects.count() == 5


def test_a_platform_that_nobody_could_sign_in_to_does_not_start(
    settings: Any, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    settings.LOCAL_ACCOUNTS = False
    with pytest.raises(CommandError, match="FERMI_LOCAL_ACCOUNTS"):
        first_start()
    assert not User.objects.exists()
    monkeypatch.setenv("FERMI_OIDC_URL", "https://sso.example.org")
    monkeypatch.setenv("FERMI_OIDC_CLIENT_ID", "fermi")
    browser = Client()
    assert browser.get(first_start()["signInLink"]).status_code == 302
    assert browser.get("/api/v1/auth/me").status_code == 200

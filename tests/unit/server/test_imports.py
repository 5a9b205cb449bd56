"""What the platform's processes import (docs/decisions/0038): only the web process has views and the admin."""

import os
import subprocess
import sys

import pytest
from django.contrib import admin
from django.core import checks

from server.up.child import build_environment
from tests.platform_process import ROOT

PROCESSES = {
    "worker": "from server.celery import app; app.loader.import_default_modules()",
    "watch": "from apps.training.management.commands import watch",
    "firststart": "from server.management.commands import firststart",
}
PAGES = (
    "server.urls",
    "rest_framework.views",
    "drf_spectacular.openapi",
    "allauth.headless.urls",
    "django.test",
    "re2",
    "cryptography.fernet",
    "httpx",
)


LIGHT = {"apps.common", "apps.common.celery_messages", "apps.common.request_id"}


@pytest.mark.parametrize("process", PROCESSES)
def test_processes_without_pages_import_no_views(process: str) -> None:
    asked = f"import sys, django; django.setup(); {PROCESSES[process]}; print(*sys.modules)"
    env = build_environment(FERMI_DATA=os.environ["FERMI_DATA"], FERMI_SECRET_KEY="for tests only")
    done = subprocess.run([sys.executable, "-c", asked], env=env, cwd=ROOT, check=True, capture_output=True, text=True)
    imported = done.stdout.split()
    views = [name for name in imported if name.startswith("apps.") and (".api" in name or name.endswith(".admin"))]
    assert [*views, *(name for name in PAGES if name in imported)] == []


@pytest.mark.parametrize("process", [*PROCESSES, "web"])
def test_processes_without_tracing_import_no_tracing(process: str) -> None:
    """Of OpenTelemetry, the client of Redis imports the interface where there is one."""
    served = {**PROCESSES, "web": "import server.asgi, server.urls"}[process]
    asked = f"import sys, django; django.setup(); {served}; print(*sys.modules)"
    env = build_environment(FERMI_DATA=os.environ["FERMI_DATA"], FERMI_SECRET_KEY="for tests only")
    done = subprocess.run([sys.executable, "-c", asked], env=env, cwd=ROOT, check=True, capture_output=True, text=True)
    senders = ("opentelemetry.exporter", "opentelemetry.sdk.trace", "opentelemetry.proto", "google.protobuf")
    assert [name for name in done.stdout.split() if name.startswith(senders)] == []


def test_beat_imports_little_but_the_schedule() -> None:
    asked = "import sys; from server import beat; print(*sys.modules)"
    env = build_environment(FERMI_DATA=os.environ["FERMI_DATA"])
    done = subprocess.run([sys.executable, "-c", asked], env=env, cwd=ROOT, check=True, capture_output=True, text=True)
    heavy = ("apps.", "celery", "django.", "kombu", "numpy", "server.settings")
    imported = set(done.stdout.split()) - LIGHT
    assert sorted(name for name in imported if name.startswith(heavy)) == []


def test_system_checks_find_nothing_in_all_that_is_served() -> None:
    """No process runs them when it starts."""
    from server import urls

    assert urls.urlpatterns
    assert len(admin.site._registry) > 10, "the operators' console is discovered with the addresses"
    assert checks.run_checks() == []

"""Log lines carry the id of their request, for people and for machines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from server.up.child import build_environment
from tests.platform_process import ROOT

SAY = """
import django, logging; django.setup()
from apps.common import request_id
request_id.set_request_id("abc-12345678")
logging.getLogger("fermi.test").info("hello %s", "there")
"""


def spoken(tmp_path: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SAY], cwd=ROOT, capture_output=True, text=True, check=True,
        env=build_environment(FERMI_DATA=str(tmp_path), FERMI_SECRET_KEY="for tests only", **env),
    )  # fmt: skip
    return done.stderr


def test_log_lines_are_readable(tmp_path: Path) -> None:
    assert spoken(tmp_path).rstrip().endswith("INFO    fermi.test hello there abc-12345678")


def test_json_log_lines_have_fields(tmp_path: Path) -> None:
    record = json.loads(spoken(tmp_path, FERMI_LOG="json"))
    assert record.pop("time")
    assert record == {
        "level": "INFO",
        "logger": "fermi.test",
        "message": "hello there",
        "request_id": "abc-12345678",
    }


@pytest.mark.parametrize("level", ["WARNING", "ERROR"])
def test_a_log_level_hides_lower_ones(tmp_path: Path, level: str) -> None:
    assert spoken(tmp_path, FERMI_LOG_LEVEL=level) == ""

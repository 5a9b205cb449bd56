"""Which addresses of channels are accepted: held against every plug-in of the installed Apprise."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apps.notices.sender import addresses


@pytest.fixture(scope="module")
def probed(root: Path) -> Any:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.notices.apprise_probe"],
        cwd=root, env={"PYTHONPATH": ".:platform"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_no_accepted_parameter_reaches_a_file_program_or_local_socket(probed: Any) -> None:
    assert probed["reached"] == {}
    assert probed["sent"] == sorted(addresses.ADDRESS_KINDS), "a sample address that is not understood proves nothing"


def test_without_the_list_some_parameters_would(probed: Any) -> None:
    """So the probe sees it where it happens."""
    assert {"slack?template", "discord?template", "workflows?template"} <= {*probed["blind"]}


def test_unlisted_parameters_of_every_apprise_kind_are_refused(probed: Any) -> None:
    assert probed["unlisted"] == []


@pytest.mark.parametrize("scheme", [
    "syslog", "rsyslog", "dbus", "glib", "gnome", "kde", "qt", "macosx", "windows", "blink1", "mqtt", "apprise",
])  # fmt: skip
def test_kinds_that_act_locally_or_open_other_connections_are_refused(scheme: str) -> None:
    assert scheme not in addresses.ADDRESS_KINDS


def test_accepted_kinds_send_only_by_requests(probed: Any) -> None:
    """No threads, programs or clients of their own, whose connections might go past the guard."""
    for scheme, module in probed["modules"].items():
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text("utf-8"))
        names = {alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import)
                 for alias in node.names}  # fmt: skip
        names |= {(node.module or "").partition(".")[0] for node in ast.walk(tree)
                  if isinstance(node, ast.ImportFrom) and not node.level}  # fmt: skip
        assert not names & {"threading", "subprocess", "asyncio", "multiprocessing", "paho", "ctypes", "pty"}, scheme

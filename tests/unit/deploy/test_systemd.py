"""The service and the configuration that we ship for hosts of workers."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fermi.agent.settings import load_settings
from fermi.cli.main import make_group
from fermi.runner import cgroups

UNIT, CONFIG = "deploy/systemd/fermi-worker.service", "deploy/systemd/worker.toml"


@pytest.fixture
def unit(root: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((root / UNIT).read_text())
    return parser


def test_the_service_runs_an_existing_command(unit: configparser.ConfigParser) -> None:
    program, name, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, name) == ("fermi", "worker")
    command = make_group().get_command(click.Context(make_group()), name)
    assert command is not None
    command.make_context(name, arguments)


def test_training_outlives_the_service(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Service"]["OOMPolicy"] == "continue"
    assert unit["Service"]["Restart"] == "always"


def test_tasks_have_control_groups_next_to_the_agents(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["DelegateSubgroup"] == cgroups.PLATFORM_GROUP
    assert set(unit["Service"]["Delegate"].split()) == set(cgroups.LIMIT_FILES)


def test_every_line_of_the_configuration_is_valid(root: Path, tmp_path: Path) -> None:
    text = (root / CONFIG).read_text()
    everything = tmp_path / "worker.toml"
    everything.write_text(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))
    settings = load_settings(str(everything), {})
    assert settings.workers() == ("gn6", {f"gn6-{n}": n for n in range(4)})
    assert settings.address == "10.0.0.6"
    assert settings.emulate
    assert load_settings(str(root / CONFIG), {}).address == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_analyze_finds_no_problem(root: Path, tmp_path: Path) -> None:
    """With a program and a user that are on this machine."""
    text = (root / UNIT).read_text().replace("/opt/fermi/bin/fermi", sys.executable)
    copy = tmp_path / "fermi-worker.service"
    copy.write_text(re.sub(r"(User|Group)=fermi", r"\1=root", text))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "fermi-worker" in line]
    said = [line for line in said if "DelegateSubgroup" not in line]  # systemd before 254 does not know it
    if "Failed to" in done.stderr and not said:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.strip()}")
    assert said == []

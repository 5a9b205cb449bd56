"""What a rank's process reports of its interpreter."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fermi.metrics.facts import FactParts, parse_facts
from fermi.probe import facts
from tests.unit.probe.test_records import run as run

TASK = {"FERMI_TASK_ID": "task-x", "LOCAL_RANK": "0"}


def install(site: Path, *names: str) -> None:
    for name in names:
        (site / name).mkdir(parents=True)


def join(found: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Return the values and the last whole list of packages."""
    values, packages, parts = dict[str, Any](), None, FactParts({})
    for record in found:
        one = parse_facts(record.get("facts"))
        assert one is not None
        values |= one.values
        packages = (parts.add(one.part) if one.part else None) or packages
    return values, packages


def test_packages_are_those_that_an_import_would_find(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "numpy-1.26.4.dist-info", "ruamel.yaml-0.18.dist-info", "numpy", "Foo_Bar-2.0+cu121.dist-info")
    install(second, "numpy-2.0.0.dist-info", "old-1.0-py3.11.egg-info", "strange.dist-info", "a;b-1.dist-info")
    found = facts.list_packages(["", str(first), str(second), str(tmp_path / "none")])
    assert found == {"numpy": "1.26.4", "ruamel-yaml": "0.18", "foo-bar": "2.0+cu121", "old": "1.0"}


def test_a_long_list_is_split_into_records_that_fit() -> None:
    packages = {f"package-{n}": "1.0.0" for n in range(500)}
    parts = facts.split_packages(packages)
    assert all(len(part) <= facts.MAX_PART_LENGTH for part in parts)
    assert dict(word.split("==") for part in parts for word in part.split()) == packages
    assert facts.split_packages({}) == [""]


def test_the_first_rank_of_a_node_reports_its_interpreter_and_packages(run: Any, tmp_path: Path) -> None:
    install(tmp_path / "site", *(f"package_{n}-1.{n}.dist-info" for n in range(300)))
    found = run("", **TASK, PYTHONPATH=str(tmp_path / "site"))
    values, packages = join(found)
    assert values["python"] == ".".join(map(str, sys.version_info[:3]))
    assert values["prefix"] == sys.prefix
    assert packages is not None
    assert (packages["package-7"], "pytest" in packages) == ("1.7", True)


@pytest.mark.parametrize("env", [{"FERMI_TASK_ID": "task-x", "LOCAL_RANK": "1"}, {"LOCAL_RANK": "0"}])
def test_other_ranks_and_processes_without_a_task_report_nothing(run: Any, env: dict[str, str]) -> None:
    assert run("", **env) == []


def test_what_a_process_starts_reports_only_if_it_has_another_interpreter(run: Any, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    install(next((tmp_path / "venv").glob("lib/python*/site-packages")), "other-1.0.dist-info")
    found = run(
        f"""
        import subprocess
        subprocess.run([sys.executable, "-c", "pass"], check=True, close_fds=False)
        subprocess.run(["{tmp_path}/venv/bin/python", "-c", "pass"], check=True, close_fds=False)
        """,
        **TASK,
    )
    values, packages = join(found)
    assert [one["facts"]["prefix"] for one in found if "prefix" in one["facts"]] == [sys.prefix, f"{tmp_path}/venv"]
    assert values["prefix"] == f"{tmp_path}/venv"
    assert packages is not None
    assert packages["other"] == "1.0"

"""Whether a framework can run where its ranks will: by the interpreter itself, by what an agent told, or not known."""

import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.agent import host_facts
from fermi.jobs.spec import Entrypoint
from fermi.planning import installed, plugins
from tests.goldens import job


def engine(name: str, tmp_path: Path, **connection: Any) -> Any:
    return plugins.get_backend(name, {"data_dir": str(tmp_path), "warm": False, **connection})


def python_without_anything(folder: Path) -> str:
    """This interpreter with nothing installed."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def found(spec: Any, backend: Any) -> list[tuple[str, str]]:
    return [(one.code, str(one.params["packages"])) for one in installed.find_problems(spec, backend)]


def test_the_local_machine_is_checked_with_the_training_interpreter(tmp_path: Path) -> None:
    spec = job("env-001", framework="deepspeed")
    assert found(spec, engine("local", tmp_path)) == []
    bare = engine("local", tmp_path, python=python_without_anything(tmp_path))
    assert found(spec, bare) == [("FRAMEWORK_NOT_INSTALLED", "torch, deepspeed")]
    own = replace(spec, entrypoint=Entrypoint("train.py"))
    assert found(own, bare) == [("FRAMEWORK_NOT_INSTALLED", "deepspeed")], "a script brings its own library"
    assert found(replace(own, framework="pytorch-ddp"), bare) == []
    assert found(spec, engine("local", tmp_path, python="/no/python")) == [], "nobody knows"


def test_an_agent_reports_missing_modules_of_its_interpreter(tmp_path: Path) -> None:
    told = host_facts._query_versions(python_without_anything(tmp_path))
    lacks = [name for name, value in told.items() if not value]
    assert {"horovod", "deepspeed", "torch", "jax", "megatron-core"} <= set(lacks)
    spec, backend = job("env-001", "env-003", framework="horovod"), engine("agent", tmp_path)
    first, second = spec.nodes
    some = replace(spec, nodes=(replace(first, engine={"lacks": lacks}), replace(second, engine={"lacks": []})))
    [problem] = installed.find_problems(some, backend)
    assert problem.params["where"] == first.name
    assert "make test-frameworks ONLY=horovod" in str(problem.params["command"])
    assert installed.find_warnings(some, backend) == []


@pytest.mark.parametrize("name", ["agent", "slurm"])
def test_an_unknown_installation_is_a_warning(name: str, tmp_path: Path) -> None:
    spec, backend = job("env-001", "env-003", framework="horovod"), engine(name, tmp_path)
    assert found(spec, backend) == []
    assert [one.code for one in installed.find_warnings(spec, backend)] == ["FRAMEWORK_NOT_ASKED"]
    stated = replace(spec, nodes=tuple(replace(node, versions={"horovod": "0.28.1"}) for node in spec.nodes))
    assert installed.find_warnings(stated, backend) == [], "the environment says that it has it"
    assert installed.find_warnings(replace(spec, framework="pytorch-ddp"), backend) == []

"""What a node's runner finds out of its node."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fermi.metrics.facts import FactParts, parse_facts
from fermi.runner import node_facts
from fermi.runner.record_frames import iterate_frames
from tests.unit.runner.test_node import run


def read(log: Path) -> list[dict[str, Any]]:
    records = [json.loads(record) for *_, record in iterate_frames(log.read_bytes())]
    return [one for one in records if one["source"] == "facts"]


def test_the_facts_of_a_node_are_in_the_log_of_its_first_rank(tmp_path: Path) -> None:
    env = {"HERE": str(tmp_path), "FERMI_TASK_ID": "task-x", "NCCL_DEBUG": "INFO", "WANDB_API_KEY": "0123"}
    run(tmp_path, "", 1, pulse=True, env=env)
    found = read(tmp_path / "0.log")
    values, lists, parts = dict[str, Any](), dict[str, dict[str, str]](), FactParts({})
    for one in map(parse_facts, (record["facts"] for record in found)):
        assert one is not None
        values |= one.values
        if one.part and (whole := parts.add(one.part)) is not None:
            lists[one.part.kind] = whole
    assert {"kernel", "cores", "python", "script"} <= values.keys()
    assert values["script"]["path"] == str(tmp_path / "script.py")
    assert lists["variables"]["NCCL_DEBUG"] != ""
    assert lists["variables"]["WANDB_API_KEY"] == ""
    assert "pytest" in lists["packages"]
    assert "FERMI_TASK_ID" not in lists["variables"]
    assert b"0123" not in (tmp_path / "0.log").read_bytes()


def test_a_hash_tells_values_apart_and_not_runs() -> None:
    def hash_all(name: str, **env: str) -> dict[str, str]:
        return node_facts.hash_variables(env, ["HIDDEN"], name, f"/data/{name}")

    one = hash_all(
        "task-a-1",
        A="x",
        HOME="/homes/a",
        HF_HOME="/homes/a/hf",
        OUT="/data/task-a-1/out:/out/task-a",
        HIDDEN="h",
        RANK="0",
    )
    other = hash_all(
        "task-b-2",
        A="y",
        HOME="/homes/b",
        HF_HOME="/homes/b/hf",
        OUT="/data/task-b-2/out:/out/task-b",
        HIDDEN="i",
        RANK="1",
    )
    assert one.keys() == other.keys() == {"A", "HF_HOME", "OUT", "HIDDEN"}
    assert {name for name in one if one[name] != other[name]} == {"A"}
    assert one["HIDDEN"] == ""


def test_the_folder_of_prepared_packages_is_in_no_hash() -> None:
    def hash_all(venv: str, path: str) -> dict[str, str]:
        env = {"VIRTUAL_ENV": venv, "PATH": path, "JUPYTER": f"{venv}/share/jupyter"}
        return node_facts.hash_variables(env, [], "task-a-1", "/data/task-a-1")

    one = hash_all("/cache/3f2a", "/cache/3f2a/bin:/usr/bin:/bin")
    assert one.keys() == {"PATH", "JUPYTER"}
    assert one == hash_all("/cache/77b0", "/cache/77b0/bin:/usr/bin:/bin")
    assert one["PATH"] != hash_all("/cache/77b0", "/cache/77b0/bin:/opt/tools:/usr/bin:/bin")["PATH"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("HF_TOKEN", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("DB_PASSWORD", "x"), ("PROXY", "http://me:pw@host/")],
)
def test_of_what_may_be_a_secret_the_name_alone_is_reported(name: str, value: str) -> None:
    assert node_facts.hash_variables({name: value}, [], "task-a-1", "/x") == {name: ""}


def test_variables_are_bounded_and_split() -> None:
    found = node_facts.hash_variables({f"A{n}": "x" * 300_000 for n in range(600)} | {"B" * 300: ""}, [], "t-1", "/x")
    assert len(found) == node_facts.MAX_VARIABLES
    parts = node_facts.split_variables(found)
    assert {name for part in parts for name in part["variables"]} == found.keys()
    assert all(len(json.dumps(part)) < 3400 for part in parts)
    assert len(node_facts.split_variables({})) == 1


def test_the_revision_is_the_one_that_is_checked_out(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run([*git, "init", "-q", "-b", "work"], check=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text("pass\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    found = node_facts.describe_script(["python", "-u", "sub/train.py", "--lr", "1"], str(tmp_path))
    assert found["git"] == {"commit": commit, "branch": "work"}
    assert found["script"]["path"] == "sub/train.py"
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    assert node_facts.find_revision(str(tmp_path)) == found["git"]
    subprocess.run([*git, "checkout", "-q", "--detach"], check=True)
    assert node_facts.find_revision(str(tmp_path)) == {"commit": commit}
    assert node_facts.describe_script(["python", "-c", "pass"], str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("text", "version"),
    [("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15"),
     ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build", "570.86.10")],
)  # fmt: skip
def test_the_driver_is_read_from_the_kernels_file(text: str, version: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "version").write_text(text)
    for n in range(2):
        (tmp_path / f"{n}").mkdir()
        (tmp_path / f"{n}" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   16\n")
    monkeypatch.setattr(node_facts, "DRIVER_FILE", str(tmp_path / "version"))
    monkeypatch.setattr(node_facts, "GPU_GLOB", str(tmp_path / "*" / "information"))
    found = node_facts.describe_machine()
    assert (found["driver"], found["gpus"]) == (version, {"NVIDIA H200": 2})

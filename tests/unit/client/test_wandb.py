"""Runs of W&B that are sent from this machine: which are downloaded, and which count as sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fermi.client import wandb
from fermi.client.errors import FermiError, NotFoundError
from fermi.client.wandb import send_runs

COMMAND = """#!/bin/sh
shift
for folder in "$@"; do
    case "$folder" in *-refused) ;; *) touch "$folder/run.wandb.synced" ;; esac
done
"""


class Outputs:
    """Stands in for the platform's outputs: files by path."""

    def __init__(self, **files: str) -> None:
        self.files = {path.replace("__", "/"): content for path, content in files.items()}

    def list(self, task: str, path: str) -> list[dict[str, Any]]:
        names = {one.split("/")[1] for one in self.files if one.startswith(f"{path}/")}
        if not names:
            raise NotFoundError("not found", code="FILE_NOT_FOUND", status=404)
        return [{"kind": "folder", "name": name, "path": f"{path}/{name}"} for name in sorted(names)]

    def tree(self, task: str, path: str) -> list[dict[str, Any]]:
        return [{"path": one} for one in self.files if one.startswith(f"{path}/")]

    def get(self, task: str, item: dict[str, Any], into: Path) -> None:
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_text(self.files[item["path"]], "utf-8")


@pytest.fixture(autouse=True)
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "wandb"
    program.write_text(COMMAND, "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(wandb, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_a_run_counts_as_sent_where_wandb_has_marked_it() -> None:
    files = {
        "wandb/offline-run-1-a/run-a.wandb": "x", "wandb/offline-run-2-refused/run-b.wandb": "x",
        "wandb/offline-run-3-c/run-c.wandb": "x", "wandb/offline-run-3-c/run-c.wandb.synced": "",
        "wandb/run-4-online/run-d.wandb": "x", "wandb/offline-run-1-a/files/media/a.png": "x",
    }  # fmt: skip
    assert send_runs(Outputs(**files), "task-1") == [  # type: ignore[arg-type]
        {"folder": "wandb/offline-run-1-a", "synced": True},
        {"folder": "wandb/offline-run-2-refused", "synced": False},
        {"folder": "wandb/offline-run-3-c", "synced": True},
    ]


def test_a_task_without_runs_has_nothing_to_send() -> None:
    assert send_runs(Outputs(), "task-1") == []  # type: ignore[arg-type]


def test_without_wandb_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(FermiError, match="pip install wandb"):
        send_runs(Outputs(), "task-1")  # type: ignore[arg-type]

"""What the ranks of a host may reach of a data directory that the host shares with the platform."""

from pathlib import Path
from typing import Any

import pytest

from fermi.agent.sandbox import HostSandbox
from fermi.runner import sandbox


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 4)
    for name in ("checkpoints/task-x", "checkpoints/task-y", "datasets", "workspace"):
        (tmp_path / "fermi" / name).mkdir(parents=True)
    return tmp_path / "fermi"


def allowed(data: Path, resume_from: str) -> dict[str, Any]:
    """Of what is in the data directory."""
    confining = HostSandbox.from_paths(data.parent / "state", data.parent / "work", "python3", (), enabled=True)
    env = {"FERMI_CHECKPOINT_DIR": str(data / "checkpoints/task-x"), "FERMI_RESUME_FROM": resume_from}
    order = confining.order(data.parent / "files", data.parent / "logs", env, home=data.parent / "home")
    assert order is not None
    return {path.removeprefix(f"{data}/"): mode for path, mode in order["paths"].items() if path.startswith(f"{data}/")}


def test_a_resume_path_opens_only_one_tasks_folder(data: Path) -> None:
    own = {"datasets": "r", "workspace": "r", "checkpoints/task-x": "rwm"}
    assert allowed(data, "") == own
    assert allowed(data, "auto") == own
    assert allowed(data, f"{data}/checkpoints/task-x/5.pt") == own
    assert allowed(data, f"{data}/checkpoints/task-y/5.pt") == {**own, "checkpoints/task-y": "r"}
    for path in ("token", "secret_key", "logs/task-y", "checkpoints", "checkpoints/../token", "."):
        assert allowed(data, f"{data}/{path}") == own, path


@pytest.mark.parametrize(("named", "given"), [("files/torch_extensions", True), ("elsewhere", False), ("", False)])
def test_a_rank_may_write_only_to_its_build_folder_of_the_plans_files(data: Path, named: str, given: bool) -> None:
    confining = HostSandbox.from_paths(data.parent / "state", data.parent / "work", "python3", (), enabled=True)
    env = {"TORCH_EXTENSIONS_DIR": str(data.parent / named)} if named else {}
    order = confining.order(data.parent / "files", data.parent / "logs", env, home=data.parent / "home")
    assert order is not None
    assert (order["paths"].get(str(data.parent / "files/torch_extensions")) == "rwm") is given
    assert str(data.parent / "elsewhere") not in order["own"]

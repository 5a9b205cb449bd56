"""Caches of libraries on a worker's host: cleaned below the agent's folder, apart from what its runs may read."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from fermi.agent.errors import AgentError
from fermi.agent.library_caches import clean_caches
from fermi.agent.settings import load_settings
from fermi.engines import library_cache

DAY = 86_400.0


class FakeRun:
    """What `clean_caches` reads of a `RankRun`."""

    def __init__(self, folder: Path, home: str, *, began: float | None, is_over: bool = False) -> None:
        self.folder, self.spec, self.is_over = folder, {"home": home}, is_over
        if began is not None:
            (folder / "files").mkdir(parents=True)
            os.utime(folder / "files", (began, began))


def test_each_projects_cache_is_cleaned_apart_from_what_its_own_runs_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_cache, "read_access_delay", lambda folder: 0.0)
    moment = time.time() - 5 * DAY
    kernels = {}
    for project in ("busy", "free", "over", "unknown"):
        kernel = kernels[project] = tmp_path / "homes" / project / ".cache" / "triton" / "K" / "kernel"
        kernel.parent.mkdir(parents=True)
        kernel.write_bytes(b"x" * 5000)
        for one in (kernel, kernel.parent):
            os.utime(one, (moment, moment))
    (tmp_path / "homes" / "empty").mkdir()
    runs: list[Any] = [
        FakeRun(tmp_path / "a", "homes/busy", began=time.time() - 9 * DAY),
        FakeRun(tmp_path / "b", "homes/busy", began=time.time() - 1 * DAY),
        FakeRun(tmp_path / "c", "homes/over", began=time.time() - 9 * DAY, is_over=True),
        FakeRun(tmp_path / "d", "homes/unknown", began=None),
    ]
    clean_caches(tmp_path, 0, lambda: runs)
    assert {project for project, kernel in kernels.items() if kernel.exists()} == {"busy", "unknown"}
    clean_caches(tmp_path / "nowhere", 0, lambda: runs)


def test_the_limit_is_a_whole_number_in_the_agents_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text("cache_max_gb = 50\n")
    assert load_settings(str(file), {}).cache_max_gb == 50
    for wrong in ("-1", "true", '"50"', "1.5"):
        file.write_text(f"cache_max_gb = {wrong}\n")
        with pytest.raises(AgentError) as caught:
            load_settings(str(file), {})
        assert caught.value.params["expected"] == "a whole number"

"""`make gpu-check` from a kit, as on a bare machine: no network, an empty HOME, another Python to start it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from scripts import gpu_check, gpu_kit, shares
from tests.gpu.check import checks
from tests.platform_process import ROOT

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
ISOLATED = 'ip link set lo up && exec "$@"'
FEW = {"plain-script": "passed", "crash-in-c": "passed", "illegal-address": "skipped"}
"""What a run that takes a share of the long tests asks for, and what comes of it without a GPU; others ask for all."""
MAX_RUNS = 2


def copy_from_here(pins: Iterable[str], python: str, folder: Path) -> None:
    """Instead of pip's download: the same versions, as they are installed here."""
    wanted = {line.partition("==")[0].lower() for line in pins}
    for one in distributions():
        if one.metadata["Name"].lower().replace("_", "-").replace(".", "-") in wanted:
            for file in one.files or ():
                source = Path(str(file.locate()))
                if file.parts[0] != ".." and file.suffix != ".pyc" and source.is_file():
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, folder / file)


def clone(folder: Path) -> None:
    """The files that git tracks, and nothing else."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("docs/pictures/", "frontend/", "bench/replay_engine/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: the platform below it listens on sockets with a path."""
    folder = Path(tempfile.mkdtemp(prefix="kit-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def isolated() -> list[str]:
    """The beginning of a command that runs without any network but a loopback of its own."""
    words = ["unshare", "--net" if os.geteuid() == 0 else "-rn", "sh", "-c", ISOLATED, "sh"]
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    return words


@pytest.mark.skipif(VERSION not in gpu_kit.PYTHONS, reason="kits are made for other versions of Python")
def test_checks_run_from_the_kit_without_a_network(
    short: Path, monkeypatch: pytest.MonkeyPatch, isolated: list[str]
) -> None:
    folder, home = short / "clone", short / "home"
    home.mkdir()
    clone(folder)
    kit = folder / "build" / "gpu-kit"
    kit.mkdir(parents=True)
    monkeypatch.setattr(gpu_kit, "download_packages", copy_from_here)
    monkeypatch.setattr(gpu_kit, "BEYOND_THE_LOCK", {})
    monkeypatch.setattr(gpu_kit, "PRESET", 0)
    gpu_kit.make_kit(VERSION, kit)
    others = [path for name in ("python3", f"python{VERSION}") if (path := shutil.which(name, path="/usr/bin"))]
    command = [others[0] if others else sys.executable, "scripts/gpu_check.py", "--python", sys.executable]
    some, work = bool(shares.get_current_share()), folder / "build" / "gpu-check"
    which, said, codes = ["--only", ",".join(FEW)] if some else [], "", []
    for _ in range(MAX_RUNS):
        done = subprocess.run(
            [*isolated, *command, *which, "--minutes", "9"], cwd=folder, capture_output=True, text=True, check=False,
            env={"HOME": str(home), "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        said += done.stdout + done.stderr
        codes.append(done.returncode)
        if not (left := re.search(r"go on with --from ([\w-]+)", done.stdout)):
            break
        which = ["--from", left[1]]
    assert (work / "gpu-check.json").exists(), said
    results = json.loads((work / "gpu-check.json").read_text())["results"]
    logs = "".join(path.read_text(errors="replace")[-3000:] for path in sorted((work / "logs").glob("*.log")))
    states = {name: one["state"] for name, one in results.items()}
    assert FEW.items() <= states.items(), said + logs
    assert set(states) == (set(FEW) if some else set(checks())), said
    assert "failed" not in states.values(), said + logs
    assert "no CUDA here" in results["illegal-address"]["reasons"][0]
    assert set(codes) == {0}, said
    assert left is None, said
    assert "| `plain-script`<br>" in (work / "gpu-check.md").read_text()
    assert {path.name for path in work.iterdir()} == set(gpu_check.RESULTS)
    assert list(home.iterdir()) == []

"""Training inside of environments that the platform keeps on this machine: with what `pip install` put there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fermi.client import Fermi
from tests.e2e.test_environment_lifecycle import act, make, until_is
from tests.platform_process import WARM, Running
from tests.wheels import make_wheel

pytestmark = pytest.mark.e2e
SETTINGS = WARM

SCRIPT = """
import json, os, sys
try:
    import tiny
    found = tiny.__file__
except ImportError:
    found = ""
try:
    readable = bool(open(sys.argv[1] + "/home/token").read())
except OSError:
    readable = False
import torch
said = {"tiny": found, "home": os.environ["HOME"], "python": sys.executable, "readable": readable}
print(json.dumps({"node": os.environ["GROUP_RANK"], **said}), flush=True)
sys.exit("--needs" in sys.argv and not found and "there is no tiny")
"""


@pytest.fixture(scope="module")
def fermi(platform: Running) -> Iterator[Fermi]:
    with Fermi(platform.url, (platform.data / "token").read_text("utf-8").strip()) as client:
        yield client


@pytest.fixture(scope="module")
def lab(platform: Running, fermi: Fermi) -> str:
    """An environment with a package that no other has, and a script."""
    key = make(platform, "lab")
    until_is(platform, key, "running")
    workspace = platform.data / "environments" / key / "workspace"
    fermi.environments.run(key, ["true"])
    (workspace / "train.py").write_text(SCRIPT, encoding="utf-8")
    wheel = make_wheel(workspace)
    done = fermi.environments.run(key, ["pip", "install", "--no-index", wheel.name])
    assert done.exit_code == 0, done
    return key


@pytest.fixture(scope="module")
def other(platform: Running, fermi: Fermi) -> str:
    key = make(platform, "other")
    until_is(platform, key, "running")
    assert fermi.environments.run(key, ["sh", "-c", "echo secret > ~/token"]).exit_code == 0
    return key


def train(platform: Running, environments: list[str], *args: str, state: str = "succeeded", **config: Any) -> Any:
    """What the ranks said, by node, and the task."""
    many = {"nodeIds": environments, "masterNode": environments[0], "framework": "ddp"} if environments[1:] else {}
    asked = {"entrypoint": {"script": "train.py", "args": [*args]}, "distributedConfig": {**many, **config}}
    task = platform.create(environments, datasetId=None, datasetVersionId=None, modelId=None, **asked)
    platform.until_state(task, state, seconds=180)
    logs = [platform.log(task, rank) for rank in range(platform.task(task)["worldSize"])]
    said = [json.loads(line) for log in logs for line in log.splitlines() if line.startswith('{"node"')]
    return {int(one["node"]): one for one in said}, "".join(logs)


def disk(platform: Running, key: str) -> str:
    return str(platform.data.resolve() / "environments" / key)


def test_packages_installed_in_an_environment_are_used_in_training(platform: Running, lab: str, other: str) -> None:
    said, _ = train(platform, [lab], disk(platform, other), "--needs")
    home = f"{disk(platform, lab)}/home"
    assert said[0]["python"] == f"{home}/.fermi/python/bin/python"
    assert said[0]["tiny"].startswith(f"{home}/.fermi/python/lib/")
    assert said[0]["home"] == home
    assert not said[0]["readable"], "another environment's files are not this one's"
    said, log = train(platform, [lab], disk(platform, other), "--needs", state="failed", runIn="beside")
    assert (said[0]["tiny"], "there is no tiny" in log) == ("", True)


def test_each_environment_trains_with_its_own_packages(platform: Running, lab: str, other: str) -> None:
    said, _ = train(platform, [lab, other], disk(platform, other))
    assert [bool(said[node]["tiny"]) for node in (0, 1)] == [True, False]
    assert [said[node]["home"] for node in (0, 1)] == [f"{disk(platform, key)}/home" for key in (lab, other)]
    assert [said[node]["readable"] for node in (0, 1)] == [False, True]


def test_installed_packages_survive_a_stop(platform: Running, lab: str, other: str) -> None:
    act(platform, lab, "stop")
    until_is(platform, lab, "stopped")
    act(platform, lab, "start")
    until_is(platform, lab, "running", run=2)
    said, _ = train(platform, [lab], disk(platform, other), "--needs")
    assert said[0]["tiny"]

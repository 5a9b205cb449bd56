"""A package that was installed in one notebook alone: named before the start, installed in the other one, trained with.
The notebooks are dev pods of a cluster, entered by `pods/exec`."""

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import inside_engines
from tests.e2e.dev_pods import DevPods
from tests.e2e.test_code import fermi
from tests.fakes.kubernetes import HOME
from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e

WHEELS = "/wheels"
NAMES = ("first", "second")
PYTHON = f"{HOME}/.venv/bin/python"
SETUP = f"""set -e
{sys.executable} -m venv --without-pip {PYTHON[: -len("/bin/python")]}
echo {sysconfig.get_path("purelib")} > $(echo {HOME}/.venv/lib/python3*/site-packages)/these.pth
mkdir -p {HOME}/.local/share/jupyter/kernels/python3
echo '{json.dumps({"argv": [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]})}' \\
  > {HOME}/.local/share/jupyter/kernels/python3/kernel.json
"""
"""A virtual environment in the home, with this machine's packages, which the notebook's kernel runs in."""
SCRIPT = "import os, toy\nprint('rank', os.environ['RANK'], 'has toy', toy.VERSION, flush=True)\n"


class Lab(DevPods):
    """Two dev pods with a notebook's virtual environment, and wheels that can be installed there."""

    def __init__(self, platform: Running, folder: Path) -> None:
        super().__init__(platform, folder)
        for package in ("toy", "kit", "gear"):
            inside_engines.make_wheel(folder / "wheels", package, "1.0", package)
        self.cluster.add_claim("wheels", folder / "wheels")
        for name in NAMES:
            self.add(name, env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}, volumes={WHEELS: "wheels"})
            self.run(name, "sh", "-c", SETUP)
        self.connect()

    def install(self, name: str, package: str) -> None:
        """As in a terminal of that notebook."""
        self.run(name, PYTHON, "-m", "pip", "install", package)

    def count_entries(self) -> int:
        """How often a dev pod was entered."""
        return sum(call.subresource == "exec" for call in self.cluster.calls(user_agent="fermi"))

    def list_standby_pods(self) -> list[str]:
        """The names of the dev pods in which a process stands by."""
        shown = ("sh", "-c", "cat /proc/[0-9]*/comm 2> /dev/null; true")  # some end meanwhile
        return [name for name in NAMES if "fermi-standby" in self.run(name, *shown)]

    def preview(self, request: dict[str, Any]) -> Any:
        """Once the packages are known."""

        def known() -> Any:
            found = self.send("POST", "/training-tasks/preview", **request)
            return found if found["packages"] and not found["packages"]["looking"] else None

        return until(known, what="the packages are known")


@pytest.fixture(scope="module")
def lab(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(platform, tmp_path_factory.mktemp("lab"))
    try:
        yield made
    finally:
        made.close()


def test_a_package_of_one_notebook_is_named_installed_and_used(lab: Lab, tmp_path: Path) -> None:
    request = lab.request(SCRIPT)
    lab.install("first", "toy")
    found = lab.preview(request)
    assert found["problems"] == []
    (missing,) = found["packages"]["missing"]
    assert (missing["module"], missing["environmentIds"]) == ("toy", [lab.ids[1]])
    assert found["packages"]["level"] == ["toy==1.0"]
    assert "IMPORT_MISSING" in {one["code"] for one in found["warnings"]}

    level = "/dev-environments/packages/level"
    begun = lab.send("POST", level, ids=lab.ids, packages=found["packages"]["level"])
    ended = until(lambda: (now := lab.platform.get(f"{level}/{begun['id']}"))["over"] and now, what="pip has ended")
    assert [one["state"] for one in ended["items"]] == ["done", "done"], ended
    assert "already satisfied" in ended["items"][0]["output"]
    assert "Successfully installed toy-1.0" in ended["items"][1]["output"]
    assert until(lambda: not lab.preview(request)["packages"]["missing"], what="nothing is missing")

    task = lab.create(request)
    assert lab.platform.until_final(task)["status"] == "succeeded"
    for rank in range(2):
        assert lab.platform.log(task, rank).splitlines()[-1] == f"rank {rank} has toy 1.0"


def test_a_restarted_container_invalidates_its_survey(lab: Lab) -> None:
    ids = ",".join(lab.ids)

    def compared() -> Any:
        return lab.platform.get("/dev-environments/packages", ids=ids)

    until(lambda: not compared()["looking"], what="the packages are known")
    before = compared()["environments"]
    assert [one["python"] for one in before] == [PYTHON] * 2
    lab.install("second", "kit")
    lab.cluster.kill_container(lab.pod("second"))
    until(
        lambda: compared()["environments"][1]["packageCount"] == before[1]["packageCount"] + 1, what="it is looked at"
    )
    assert compared()["environments"][0]["lookedAt"] == before[0]["lookedAt"]


def test_the_command_compares_and_installs(lab: Lab, tmp_path: Path) -> None:
    lab.install("first", "gear")
    done = fermi(lab.platform, tmp_path, "environments", "packages", *NAMES, "--anew")
    assert done.returncode == 0, done.stderr
    assert "gear" in done.stdout
    done = fermi(lab.platform, tmp_path, "environments", "level", *NAMES, "--yes")
    assert done.returncode == 0, done.stderr
    assert "gear-1.0" in done.stdout
    done = fermi(lab.platform, tmp_path, "environments", "packages", *NAMES)
    assert "The environments have the same packages." in done.stdout


def test_a_preview_preloads_pytorch_in_both_and_ranks_are_forked_from_it(lab: Lab, tmp_path: Path) -> None:
    request = lab.request("import os, sys\nprint('torch' in sys.modules, os.environ['RANK'])\n")
    done = fermi(lab.platform, tmp_path, "environments", "warm", *NAMES, "on")
    assert done.returncode == 0, done.stderr
    lab.preview(request)

    def standing() -> list[Any] | None:
        found = [lab.platform.get(f"/dev-environments/{key}")["standby"] for key in lab.ids]
        return found if {one["state"] for one in found} == {"standing"} else None

    found: list[Any] | None = until(standing, seconds=180, what="a process stands by in both")
    assert all(one["memoryBytes"] > 10 << 20 and one["until"] for one in found or ())
    entered = lab.count_entries()
    for _ in range(5):
        standing()
    assert lab.count_entries() == entered, "one that only stands by is not asked"
    task = lab.create(request)
    assert lab.platform.until_final(task)["status"] == "succeeded"
    assert [lab.platform.log(task, rank).splitlines()[-1] for rank in range(2)] == ["True 0", "True 1"]
    assert "MiB" in fermi(lab.platform, tmp_path, "environments", "show", "first").stdout
    done = fermi(lab.platform, tmp_path, "environments", "warm", *NAMES, "off")
    assert done.returncode == 0, done.stderr
    until(lambda: not lab.list_standby_pods(), what="nothing stands by any more")

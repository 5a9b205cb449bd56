"""Whoever runs the tests: no test reads what that person keeps."""

import os
import subprocess
import sys
from pathlib import Path

from tests.exported_scripts import ROOT

RUN = """
import os, subprocess
from tests.clean_environment import forget_variables
forget_variables()
home = os.environ["HOME"]
print(home, os.path.realpath(os.path.join(home, ".cache")), sorted(os.listdir(home)), flush=True)
for words in (["-l", "-c"], ["-i", "-c"], ["-c"]):
    subprocess.run(["bash", *words, "echo a shell in $HOME"], stdin=subprocess.DEVNULL, check=True)
"""


def test_shells_of_the_tests_do_not_run_the_users_profile(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    for path in (profile, tmp_path / ".bash_profile", tmp_path / ".bashrc"):
        path.write_text("echo the profile of a person\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FERMI_TEST", "XDG"))}
    env |= {"HOME": str(tmp_path), "BASH_ENV": str(profile), "ENV": str(profile), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", RUN], env=env, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    first, *shells = run.stdout.splitlines()
    home, cache, names = first.split(" ", 2)
    assert (cache, names) == (str(tmp_path / ".cache"), "['.cache']")
    assert shells == [f"a shell in {home}"] * 3
    assert not Path(home).exists(), "it goes with the tests"
    assert (tmp_path / ".cache").is_dir(), "and that does not"


def test_tests_have_a_temporary_home() -> None:
    assert os.environ["HOME"] == os.environ["FERMI_TEST_HOME"]
    assert not list(Path.home().glob(".*profile")) + list(Path.home().glob(".*rc"))

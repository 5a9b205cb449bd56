"""Test what is shipped for deploying (`make test-deploy`): the image, docker-compose.yml, the systemd unit.

On Debian as root a Docker engine is installed where there is none; the tests start one of their own from it. What a
machine still lacks is skipped with the reason.
"""

import os
import subprocess
import sys

from scripts.test import ROOT, has_program, install_missing

NEEDS = {
    "docker.io": lambda: has_program("dockerd")() or succeeds("info"),
    "docker-compose": lambda: has_program("docker-compose")() or succeeds("compose", "version"),
    "mmdebstrap": has_program("mmdebstrap"),
}


def succeeds(*words: str) -> bool:
    try:
        return subprocess.run(["docker", *words], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main() -> int:
    # Of the packages, only programs are wanted: 1 is the run level in which Debian's scripts start no service.
    os.environ["RUNLEVEL"] = "1"
    install_missing(NEEDS)
    del os.environ["RUNLEVEL"]
    command = [sys.executable, "-m", "pytest", "tests/deploy", "-v"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "FERMI_TEST_DEPLOY": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

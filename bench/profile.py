"""Where the time of a request goes: `python -m bench.profile WHAT`, on temporary data with 500 running tasks.

WHAT is one of the requests of the `api` section (the beginning of its name is enough), or a path of the API
(`/api/v1/workers`). Printed are the processor time of a request in Django alone, its SQL statements, and the functions
in which the rest is spent.
"""

import subprocess
import sys

from bench.api import TASKS
from bench.temp_platform import ROOT, build_environment, make_temp_folder, run_in_django
from bench.web import serve_broker


def main(what: str) -> int:
    with make_temp_folder() as data:
        run_in_django(data, "tasks", str(TASKS))
        with serve_broker(data):
            command = [sys.executable, "-m", "bench.profiled", what]
            env = build_environment(data, FERMI_LOG_LEVEL="WARNING")
            return subprocess.run(command, check=False, env=env, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "list"))

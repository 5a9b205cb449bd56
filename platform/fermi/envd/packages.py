"""Prepares packages in a process of its own, because the daemon has only one thread:

    python -m fermi.envd.packages PYTHON REQUIREMENTS CACHE

prints a line of JSON for each step (`{"say": …}`) and one in the end (`{"folder": …}` or `{"code": …, "params": …}`).
Building from source runs code of the environment, and is confined in the same way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.runner.package_cache import PackagesError, prepare_packages


def main(python: str, requirements: str, cache: str) -> int:
    """Prepare the packages and return the exit code."""

    def say(report: Mapping[str, Any]) -> None:
        print(json.dumps(report), flush=True)

    try:
        folder = prepare_packages(python, requirements, "pip", Path(cache), lambda line: say({"say": line}))
    except PackagesError as error:
        output = str(error.params.get("output") or error.code)
        say({"code": "PACKAGES_FAILED", "params": {"output": output[-2000:]}})
        return 1
    except OSError as error:
        say({"code": "PACKAGES_FAILED", "params": {"output": f"{error.filename or cache}: {error.strerror}"}})
        return 1
    say({"folder": str(folder)})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))

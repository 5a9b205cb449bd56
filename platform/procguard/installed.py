"""The packages that ProcGuard's commands need, where this clone has not been set up or another Python runs it. Standard
library only. Where the package was installed by pip there is no clone, and the packages are there."""

import os
import sys
from pathlib import Path
from typing import NoReturn

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup.py"


def become_set_up(target: str) -> NoReturn:
    """Installs what is missing and begins this command anew with it. `target`: of scripts/setup.py."""
    os.execv(sys.executable, [sys.executable, str(SETUP), target, *sys.argv[1:]])

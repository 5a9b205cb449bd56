"""Installation of the packages that ProcGuard's commands need, where this clone has not been set up or another Python
runs it. Standard library only. Where the package was installed by pip there is no clone, and the packages are present.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

SETUP_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup.py"


def exec_setup(target: str) -> NoReturn:
    """Replace this process by scripts/setup.py, which installs what is missing and runs the command `target` again."""
    os.execv(sys.executable, [sys.executable, str(SETUP_SCRIPT), target, *sys.argv[1:]])

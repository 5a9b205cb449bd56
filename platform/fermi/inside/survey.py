"""What an environment has, as far as a program inside of it can see. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any


def take(request: dict[str, Any]) -> dict[str, Any]:
    """Returns what training here depends on. Cheap: it imports nothing of the training stack."""
    return {
        "python": sys.executable,
        "version": platform.python_version(),
        "user": os.getuid(),
        "host": platform.node(),
        "cwd": os.getcwd(),
    }

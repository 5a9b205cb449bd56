#!/usr/bin/env python
"""Django's command line, with the repository root and platform/ on the import path."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
    from django.core.management import execute_from_command_line

    from fermi.runner.processes import refuse_tracers

    refuse_tracers()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

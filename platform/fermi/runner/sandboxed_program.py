"""Runs one program in a sandbox, and exits as it does.

    python -m fermi.runner.sandboxed_program

Standard input begins with a line of JSON; the rest is the program's own input:

    {"command": ["…"], "env": {…}, "name": "task-x", "confine": {…}}

`env`: all variables of the program, except those that the sandbox sets (`sandbox.py`); without `confine` it can access
what this process can. Standard library only, Python 3.9 or later.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NoReturn

from fermi.runner import processes
from fermi.runner.exit_codes import CANNOT_START, NOT_FOUND, to_shell_code

MAX_ORDER_BYTES = 1 << 20  # bytes


def read_order() -> dict[str, Any]:
    """Return the first line of standard input, without reading a byte after it. Raises ValueError."""
    said = bytearray()
    while not said.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte or len(said) >= MAX_ORDER_BYTES:
            raise ValueError("no order")
        said += byte
    order = json.loads(said)
    if not isinstance(order, dict):
        raise ValueError("no order")
    return order


def run_program(order: dict[str, Any]) -> int:
    """Run the program and return its exit code, as a shell reports it."""
    confinement = None
    if order.get("confine"):
        from fermi.runner.sandbox import Sandbox

        confinement = Sandbox(order["confine"], str(order.get("name") or "confined"), os.environ)
    try:
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            _exec_program(order, confinement, own)
        return to_shell_code(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    finally:
        if confinement:
            confinement.close()


def _exec_program(order: dict[str, Any], confinement: Any, parent: int) -> NoReturn:
    command, env = order["command"], dict(order.get("env") or {})
    try:
        os.setsid()
        if confinement:
            env = confinement.environment(env)
            confinement.enter(1)
        processes.die_with_parent()  # after a change of user
        processes.allow_tracing()
        if os.getppid() != parent:
            os._exit(CANNOT_START)
        os.chdir("/")
        os.execvpe(command[0], command, env)
    except FileNotFoundError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND)
    except BaseException as error:
        os.write(2, f"{command[0]}: {getattr(error, 'strerror', None) or error}\n".encode())
    os._exit(CANNOT_START)


def main() -> int:
    """Run the order on standard input and return the exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        return run_program(read_order())
    except (ValueError, KeyError, OSError) as error:
        print(f"fermi: {error}", file=sys.stderr)
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())

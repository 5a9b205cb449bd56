"""`python -m procguard.worker_launcher --worker-id gn6-0 --manager-url http://… --token …`: runs `fermi worker` in its
place.

ProcGuard's launcher also took the command to run and its variables. In Fermi those belong to a group. Unknown options
are passed to `fermi worker` unchanged.
"""

import argparse
import itertools
import os
import shlex
import sys

from procguard.installed import exec_setup

try:
    from procguard.texts import render_text
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    exec_setup("worker-launcher")

FERMI_OPTIONS = {"worker_id": "--id", "manager_url": "--server", "working_dir": "--workspace"}
UNSUPPORTED_FLAGS = ("--env", "--heartbeat-interval", "--log-level", "--slurm", "--gpu-count", "--auto-start")


def translate_arguments(arguments: list[str]) -> tuple[list[str], list[str], str]:
    """Return the arguments of `fermi worker`, the flags that have no counterpart, and the command that a group is to
    run."""
    env = os.environ.get
    parser = argparse.ArgumentParser("python -m procguard.worker_launcher", description=__doc__, allow_abbrev=False)
    for name, ours in FERMI_OPTIONS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, default=env(name.upper()), help=f"fermi worker {ours}")
    parser.add_argument("--command", default=env("COMMAND"), help="fermi groups create --script")
    for flag in UNSUPPORTED_FLAGS:
        parser.add_argument(flag, nargs="?", const=True, help=render_text(flag))
    given, rest = parser.parse_known_args(arguments)
    words = [word for name, ours in FERMI_OPTIONS.items() if getattr(given, name) for word in (ours, getattr(given, name))]
    others = [flag for flag in UNSUPPORTED_FLAGS if getattr(given, flag[2:].replace("-", "_")) is not None]
    return [*words, *rest], others, given.command or ""


def build_group_command(command: str, worker: str) -> str:
    """Return the command that creates a group which runs `command`."""
    words = shlex.split(command)
    if words and os.path.basename(words[0]).startswith("python"):
        words = words[1:]
    script, *args = words or ["train.py"]
    made = ["fermi", "groups", "create", "training", worker or "gn6-0", "--script", script]
    return shlex.join([*made, *(part for arg in args for part in ("--arg", arg))])


def main(arguments: list[str]) -> int:
    """Replace this process by `fermi worker`; return 2 where flags have no counterpart."""
    words, others, command = translate_arguments(arguments)
    if others:
        print("\n  ".join([render_text("flags"), *(f"{flag}: {render_text(flag)}" for flag in others)]), file=sys.stderr)
        print(render_text("instead", command=shlex.join(["fermi", "worker", *words])), file=sys.stderr)
        return 2
    if command:
        worker = next((word for before, word in itertools.pairwise(words) if before == "--id"), "")
        print(render_text("not_started", command=build_group_command(command, worker)), file=sys.stderr, flush=True)
    return os.execv(sys.executable, [sys.executable, "-m", "fermi.cli", "worker", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

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

from procguard.installed import become_set_up

try:
    from procguard.texts import say
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    become_set_up("worker-launcher")

OURS = {"worker_id": "--id", "manager_url": "--server", "working_dir": "--workspace"}
INSTEAD = ("--env", "--heartbeat-interval", "--log-level", "--slurm", "--gpu-count", "--auto-start")


def translated(arguments: list[str]) -> tuple[list[str], list[str], str]:
    """Return the arguments of `fermi worker`, the flags that have no counterpart, and the command that a group is to
    run."""
    env = os.environ.get
    parser = argparse.ArgumentParser("python -m procguard.worker_launcher", description=__doc__, allow_abbrev=False)
    for name, ours in OURS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, default=env(name.upper()), help=f"fermi worker {ours}")
    parser.add_argument("--command", default=env("COMMAND"), help="fermi groups create --script")
    for flag in INSTEAD:
        parser.add_argument(flag, nargs="?", const=True, help=say(flag))
    given, rest = parser.parse_known_args(arguments)
    words = [word for name, ours in OURS.items() if getattr(given, name) for word in (ours, getattr(given, name))]
    others = [flag for flag in INSTEAD if getattr(given, flag[2:].replace("-", "_")) is not None]
    return [*words, *rest], others, given.command or ""


def group(command: str, worker: str) -> str:
    """Return the command that creates a group which runs `command`."""
    words = shlex.split(command)
    if words and os.path.basename(words[0]).startswith("python"):
        words = words[1:]
    script, *args = words or ["train.py"]
    made = ["fermi", "groups", "create", "training", worker or "gn6-0", "--script", script]
    return shlex.join([*made, *(part for arg in args for part in ("--arg", arg))])


def main(arguments: list[str]) -> int:
    """Replace this process by `fermi worker`; return 2 where flags have no counterpart."""
    words, others, command = translated(arguments)
    if others:
        print("\n  ".join([say("flags"), *(f"{flag}: {say(flag)}" for flag in others)]), file=sys.stderr)
        print(say("instead", command=shlex.join(["fermi", "worker", *words])), file=sys.stderr)
        return 2
    if command:
        worker = next((word for before, word in itertools.pairwise(words) if before == "--id"), "")
        print(say("not_started", command=group(command, worker)), file=sys.stderr, flush=True)
    return os.execv(sys.executable, [sys.executable, "-m", "fermi.cli", "worker", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

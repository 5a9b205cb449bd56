"""`python -m procguard --config configs/procguard_config.yaml`: reads the file, then runs `make up` in its place."""

import os
import sys
from pathlib import Path

from procguard.installed import SETUP, become_set_up

CONFIG = "configs/procguard_config.yaml"
INSTEAD = ("--daemon", "--decoupled", "--slurm", "--gpu-count")


def main(arguments: list[str]) -> int:
    """Replace this process by the platform; return 2 where the arguments or the file are invalid, or there is no clone
    to start."""
    import argparse

    from procguard.config import Problems, load
    from procguard.texts import say

    if not SETUP.is_file():
        print(say("no_clone"), file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser("python -m procguard", description=__doc__, allow_abbrev=False)
    parser.add_argument("--config", default=CONFIG, metavar="FILE")
    for flag in INSTEAD:
        parser.add_argument(flag, nargs="?", const=True, help=say(flag))
    args = parser.parse_args(arguments)
    given = [flag for flag in INSTEAD if getattr(args, flag[2:].replace("-", "_")) is not None]
    try:
        if given:
            raise Problems("\n  ".join([say("flags"), *(f"{flag}: {say(flag)}" for flag in given)]))
        variables, ignored = load(Path(args.config))
    except Problems as problems:
        print(problems, file=sys.stderr)
        return 2
    if ignored:
        print(
            "\n  ".join([say("ignored", path=args.config, count=len(ignored)), *ignored]), file=sys.stderr, flush=True
        )
    for variable, (key, value) in variables.items():
        other = os.environ.setdefault(variable, value)
        told = say("read", key=key, value=value, variable=variable)
        print(told if other == value else say("kept", key=key, value=value, variable=variable, other=other), flush=True)
    return os.execv(sys.executable, [sys.executable, str(SETUP), "up"])


if __name__ == "__main__":
    try:
        import yaml  # noqa: F401

        import fermi  # noqa: F401
    except ModuleNotFoundError:
        become_set_up("procguard")
    sys.exit(main(sys.argv[1:]))

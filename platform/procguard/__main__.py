"""`python -m procguard --config configs/procguard_config.yaml`: reads the file, then runs `make up` in its place."""

import os
import sys
from pathlib import Path

from procguard.installed import SETUP_SCRIPT, exec_setup

DEFAULT_CONFIG = "configs/procguard_config.yaml"
UNSUPPORTED_FLAGS = ("--daemon", "--decoupled", "--slurm", "--gpu-count")


def main(arguments: list[str]) -> int:
    """Replace this process by the platform; return 2 where the arguments or the file are invalid, or there is no clone
    to start."""
    import argparse

    from procguard.config import ConfigProblemsError, load_config
    from procguard.texts import render_text

    if not SETUP_SCRIPT.is_file():
        print(render_text("no_clone"), file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser("python -m procguard", description=__doc__, allow_abbrev=False)
    parser.add_argument("--config", default=DEFAULT_CONFIG, metavar="FILE")
    for flag in UNSUPPORTED_FLAGS:
        parser.add_argument(flag, nargs="?", const=True, help=render_text(flag))
    args = parser.parse_args(arguments)
    given = [flag for flag in UNSUPPORTED_FLAGS if getattr(args, flag[2:].replace("-", "_")) is not None]
    try:
        if given:
            raise ConfigProblemsError("\n  ".join([render_text("flags"), *(f"{flag}: {render_text(flag)}" for flag in given)]))
        variables, ignored = load_config(Path(args.config))
    except ConfigProblemsError as problems:
        print(problems, file=sys.stderr)
        return 2
    if ignored:
        print(
            "\n  ".join([render_text("ignored", path=args.config, count=len(ignored)), *ignored]), file=sys.stderr, flush=True
        )
    for variable, (key, value) in variables.items():
        other = os.environ.setdefault(variable, value)
        told = render_text("read", key=key, value=value, variable=variable)
        print(told if other == value else render_text("kept", key=key, value=value, variable=variable, other=other), flush=True)
    return os.execv(sys.executable, [sys.executable, str(SETUP_SCRIPT), "up"])


if __name__ == "__main__":
    try:
        import yaml  # noqa: F401

        import fermi  # noqa: F401
    except ModuleNotFoundError:
        exec_setup("procguard")
    sys.exit(main(sys.argv[1:]))

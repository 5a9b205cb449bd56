"""Values that a command line gives to a script: `--lr 0.1`, `--lr=0.1`, `--amp`, `model.depth=3`. Pure."""

import re
from collections.abc import Sequence

from fermi.jobs.spec import SCRIPT_SUFFIXES, Entrypoint

MAX_VALUE_LENGTH = 200
POSITION = "argument "
"""Begins the name of a word that has none."""
_LAUNCHERS = ("torch.distributed.", "accelerate.commands.", "deepspeed.launcher.", "horovod.runner")
"""Modules that run a script, which is named behind their own options."""
_WORD = re.compile(r"[+~]*[A-Za-z_][\w.]*")


def parse_arguments(words: Sequence[str]) -> dict[str, str]:
    """Return the values of options (`--lr 0.1`, `--lr=0.1`, `--amp`) and of `name=value` words, by name; other words
    are named by their position, `argument 1`."""
    found, position = dict[str, str](), 0
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--") and len(name) > 2:
            follows = words[place + 1] if place + 1 < len(words) else "--"
            is_value = not follows.startswith("--") and not equals
            found[name[2:].replace("-", "_")] = value if equals else follows if is_value else "true"
        elif equals and _WORD.fullmatch(name):
            found[name.lstrip("+~")] = value
        elif not word.startswith("-") and not (place and _awaits_value(words[place - 1])):
            position += 1
            found[f"{POSITION}{position}"] = word
    return {name: value[:MAX_VALUE_LENGTH] for name, value in found.items()}


def list_named_arguments(entrypoint: Entrypoint) -> dict[str, str]:
    """Return the values that a script gets by name, without those of what starts it."""
    words = [*_cut_launcher(entrypoint.command), *entrypoint.args]
    return {name: value for name, value in parse_arguments(words).items() if not name.startswith(POSITION)}


def _cut_launcher(command: Sequence[str]) -> Sequence[str]:
    """Return the words of a command behind the script or the module that it runs; all but the first where it names
    neither."""
    for place, word in enumerate(command):
        if word.endswith(SCRIPT_SUFFIXES) and not word.startswith("-"):
            return command[place + 1 :]
        if word == "-m" and not "".join(command[place + 1 : place + 2]).startswith(_LAUNCHERS):
            return command[place + 2 :]
    return command[1:]


def _awaits_value(word: str) -> bool:
    return word.startswith("-") and "=" not in word

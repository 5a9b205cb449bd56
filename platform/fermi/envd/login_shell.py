"""A login shell, and what it does while it starts. Standard library only, Python 3.9 or later: it also runs next to
ranks.

Programs that a user's startup files start (a version manager that waits for a lock, a folder of a server that does not
answer) delay the prompt and print nothing. The files are those that the shells' manuals name: INVOCATION in bash(1),
STARTUP/SHUTDOWN FILES in zsh(1), "Configuration files" in fish(1).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from typing import Any

from fermi.runner import processes

MAX_COMMAND_LENGTH = 200
"""Characters of a command line."""
_LOGIN = 'export PATH="$FERMI_PATH"; exec "$0" -i'
"""/etc/profile sets PATH again, without the environment's own packages."""

_FISH = (("~/.config/fish/config.fish",),)
_FILES = {
    "bash": (("/etc/profile",), ("~/.bash_profile", "~/.bash_login", "~/.profile"), ("~/.bashrc",)),
    "zsh": (("~/.zshenv",), ("~/.zprofile",), ("~/.zlogin",)),
    "fish": _FISH,
    "sh": (("/etc/profile",), ("~/.profile",)),
}
"""Files of a login shell, in their order; of several names in one place, the first that exists is read. For bash also
the file that the others usually read."""
_FILES_INTERACTIVE = {
    "bash": (("/etc/bash.bashrc",), ("~/.bashrc",)),
    "zsh": (("~/.zshenv",), ("~/.zshrc",)),
    "fish": _FISH,
}


def find_shell() -> str:
    """Return the shell of our own user, whoever the processes run as; bash if it exists."""
    with contextlib.suppress(KeyError):
        own = pwd.getpwuid(os.geteuid()).pw_shell
        if os.path.basename(own) in ("bash", "zsh", "fish") and os.access(own, os.X_OK):
            return own
    return shutil.which("bash") or "/bin/sh"


def build_login_command() -> list[str]:
    """Return the command that starts a login shell with the environment's PATH."""
    shell = find_shell()
    return [shell, "-l", "-c", _LOGIN, shell]


def describe_start(pid: int) -> dict[str, Any]:
    """Return what the login shell `pid`, which has printed nothing, is doing: the startup `files` that it reads, and
    the newest `command` of its session ("": there is none)."""
    words = processes.read_words(pid, "cmdline")
    name = os.path.basename(words[0]) if words else ""
    home = next((line[5:] for line in processes.read_words(pid, "environ") if line.startswith("HOME=")), "~")
    known = (_FILES if "-l" in words else _FILES_INTERACTIVE).get(name, ())
    there = [[file for file in files if os.path.exists(file.replace("~", home, 1))] for files in known]
    members = [
        (int(fields[19]), member)
        for member, fields in processes.list_living_processes()
        if int(fields[3]) == pid and member != pid
    ]
    command = " ".join(processes.read_words(max(members)[1], "cmdline")) if members else ""
    return {"files": [files[0] for files in there if files], "command": command[:MAX_COMMAND_LENGTH]}

"""What a shell hands down to all that it starts, where it must not reach what a test starts."""

import atexit
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

OF_A_SHELL = re.compile(
    r"(LOCAL_|NODE_|GROUP_|CROSS_|)(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|SLURM_\w+|PET_\w+"  # a job's
    r"|((https?|all|ftp)_proxy)|KUBECONFIG|NO_COLOR|FORCE_COLOR|COLUMNS|LC_ALL|LC_MESSAGES|LANGUAGE"
    r"|BASH_ENV|ENV|ZDOTDIR",  # files that a shell reads first
    re.IGNORECASE,
)
"""Variables that change, rightly, what the commands and clients do. Tests of that set them; no other test has any."""


def forget_variables() -> None:
    for name in filter(OF_A_SHELL.fullmatch, list(os.environ)):
        del os.environ[name]
    os.environ["LANG"] = "C.UTF-8"  # whatever this machine's people read
    if "FERMI_TEST_HOME" not in os.environ:
        os.environ["FERMI_TEST_HOME"] = home = make_home(os.path.expanduser("~"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["HOME"] = os.environ["FERMI_TEST_HOME"]
    os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ["HOME"], ".config")


def make_home(of_a_person: str) -> str:
    """Makes and returns a folder for HOME that has nothing of a person's: no profile, which each login shell would run,
    no server, token or language. What was downloaded once is found there: `.cache` is the person's own."""
    home, cache = tempfile.mkdtemp(prefix="fermi-test-home-"), os.path.join(of_a_person, ".cache")
    with suppress(OSError):
        os.makedirs(cache, exist_ok=True)
        os.symlink(cache, os.path.join(home, ".cache"))
    return home


@contextmanager
def as_in_a_terminal() -> Iterator[None]:
    """What a shell ignores its children ignore too (`nohup`: SIGHUP; `&` in a script: SIGINT), and a shell below can
    never trap it: whoever sends a child such a signal starts it in here, with the default. The test process goes on
    ignoring it: a handler that does nothing is no handler any more after exec."""
    ignored = [n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT) if signal.getsignal(n) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """For files and daemons that several users share."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)

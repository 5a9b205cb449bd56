"""What a shell hands down to all that it starts, where it must not reach what a test starts."""

import atexit
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

OF_A_SHELL = re.compile(
    r"(LOCAL_|NODE_|GROUP_|CROSS_|)(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|SLURM_\w+|PET_\w+"  # a job's
    r"|((https?|all|ftp)_proxy)|KUBECONFIG|NO_COLOR|FORCE_COLOR|COLUMNS|LC_ALL|LC_MESSAGES|LANGUAGE",
    re.IGNORECASE,
)
"""Variables that change, rightly, what the commands and clients do. Tests of that set them; no other test has any."""


def forget_variables() -> None:
    for name in filter(OF_A_SHELL.fullmatch, list(os.environ)):
        del os.environ[name]
    os.environ["LANG"] = "C.UTF-8"  # whatever this machine's people read
    if "FERMI_TEST_CONFIG" not in os.environ:  # and whatever they keep: a server, a token, a language
        os.environ["FERMI_TEST_CONFIG"] = tempfile.mkdtemp(prefix="fermi-test-config-")
        atexit.register(shutil.rmtree, os.environ["FERMI_TEST_CONFIG"], ignore_errors=True)
    os.environ["XDG_CONFIG_HOME"] = os.environ["FERMI_TEST_CONFIG"]


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

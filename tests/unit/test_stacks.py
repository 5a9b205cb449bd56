"""What a rank's stacks say, and who is asked for them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fermi.runner import stacks
from fermi.runner.stacks import Frame
from tests.waiting import until

DUMP = """\
Thread 0x00007f1e (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1038 in _bootstrap_inner
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f2a [python] (most recent call first):
  File "/srv/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 733 in __next__
  File "/srv/project/code/data.py", line 88 in load_batch
  File "/srv/project/train.py", line 120 in <module>
"""


def test_the_main_thread_is_told_from_others_and_the_users_own_line_from_libraries() -> None:
    frames = stacks.threads("\0\0" + DUMP)[0]
    assert frames[1] == Frame("/srv/project/code/data.py", 88, "load_batch")
    assert stacks.own(frames, "/srv/project") == "code/data.py:88 in load_batch"
    assert stacks.short(frames, "/srv/project") == [
        "__next__ (torch/utils/data/dataloader.py:733)", "load_batch (code/data.py:88)", "<module> (train.py:120)"
    ]  # fmt: skip
    assert stacks.own(frames, "/elsewhere") == "data.py:88 in load_batch"


def test_threads_of_the_users_own_are_told_beside_it() -> None:
    own = 'Thread 0x2 (most recent call first):\n  File "/srv/project/train.py", line 7 in refresh\n' + "\n".join(
        DUMP.splitlines()[2:4]
    )
    _, *others = stacks.threads(f"{own}\n\n{DUMP}")
    assert stacks.beside(others, "/srv/project") == ["train.py:7 in refresh"]


@pytest.mark.parametrize(
    "text", ["", "no stack", "Thread 0x1 (most recent call first):\n  <no Python frame>", "\xff" * 9]
)
def test_what_is_no_dump_has_no_frames(text: str) -> None:
    assert stacks.threads(text) == []
    assert stacks.own([], "/") == ""


def test_taking_leave_is_told_by_the_function_of_the_library_alone() -> None:
    assert stacks.take_leave(["wait (threading.py:1)", "destroy_process_group (torch/distributed/c10d.py:2)"])
    assert not stacks.take_leave(["destroy_process_group (train.py:2)", "shutdown (threading.py:1)"])


ASKED = """
import faulthandler, os, signal, sys
if "handler" in sys.argv:
    faulthandler.register(signal.SIGURG, open(int(sys.argv[1]), "wb", closefd=False), all_threads=True)
def load_batch():
    print(flush=True)
    signal.sigwait([signal.SIGUSR2])
load_batch()
"""


def test_a_process_is_asked_that_has_a_handler_and_is_of_the_session(tmp_path: Path) -> None:
    file = os.memfd_create("stacks")
    script = tmp_path / "train.py"
    script.write_text(ASKED)
    command = [sys.executable, str(script), str(file)]
    ranks = [
        subprocess.Popen([*command, *more], stdout=subprocess.PIPE, pass_fds=[file], start_new_session=True)
        for more in (["handler"], [])
    ]
    try:
        for rank in ranks:
            assert rank.stdout
            assert rank.stdout.readline() == b"\n"
        with_handler, without = ranks
        assert not stacks.ask(without.pid, without.pid, file), "it has no handler"
        assert not stacks.ask(with_handler.pid, without.pid, file), "it is of another session"
        assert not stacks.ask(1 << 30, 1 << 30, file), "there is none"
        assert stacks.ask(with_handler.pid, with_handler.pid, file)
        frames, *_ = until(lambda: stacks.read(file), what="the answer")
        assert stacks.own(frames, str(tmp_path)).endswith(" in load_batch")
    finally:
        os.close(file)
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.communicate()

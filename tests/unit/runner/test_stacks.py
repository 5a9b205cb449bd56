"""What a rank's stacks say, and who is asked for them."""

import os

import pytest

from fermi.probe import setup
from fermi.probe.shared_page import MAGIC, SharedPage
from fermi.runner import stacks
from fermi.runner.stacks import StackFrame

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


def test_the_main_thread_and_the_users_line_are_found() -> None:
    frames = stacks.parse_threads("\0\0" + DUMP)[0]
    assert frames[1] == StackFrame("/srv/project/code/data.py", 88, "load_batch")
    assert stacks.find_own_line(frames, "/srv/project") == "code/data.py:88 in load_batch"
    assert stacks.format_frames(frames, "/srv/project") == [
        "__next__ (torch/utils/data/dataloader.py:733)", "load_batch (code/data.py:88)", "<module> (train.py:120)"
    ]  # fmt: skip
    assert stacks.find_own_line(frames, "/elsewhere") == "data.py:88 in load_batch"


def test_other_threads_of_the_user_are_reported() -> None:
    own = 'Thread 0x2 (most recent call first):\n  File "/srv/project/train.py", line 7 in refresh\n' + "\n".join(
        DUMP.splitlines()[2:4]
    )
    _, *others = stacks.parse_threads(f"{own}\n\n{DUMP}")
    assert stacks.list_thread_places(others, "/srv/project") == ["train.py:7 in refresh"]


def test_the_thread_that_writes_the_stacks_is_left_out() -> None:
    writer = 'Current thread 0x3 (most recent call first):\n  File "/opt/fermi/probe/stack_writer.py", line 9 in _run'
    assert len(stacks.parse_threads(f"{writer}\n\n{DUMP}")) == len(stacks.parse_threads(DUMP)) == 2


@pytest.mark.parametrize(
    "text", ["", "no stack", "Thread 0x1 (most recent call first):\n  <no Python frame>", "\xff" * 9]
)
def test_invalid_dumps_have_no_frames(text: str) -> None:
    assert stacks.parse_threads(text) == []
    assert stacks.find_own_line([], "/") == ""


def test_teardown_is_recognized_by_the_librarys_function() -> None:
    assert stacks.has_shutdown_frame(["wait (threading.py:1)", "destroy_process_group (torch/distributed/c10d.py:2)"])
    assert not stacks.has_shutdown_frame(["destroy_process_group (train.py:2)", "shutdown (threading.py:1)"])


def test_a_signalled_process_is_of_the_session_with_a_handler_and_an_interpreter() -> None:
    given = setup.create_rank_files()
    seen = SharedPage(given.page)
    seen.number("magic", MAGIC)
    seen.number("pid", os.getpid())
    assert not stacks.signal_stack_writer(seen.read(), os.getsid(0), given.stacks), "no thread answers there"
    seen.number("answers", os.getpid())
    assert not stacks.signal_stack_writer(seen.read(), os.getsid(0), given.stacks), "it has no handler"
    assert not stacks.signal_stack_writer(seen.read(), 1, given.stacks), "it is of another session"
    seen.number("pid", 1 << 40)
    assert not stacks.signal_stack_writer(seen.read(), os.getsid(0), given.stacks), "there is none"
    given.close()

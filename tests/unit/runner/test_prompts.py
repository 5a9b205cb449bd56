"""Questions of a script: from its process, and from the end of its output."""

import json
from pathlib import Path
from typing import Any

import pytest

from fermi.runner.prompts import IDLE_SECONDS, QUIET_SECONDS, PromptDetector, find_question
from fermi.runner.record_frames import iterate_frames, strip_frames
from tests.unit.runner.test_node import run


class Output:
    def __init__(self) -> None:
        self.text = b""

    def size(self) -> int:
        return len(self.text)

    def tail(self) -> bytes:
        return self.text[-2048:]


@pytest.mark.parametrize(
    "line",
    [
        "continue? [y/n] ",
        "Do you wish to run the custom code? [y/N] ",
        "wandb: Enter your choice: ",
        "wandb: Paste an API key from your profile and hit enter: ",
        "(Pdb) ",
        "ipdb> ",
        ">>> ",
        "Press Enter to continue...",
        "Password: ",
        "git@host's password: ",
        "Username for 'https://github.com': ",
        "Enter passphrase for key '/root/.ssh/id_ed25519': ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        "\x1b[1mProceed ([y]/n)? \x1b[0m",
        "Overwrite the output directory? ",
    ],
)
def test_a_question_that_is_not_finished_is_recognized(line: str) -> None:
    assert find_question(b"loading\n" + line.encode())


@pytest.mark.parametrize(
    "line",
    [
        "",
        " 45%|████▌     | 450/1000 [00:10<00:12, 44.0it/s, loss=2.31]",
        "Epoch 1:  10%|█         | 1/10",
        "Downloading data: ",
        "Loading checkpoint shards:  50%",
        "step 10, loss 2.3",
        "compiling ...",
        "continue? [y/n] yes\n",
        "What is 2+2?\n",
        "iter 10: loss 2.3 -> 2.1",
    ],
)
def test_other_ends_of_an_output_are_no_questions(line: str) -> None:
    assert find_question(b"loading\n" + line.encode()) == ""


def test_a_question_is_named_once_it_has_waited_and_resolved_once_output_follows() -> None:
    output = Output()
    detector = PromptDetector(output, 0.0, lambda: 7.0)
    output.text = b"hello\nPassword: "
    assert detector.update(1.0) is None
    assert detector.update(1.0 + QUIET_SECONDS - IDLE_SECONDS) is None
    assert detector.update(QUIET_SECONDS) is None
    assert detector.update(1.0 + QUIET_SECONDS) == {"kind": "output", "text": "Password:"}
    assert detector.update(100.0) is None
    output.text += b"\n"
    assert detector.update(101.0) == {"kind": "answered", "text": "Password:"}
    assert detector.update(200.0) is None


def test_a_rank_that_computes_after_a_question_mark_does_not_ask() -> None:
    output, used = Output(), iter(range(100))
    detector = PromptDetector(output, 0.0, lambda: next(used))
    output.text = b"Is this the best model so far? "
    assert [detector.update(float(moment)) for moment in range(1, 60)] == [None] * 59
    output.text += b"yes\n"
    assert detector.update(60.0) is None


def test_a_call_of_input_is_recorded_and_gets_end_of_file(tmp_path: Path) -> None:
    run(tmp_path, """
try:
    input("continue? [y/n] ")
except EOFError as error:
    print('end of file', error.__traceback__.tb_next)
import pdb
print(repr(sys.stdin.read()))
try:
    pdb.Pdb().set_trace()
    left = 1
except BaseException as error:
    print(type(error).__name__)
""", 1, pulse=True)  # fmt: skip
    log = (tmp_path / "0.log").read_bytes()
    assert strip_frames(log).decode().splitlines()[0] == "continue? [y/n] end of file None"
    prompts: list[dict[str, Any]] = [json.loads(text).get("prompt") for *_, text in iterate_frames(log)]
    assert prompts[0] == {"kind": "input", "text": "continue? [y/n] "}
    assert prompts[1] == {"kind": "input", "text": "(Pdb) "}


def test_a_script_that_asks_again_and_again_is_recorded_a_few_times(tmp_path: Path) -> None:
    run(tmp_path, """
for _ in range(100):
    try:
        input("again? ")
    except EOFError:
        pass
""", 1, pulse=True)  # fmt: skip
    assert 1 <= len([*iterate_frames((tmp_path / "0.log").read_bytes())]) <= 10

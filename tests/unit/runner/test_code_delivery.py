"""How a node's runner hears and tells what it makes ready."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fermi.runner import code_delivery, pod
from fermi.runner.code_delivery import CodeDelivery, check_out_code, is_delivered
from tests import packages


@contextmanager
def saying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *batches: list[dict]) -> Iterator[tuple[CodeDelivery, int]]:
    """A process that says these, each batch once `more` gets a byte, and ends."""
    wait, more = os.pipe()

    def carry_out(spec, told: int, runner: int) -> None:
        for batch in batches:
            os.read(wait, 1)
            os.write(told, b"".join(json.dumps(one).encode() + b"\n" for one in batch))
        os._exit(0)

    monkeypatch.setattr(code_delivery, "_run_delivery", carry_out)
    found = CodeDelivery({"cwd": str(tmp_path / "code")})
    try:
        yield found, more
    finally:
        found.close()
        for descriptor in (wait, more):
            os.close(descriptor)


def doing(said: str, code: str = "CODE_PACKAGES_PREPARING") -> dict:
    return {"doing": {"code": code, "said": said}}


def test_a_new_step_is_reported_at_once_and_details_now_and_then(monkeypatch, tmp_path):
    monkeypatch.setattr(code_delivery, "REPORT_PERIOD_SECONDS", 3600.0)
    steps = [[doing("", "CODE_UNPACKING")], [doing("one"), doing("two")], [doing("three")], [doing("four")]]
    wake, never = os.pipe()
    told = []
    with saying(monkeypatch, tmp_path, *steps, []) as (found, more):
        for batch in steps:
            os.write(more, b".")
            told.append(found.listen(60.0, wake))
            assert found.doing == batch[-1]["doing"]
        assert told == [True, True, False, False]
        monkeypatch.setattr(code_delivery, "REPORT_PERIOD_SECONDS", 0.0)
        assert found.listen(0.0, wake), "the last words are told in the end"
    os.close(wake)
    os.close(never)


def test_an_ended_preparation_is_a_cause_with_its_folder(monkeypatch, tmp_path):
    wake, never = os.pipe()
    with saying(monkeypatch, tmp_path) as (found, _):
        found.listen(60.0, wake)
        assert found.is_over
        assert (found.failed["code"], found.failed["path"]) == ("CODE_NOT_UNPACKED", str(tmp_path / "code"))
    os.close(wake)
    os.close(never)


@pytest.mark.parametrize("ranks", [1, 8, 200])
def test_a_termination_message_keeps_file_and_end_of_the_error(monkeypatch, tmp_path, ranks):
    monkeypatch.setenv("FERMI_TERMINATION_LOG", str(tmp_path / "end"))
    why = "错误" * 700 + "no compiler"
    message = {
        "ranks": [[rank, None, None] for rank in range(ranks)], "cause": "CODE_PACKAGES_FAILED",
        "about": {"file": "requirements.txt", "why": why},
    }  # fmt: skip
    assert pod.write_termination_message(message, 70) == 70
    data = (tmp_path / "end").read_bytes()
    assert len(data) <= 4096
    said = json.loads(data)
    assert (said["cause"], said["about"]["file"]) == ("CODE_PACKAGES_FAILED", "requirements.txt")
    assert said["about"]["why"].endswith("no compiler")


def test_nothing_is_left_to_do_once_the_attempts_tree_is_set_up_and_needs_no_packages(tmp_path):
    archives, tree = tmp_path / "archives", tmp_path / "task" / "code"
    snapshot = packages.archive(archives, {"train.py": "", "requirements.txt": "tiny==1.0\n"})
    code = {"snapshot": snapshot, "folder": str(archives / snapshot), "requirements": "off"}
    spec = {"name": "task-x-1", "cwd": str(tree), "code": code}
    assert not is_delivered(spec)
    check_out_code(spec)
    assert is_delivered(spec)
    assert not is_delivered({**spec, "name": "task-x-2"})
    for requirements in ("auto", "requirements.txt", "absent.txt"):
        assert not is_delivered({**spec, "code": {**code, "requirements": requirements}})

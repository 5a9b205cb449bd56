"""Records on their way from a rank's queue into its log, with real processes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fermi.probe import records as probe_records
from fermi.probe import setup
from fermi.runner.pulse import LogFile
from fermi.runner.record_frames import iterate_frames, strip_frames
from fermi.runner.records import RankRecords, RecordQueue
from tests.unit.engines.kubernetes.test_runner import pod
from tests.unit.runner.test_foreground import Hand
from tests.unit.runner.test_node import run

PUT = """
import os, sys
module = sys.modules.get("_fermi_probe.records") or sys.modules["fermi.probe.records"]
module.add_record({"source": "wandb", "step": 1, "values": {"loss": 2.5}})
"""
BAR = (
    PUT
    + """
sys.stdout.write("one\\n\\r 10%")
sys.stdout.flush()
module.add_record({"source": "wandb", "step": 2, "values": {"loss": 2.25}})
time.sleep(float(os.environ.get("SECONDS", 0)))
sys.stdout.write("\\r100%\\n")
"""
)


def read(log: bytes) -> list[dict[str, Any]]:
    return [json.loads(record) for *_, record in iterate_frames(log)]


@pytest.mark.parametrize("fork", [False, True])
def test_records_of_a_rank_are_frames_in_its_log(fork: bool, tmp_path: Path) -> None:
    run(tmp_path, BAR, 2, pulse=True, fork=fork)
    for rank in (0, 1):
        log = (tmp_path / f"{rank}.log").read_bytes()
        assert strip_frames(log) == b"one\n\r 10%\r100%\n"
        assert [(one["step"], one["values"]) for one in read(log)] == [(1, {"loss": 2.5}), (2, {"loss": 2.25})]


def test_records_arrive_while_the_rank_runs_and_silent_as_it_may_be(tmp_path: Path) -> None:
    run(tmp_path, PUT + f"""
while b"2.5" not in open("{tmp_path}/0.log", "rb").read():
    time.sleep(0.05)
print("seen")
""", 1, pulse=True)  # fmt: skip
    log = (tmp_path / "0.log").read_bytes()
    assert strip_frames(log) == b"seen\n"
    assert log.index(b"2.5") < log.index(b"seen")


def test_frames_are_no_sign_of_progress(tmp_path: Path) -> None:
    [rank] = run(tmp_path, PUT + """
import atexit, threading
def log():
    while True:
        time.sleep(0.1)
        module.add_record({"source": "wandb", "values": {"loss": time.time()}})
threading.Thread(target=log, daemon=True).start()
for _ in range(600):
    time.sleep(0.1)
    try:
        status = open("node-0.status.json").read()
    except FileNotFoundError:
        continue
    if '"since"' in status:
        break
else:
    raise TimeoutError
""", 1, pulse=True, hang_seconds=2.0)  # fmt: skip
    assert rank["exit_code"] == 0, (tmp_path / "0.log").read_text()
    assert len(read((tmp_path / "0.log").read_bytes())) > 10


def test_a_pod_forwards_frames_but_not_as_last_words(tmp_path: Path) -> None:
    process = pod(tmp_path, "import time\n" + BAR + "\nsys.exit(3)", pulse=True)
    output, _ = process.communicate(timeout=60)
    pieces = [line for line in output.split(b"\n") if line.startswith(b"0")]
    log = b"".join(
        line.split(b":", 1)[1] if b"+" in line.split(b":")[0] else line.split(b":", 2)[2] + b"\n" for line in pieces
    )
    assert len(read(log)) == 2
    assert strip_frames(log) == b"one\n\r 10%\r100%\n"
    assert "fermi" not in json.loads((tmp_path / "end").read_text())["tail"]


def test_a_terminal_and_its_log_files_get_no_frames(tmp_path: Path) -> None:
    hand = Hand(tmp_path)
    started = hand("import time\n" + BAR, "--logs", str(tmp_path / "logs"), ranks=1)
    assert started.wait() == 0
    assert "\x1b" not in started.text
    assert (tmp_path / "logs" / "0.log").read_bytes() == b"one\n\r 10%\r100%\n"


def test_a_queue_is_freed_as_it_is_read_and_what_is_no_record_left_out() -> None:
    given = setup.create_rank_files()
    try:
        line = json.dumps({"source": "x", "parameters": {"text": "x" * 1000}}).encode() + b"\n"
        queue = RecordQueue(given.records)
        for _ in range(20):
            for _ in range(200):
                os.write(given.records, line)
            assert len(queue.read()) == 200
        assert os.fstat(given.records).st_size > probe_records.MAX_QUEUE_BYTES / 2
        assert os.fstat(given.records).st_blocks * 512 < 200 << 10
        os.write(given.records, b"x" * (1 << 20) + b'\n{"a":1}\n{"half"')
        assert [queue.read(), queue.read()] == [[], []]
        assert queue.read()[-1] == b'{"a":1}'
        assert queue.read() == []
    finally:
        given.close()


def test_a_record_of_the_runner_is_a_line_of_its_own_where_the_rank_begins_one(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\n")
    log, written = LogFile(str(path)), RankRecords()
    written.add(3, log, None, os.getpid())
    checkpoint = {"path": "/x/checkpoint-5", "step": 5}
    assert written.append_record(3, {"checkpoint": checkpoint})
    assert not written.append_record(4, {"checkpoint": checkpoint}), "another node's"
    assert not written.append_record(3, {"notice": {"code": "x" * 4000}})
    assert path.read_bytes().endswith(b"\x1b\\\n")
    assert (log.size(), log.tail()) == (4, b"one\n")
    with path.open("ab") as file:
        file.write(b"half")
    assert written.append_record(3, {"source": "file", "values": {"loss": 1.0}})
    assert path.read_bytes().endswith(b"\x1b\\")
    assert (log.size(), log.tail()) == (8, b"one\nhalf")
    assert [one["source"] for one in read(path.read_bytes())] == ["runner", "file"]
    path.unlink()
    assert not written.append_record(3, {"checkpoint": checkpoint})

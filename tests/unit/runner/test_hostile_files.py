"""Files of metrics that a rank writes to harm its node's runner: what is read of them stays small, and fast."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from fermi.runner import metric_files
from fermi.runner.checkpoint_scan import CheckpointScan
from fermi.runner.event_files import compute_crc32c, mask_crc
from fermi.runner.folder_walk import FolderWalk
from fermi.runner.metric_files import MetricScan


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def format_record(data: bytes, length: int | None = None) -> bytes:
    """Return a record of an event file; `length`: what it claims."""
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + struct.pack("<I", mask_crc(compute_crc32c(head))) + data + struct.pack("<I", 0)


def format_field(number: int, data: bytes) -> bytes:
    size, rest = b"", len(data)
    while rest > 127:
        size, rest = size + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + size + bytes([rest]) + data


def format_event(step: int, tags: list[str]) -> bytes:
    values = (format_field(1, tag.encode()) + b"\x15" + struct.pack("<f", 1.0) for tag in tags)
    return b"\x10" + bytes([step]) + format_field(5, b"".join(format_field(1, value) for value in values))


def scan(folder: Path, times: int = 3) -> list[dict[str, Any]]:
    walk = FolderWalk([str(folder)])
    metrics, checkpoints, found = MetricScan(walk, 0), CheckpointScan(walk, 0), list[dict[str, Any]]()
    for _ in range(times):
        listing = walk.list_all()
        found += metrics.read_new(listing)
        found += checkpoints.find_new(listing, last=False, again=False)
    return found


def test_one_name_very_often_at_one_step_takes_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 of them took more than a minute, while the runner's other threads waited."""
    monkeypatch.setattr(metric_files, "DENSE_RECORDS", 100)
    write(tmp_path / "events.out.tfevents.1", format_record(format_event(1, ["a"] * 20_000)))
    assert len(scan(tmp_path)) == 100 + metric_files.SPARSE_SCAN_RECORDS


def test_names_without_end_are_bounded_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_files, "MAX_NAMES", 50)
    for folder in ("val", "run"):
        events = (format_event(step, [f"t{step}_{k}" for k in range(20)]) for step in range(1, 11))
        write(tmp_path / folder / "events.out.tfevents.1", b"".join(map(format_record, events)))
    names = {name for record in scan(tmp_path) for name in record["values"]}
    assert len(names) == 50


def test_a_history_of_very_many_steps_is_reported_less_densely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_files, "DENSE_RECORDS", 100)
    history = [{"step": step, "loss": 1.0} for step in range(5000)]
    write(tmp_path / "trainer_state.json", json.dumps({"log_history": history}).encode())
    steps = [record["step"] for record in scan(tmp_path) if "values" in record]
    assert (len(steps) <= 100 + metric_files.SPARSE_SCAN_RECORDS, steps[-1]) == (True, 4999)


@pytest.mark.parametrize(
    ("name", "data", "size"),
    [
        ("events.out.tfevents.1", format_record(b"x", 2**64 - 1) + b"y" * 100, None),
        ("events.out.tfevents.1", format_record(b"") * 1000, None),
        ("metrics.csv", b"step,a\n1,2\n", 10 << 30),
        ("metrics.jsonl", b'{"step": 1, "a": 2}\n', 1 << 40),
        ("metrics.jsonl", (b'{"step": 1, "a": ' + b"[" * 30_000 + b"\n") * 3, None),
        ("metrics.jsonl", (b'{"step": 1, "a": ' + b"9" * 6000 + b"}\n") * 3, None),
        ("trainer_state.json", b"[" * 1_000_000, None),
    ],
)
def test_sizes_depths_and_numbers_that_lie_end_no_scan(
    tmp_path: Path, name: str, data: bytes, size: int | None
) -> None:
    write(tmp_path / name, data)
    if size:
        os.truncate(tmp_path / name, size)  # a sparse file
    assert len(scan(tmp_path)) <= 1
    write(tmp_path / "other" / "results.csv", b"step,good\n1,2\n")
    assert [record["values"] for record in scan(tmp_path) if "good" in record["values"]] == [{"good": 2.0}]


def test_pipes_and_links_are_not_opened(tmp_path: Path) -> None:
    for name in ("events.out.tfevents.1", "metrics.csv", "ckpt.pt"):
        os.mkfifo(tmp_path / name)  # opening one to read would block for ever
    (tmp_path / "metrics.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "checkpoint-5").symlink_to("/etc")
    assert scan(tmp_path) == []

"""Errors of GPUs, from a kernel's log that is a file or a pipe here: with the lines that drivers write."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.telemetry import xids
from fermi.telemetry.gpus import GpuReadings
from fermi.telemetry.sampler import TelemetrySampler
from fermi.telemetry.xids import XidReader, parse_line
from tests.polling import until

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DOUBLE_BIT = "NVRM: Xid (PCI:0000:af:00): 48, pid=4711, name=python, DBE (double bit error) ECC Error: FBPA 7"
LINK = "NVRM: Xid (PCI:0000:AF:00): 74, pid=4711, name=python, NVLink: fatal error detected on link 4(0x0, 0x10000)"
SLICE = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=7194, name=python, Contained: CE User Channel (0x9)"
OLD = "NVRM: Xid (0000:3b:00): 13, Graphics Exception: ESR 0x404600=0x80000002"


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    for pci, uuid in (("0000:af:00.0", "GPU-bbb"), ("0000:3b:00.0", "GPU-aaa")):
        folder = tmp_path / "gpus" / pci
        folder.mkdir(parents=True)
        said = f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nBus Location: \t {pci}\n"
        (folder / "information").write_text(said, encoding="ascii")
    return tmp_path / "gpus"


class Kernel:
    """Its log, a pipe: what is written is read as the kernel gives it, a record at a time."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self._read = str(path), os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._write = os.open(path, os.O_WRONLY)

    def say(self, text: str, seconds: float | None = None) -> None:
        at = time.monotonic() if seconds is None else seconds
        os.write(self._write, f"3,1234,{int(at * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode())

    def close(self) -> None:
        os.close(self._write), os.close(self._read)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path / "kmsg")
    yield made
    made.close()


@pytest.mark.parametrize(("line", "number", "bus", "pid"), [
    (LOST, 79, 0x3B, None), (DOUBLE_BIT, 48, 0xAF, 4711), (LINK, 74, 0xAF, 4711), (SLICE, 94, 0x3B, 7194),
    (OLD, 13, 0x3B, None), ("[  100.5] kernel: " + LOST, 79, 0x3B, None),
])  # fmt: skip
def test_every_form_of_the_line_is_parsed(line: str, number: int, bus: int, pid: int | None) -> None:
    found = parse_line(line, 100.0)
    assert found is not None
    assert (found.number, found.bus, found.pid) == (number, (0, bus, 0), pid)
    assert found.line.startswith("NVRM: Xid (")


@pytest.mark.parametrize("line", [
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46", "NVRM: GPU at PCI:0000:3b:00: GPU-aaa",
    "NVRM: Xid (PCI:zz): 79,", "", "NVRM: Xid (PCI:0000:3b:00):",
])  # fmt: skip
def test_similar_lines_are_ignored(line: str) -> None:
    assert parse_line(line, 1.0) is None


def test_an_error_belongs_to_the_gpu_with_its_bus_id(kernel: Kernel, devices: Path) -> None:
    known = XidReader(None, kernel.path, str(devices))
    assert known.read_xids() == {}
    kernel.say(LINK)
    kernel.say("usb 1-1: new device")
    kernel.say(LOST)
    assert known.read_xids() == {0: 79, 1: 74}
    kernel.say(DOUBLE_BIT)
    assert known.read_xids() == {0: 79, 1: 48}


@pytest.mark.parametrize(("visible", "expected"), [("1", {0: 48}), ("GPU-bbb,0", {0: 48, 1: 79}), ("", {})])
def test_only_visible_gpus_count(visible: str, expected: dict[int, int], kernel: Kernel, devices: Path) -> None:
    known = XidReader(visible, kernel.path, str(devices))
    kernel.say(LOST)
    kernel.say(DOUBLE_BIT)
    assert known.read_xids() == expected


def test_old_messages_are_not_reported(tmp_path: Path, devices: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"3,1,1,-;{LOST}\n", encoding="ascii")
    known = XidReader(None, str(log), str(devices))
    assert known.read_xids() == {}
    with log.open("a", encoding="ascii") as file:
        file.write(f"3,2,2,-;{LINK}\n4,broken\n3,x,y,-;{LOST}\n")
    assert known.read_xids() == {1: 74}


def test_an_error_explains_the_end_of_its_process_and_rank(kernel: Kernel, devices: Path) -> None:
    known = XidReader(None, kernel.path, str(devices))
    assert known.explains(0, 9) is None
    kernel.say(DOUBLE_BIT)
    kernel.say(LOST)
    assert known.explains(0, 9) == {"by": "gpu", "gpu": 0, "xid": 79, "line": LOST}
    assert known.explains(7, 4711) == {"by": "gpu", "gpu": 1, "xid": 48, "line": DOUBLE_BIT}
    assert known.explains(7, 9) is None


def test_a_fault_of_one_process_does_not_affect_others_on_its_gpu(kernel: Kernel, devices: Path) -> None:
    known = XidReader(None, kernel.path, str(devices))
    fault = "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS"
    kernel.say(fault)
    assert known.read_xids() == {0: 31}
    assert known.explains(0, 9) is None
    assert known.explains(0, 4711) == {"by": "gpu", "gpu": 0, "xid": 31, "line": fault}


def test_two_faulting_processes_on_one_gpu_get_their_own_errors(kernel: Kernel, devices: Path) -> None:
    known = XidReader(None, kernel.path, str(devices))
    lines = {
        pid: f"NVRM: Xid (PCI:0000:3b:00): 31, pid={pid}, name=python, channel 0x{channel}, intr 00000000. MMU Fault: "
        "ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x837b_13e27000. Fault is of type FAULT_PDE"
        for pid, channel in ((3076, "0000000a"), (3104, "0000001f"))
    }
    for line in lines.values():
        kernel.say(line)
    for pid, line in lines.items():
        assert known.explains(0, pid) == {"by": "gpu", "gpu": 0, "xid": 31, "line": line}
    for pid in range(xids.MAX_PROCESSES):
        kernel.say(lines[3076].replace("3076", str(10_000 + pid)))
        known.read_xids()
    assert known.explains(0, 3076) is None


def test_an_old_error_explains_nothing(kernel: Kernel, devices: Path) -> None:
    known = XidReader(None, kernel.path, str(devices))
    kernel.say(LOST, time.monotonic() - xids.EXPLAINS_SECONDS - 1)
    assert known.read_xids() == {0: 79}
    assert known.explains(0, 9) is None


def test_without_access_to_the_log_the_journal_is_read(tmp_path: Path, devices: Path) -> None:
    journal = tmp_path / "journalctl"
    at = time.time() + 60
    journal.write_text(
        f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{at - 999:.6f} gn6 kernel: {LINK}'\n"
        f"cat <<'END'\n{at:.6f} gn6 kernel: {LOST}\nEND\n", encoding="ascii",
    )  # fmt: skip
    journal.chmod(0o755)
    known = XidReader(None, str(tmp_path / "absent"), str(devices), [str(journal)])
    assert until(known.read_xids, what="the journal's answer") == {0: 79}
    assert (tmp_path / "asked").read_text(encoding="ascii").startswith("--since=@")


def test_without_any_access_nothing_is_known(tmp_path: Path, devices: Path) -> None:
    known = XidReader(None, str(tmp_path / "absent"), str(devices), ["/nowhere/journalctl"])
    assert known.read_xids() == known.read_xids() == {}
    assert known.explains(0, 9) is None


def test_without_gpus_no_log_is_opened(tmp_path: Path) -> None:
    assert XidReader(None, str(tmp_path / "absent"), str(tmp_path / "none")).read_xids() == {}


class Board:
    memory: dict[int, float] = {}

    def read_gpus(self, now: float) -> GpuReadings:
        return {0: {"gpu": 5.0}}


def test_a_sample_has_the_newest_error_of_each_gpu(kernel: Kernel, devices: Path) -> None:
    sampler = TelemetrySampler([], reader=Board(), xids=XidReader(None, kernel.path, str(devices)))
    kernel.say(LOST)
    values = sampler.sample()["values"]
    assert (values["gpu:0"], values["xid:0"]) == (5, 79)
    sampler.close()

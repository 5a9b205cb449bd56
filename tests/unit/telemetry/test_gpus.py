"""GPUs that a driver, or `nvidia-smi`, tells of. There is none here: what stands in for NVML has the names, the units
and the refusals of the real library (nvidia-ml-py), and nothing that it has not."""

import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from fermi.telemetry.gpus import AmdSmiReader, NvidiaSmiReader, NvmlReader, encode_slowdown
from fermi.telemetry.proc_files import CounterRates
from fermi.telemetry.sampler import TelemetrySampler

REAL = vars(pynvml)
RESERVED = 551 << 20


class Board:
    """`refuses`: names of functions that this board does not support."""

    def __init__(self, uuid: str, refuses: tuple[str, ...] = ()) -> None:
        self.uuid, self.refuses, self.ecc, self.sent = uuid, refuses, 5, 1000


class Driver:
    """As `pynvml`: only names that the real module has can be asked for."""

    def __init__(self, *boards: Board) -> None:
        self.boards, self.xids = boards, [] if not boards else [SimpleNamespace(device=boards[-1], eventData=79)]

    def __getattr__(self, name: str) -> Any:
        if name not in REAL:
            raise AttributeError(name)
        if not callable(REAL[name]) or isinstance(REAL[name], type):
            return REAL[name]

        def call(*args: Any, **more: Any) -> Any:
            if args and isinstance(args[0], Board) and name in args[0].refuses:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return getattr(self, f"_{name}")(*args, **more)

        return call

    def _nvmlInit(self) -> None:
        if not self.boards:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    def _nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> Board:
        return self.boards[index]

    def _nvmlDeviceGetUUID(self, board: Board) -> str:
        return board.uuid

    def _nvmlDeviceGetUtilizationRates(self, board: Board) -> Any:
        return SimpleNamespace(gpu=87, memory=40)

    def _nvmlDeviceGetMemoryInfo(self, board: Board, version: int | None = None) -> Any:
        if version is None:  # what the driver keeps for itself counts as used
            return SimpleNamespace(used=(3 << 30) + RESERVED, total=80 << 30, free=(77 << 30) - RESERVED)
        assert version == pynvml.nvmlMemory_v2
        if "nvmlMemory_v2" in board.refuses:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(used=3 << 30, total=80 << 30, free=(77 << 30) - RESERVED, reserved=RESERVED)

    def _nvmlDeviceGetPowerUsage(self, board: Board) -> int:
        return 412_500  # milliwatts

    def _nvmlDeviceGetTemperature(self, board: Board, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 66

    def _nvmlDeviceGetClockInfo(self, board: Board, kind: int) -> int:
        return {pynvml.NVML_CLOCK_SM: 1410, pynvml.NVML_CLOCK_MEM: 1593}[kind]

    def _nvmlDeviceGetCurrentClocksEventReasons(self, board: Board) -> int:
        return pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, board: Board) -> int:
        return pynvml.nvmlClocksThrottleReasonHwThermalSlowdown

    def _nvmlDeviceGetTotalEccErrors(self, board: Board, kind: int, counter: int) -> int:
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return board.ecc

    def _nvmlDeviceGetPcieThroughput(self, board: Board, counter: int) -> int:
        return {pynvml.NVML_PCIE_UTIL_RX_BYTES: 2000, pynvml.NVML_PCIE_UTIL_TX_BYTES: 1000}[counter]

    def _nvmlDeviceGetFieldValues(self, board: Board, fields: list[tuple[int, int]]) -> list[Any]:
        good = {pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: pynvml.NVML_SUCCESS}
        return [
            SimpleNamespace(nvmlReturn=good.get(field, pynvml.NVML_ERROR_NOT_SUPPORTED),
                            value=SimpleNamespace(ullVal=board.sent))
            for field, _ in fields
        ]  # fmt: skip

    def _nvmlDeviceGetComputeRunningProcesses(self, board: Board) -> list[Any]:
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=1 << 30), SimpleNamespace(pid=1, usedGpuMemory=None)]

    def _nvmlEventSetCreate(self) -> object:
        return object()

    def _nvmlDeviceRegisterEvents(self, board: Board, kinds: int, events: object) -> None:
        assert kinds == pynvml.nvmlEventTypeXidCriticalError

    def _nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return self.xids.pop()


def test_every_known_value_of_a_board_is_read() -> None:
    boards = [Board("GPU-aaa"), Board("GPU-bbb")]
    rates = CounterRates()
    nvml = NvmlReader(None, rates, Driver(*boards))
    assert "ecc" not in nvml.read_gpus(10.0)[0]  # how many there were before is not what came since
    rates.turn()
    boards[0].ecc, boards[0].sent = 7, 3000
    found = nvml.read_gpus(12.0)
    assert found[0] == {
        "gpu": 87, "gpu_memory": 3 << 30, "gpu_memory_total": 80 << 30, "power": 412.5, "temperature": 66,
        "sm_clock": 1410, "memory_clock": 1593, "throttled": 1.0, "ecc": 2, "pcie_received": 2e6, "pcie_sent": 1e6,
        "nvlink_sent": 1000 * 1024, "gpu_processes": 2,
    }  # fmt: skip
    assert found[1]["xid"] == 79
    assert nvml.memory == {os.getpid(): 2 << 30, 1: 0}


def test_unsupported_values_are_left_out() -> None:
    refuses = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetCurrentClocksEventReasons",
               "nvmlDeviceGetFieldValues", "nvmlDeviceRegisterEvents")  # fmt: skip
    told = NvmlReader(None, CounterRates(), Driver(Board("GPU-old", refuses))).read_gpus(1.0)[0]
    assert {"power", "ecc", "nvlink_sent"}.isdisjoint(told)
    assert told["throttled"] == 2.0  # by the name that the call had before driver 535
    assert told["gpu"] == 87


def test_drivers_before_510_include_reserved_memory() -> None:
    told = NvmlReader(None, CounterRates(), Driver(Board("GPU-old", ("nvmlMemory_v2",)))).read_gpus(1.0)[0]
    assert told["gpu_memory"] == (3 << 30) + RESERVED


def test_only_visible_gpus_count_in_their_order() -> None:
    boards = [Board("GPU-aaa"), Board("GPU-bbb", ("nvmlDeviceGetUtilizationRates",)), Board("GPU-ccc")]
    found = NvmlReader("GPU-bbb,0", CounterRates(), Driver(*boards)).read_gpus(1.0)
    assert sorted(found) == [0, 1]
    assert "gpu" not in found[0]


def test_without_a_driver_nvml_raises() -> None:
    with pytest.raises(pynvml.NVMLError):
        NvmlReader(None, CounterRates(), Driver())


def test_throttle_reasons_become_a_few_actionable_ones() -> None:
    assert encode_slowdown(0) == encode_slowdown(1) == encode_slowdown(2) == 0  # idle, or set to a clock
    assert encode_slowdown(0x40 | 0x08) == 2 + 4


def test_memory_of_a_ranks_processes_is_summed() -> None:
    sampler = TelemetrySampler([], reader=NvmlReader(None, CounterRates(), Driver(Board("GPU-aaa"))))
    values = sampler.sample({5: os.getpid()}, {5: 0})["values"]
    assert values["rank_gpu_memory:5"] == 1 << 30
    assert values["gpu:0"] == 87
    sampler.close()


def test_nvidia_smi_runs_periodically_in_the_background(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("""#!/bin/sh
echo "0, GPU-aaa, 35, 1024, 81920, 250.50, 61, 1410, 1593, 0x0000000000000004, 0"
echo "1, GPU-bbb, [N/A], 10, 81920, [N/A], 40, 210, 1593, Not Active, [N/A]"
""")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    board = NvidiaSmiReader("GPU-bbb,0", [str(tool)])
    assert board.read_gpus(100.0) == {}
    moment = 100.0
    while not (found := board.read_gpus(moment)):
        time.sleep(0.01)  # the tool runs beside
        moment += 0.01
    assert found[0] == {"gpu_memory": 10 << 20, "gpu_memory_total": 80 << 30, "temperature": 40, "sm_clock": 210,
                        "memory_clock": 1593}  # fmt: skip
    assert found[1]["power"] == 250.5
    assert found[1]["throttled"] == 1.0


def test_without_nvidia_smi_nothing_is_reported() -> None:
    board = NvidiaSmiReader(None, ["/nowhere/nvidia-smi"])
    assert board.read_gpus(1.0) == board.read_gpus(20.0) == {}


class Rocm:
    """As `amdsmi` (ROCm 6): figures in dictionaries, and "N/A" for those that a board does not have."""

    class AmdSmiException(Exception):
        pass

    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiClkType = SimpleNamespace(GFX=0, MEM=4)
    amdsmi_init = staticmethod(lambda: None)
    amdsmi_get_processor_handles = staticmethod(lambda: ["a"])
    amdsmi_get_gpu_device_uuid = staticmethod(lambda handle: "uuid")
    amdsmi_get_gpu_activity = staticmethod(lambda handle: {"gfx_activity": 55, "umc_activity": 3, "mm_activity": "N/A"})
    amdsmi_get_gpu_vram_usage = staticmethod(lambda handle: {"vram_total": 196592, "vram_used": 283})
    amdsmi_get_power_info = staticmethod(lambda handle: {"current_socket_power": "N/A", "average_socket_power": 140})
    amdsmi_get_temp_metric = staticmethod(lambda handle, kind, metric: 44)

    @staticmethod
    def amdsmi_get_clock_info(handle: str, kind: int) -> dict[str, int]:
        return {"clk": 132 if kind == 0 else 900, "max_clk": 2100}

    @staticmethod
    def amdsmi_get_gpu_total_ecc_count(handle: str) -> dict[str, int]:
        raise Rocm.AmdSmiException


def test_amd_gpus_have_the_same_metric_names() -> None:
    told = AmdSmiReader(None, CounterRates(), Rocm).read_gpus(1.0)[0]
    assert told == {"gpu": 55, "gpu_memory": 283 << 20, "gpu_memory_total": 196592 << 20, "power": 140,
                    "temperature": 44, "sm_clock": 132, "memory_clock": 900}  # fmt: skip

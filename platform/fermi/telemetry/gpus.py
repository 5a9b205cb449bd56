"""What the GPUs of a node do. Standard library only, Python 3.9 or later; NVML is asked through `pynvml` (nvidia-ml-py)
and AMD's library through `amdsmi`, where these can be imported, and else `nvidia-smi`.

GPUs go by their place among those that the node's ranks may use: the first that CUDA_VISIBLE_DEVICES names is 0. A
figure that a GPU does not tell is left out.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fermi.telemetry.files import Rates
from fermi.telemetry.metrics import SLOWED

SMI_PERIOD_SECONDS = 15.0
SMI_PATIENCE_SECONDS = 20.0
SMI_BYTES = 1 << 16
SMI_FIELDS = {
    "utilization.gpu": ("gpu", 1.0), "memory.used": ("gpu_memory", 2.0**20),
    "memory.total": ("gpu_memory_total", 2.0**20), "power.draw": ("power", 1.0),
    "temperature.gpu": ("temperature", 1.0), "clocks.sm": ("sm_clock", 1.0), "clocks.mem": ("memory_clock", 1.0),
    "clocks_throttle_reasons.active": ("throttled", 0.0), "ecc.errors.uncorrected.volatile.total": ("ecc", 1.0),
}  # fmt: skip
COMMAND = ["nvidia-smi", f"--query-gpu=index,uuid,{','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]
REASONS = ((0x20 | 0x40, "heat"), (0x04 | 0x80, "power"), (0x08, "hardware"), (0x10 | 0x100 | 0x200 | 0x400, "other"))
"""Bits of `nvmlClocksEventReasons*` (nvml.h). That a GPU idles, or is set to a clock, slows nobody."""
Found = dict[int, dict[str, float]]


class Gpus(Protocol):
    """`look`: by place, figures by the metric's name. `memory`: bytes by process id."""

    memory: dict[int, float]

    def look(self, now: float) -> Found: ...


def slowed(mask: int) -> float:
    return float(sum(SLOWED[name] for bits, name in REASONS if mask & bits))


def places(visible: str | None, uuids: Sequence[str]) -> list[int]:
    """Which of all GPUs those are that CUDA_VISIBLE_DEVICES names (numbers, or beginnings of UUIDs), in its order. As
    CUDA reads it, the list ends before the first that is not there."""
    if visible is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in filter(None, (word.strip() for word in visible.split(","))):
        index = int(word) if word.isdigit() else next((n for n, uuid in enumerate(uuids) if uuid.startswith(word)), -1)
        if not 0 <= index < len(uuids) or index in found:
            break
        found.append(index)
    return found


class Nvml:
    """Raises what `pynvml` raises where there is no driver to ask."""

    def __init__(self, visible: str | None, rates: Rates, library: Any = None) -> None:
        self._nvml = nvml = library or importlib.import_module("pynvml")
        self._rates = rates
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        self._handles = [handles[index] for index in places(visible, uuids)]
        self._xids: dict[int, int] = {}
        self._events = self._listen(handles)
        self.memory: dict[int, float] = {}

    def look(self, now: float) -> Found:
        found: Found = {}
        self.memory = {}
        self._hear()
        for place, handle in enumerate(self._handles):
            told = found[place] = self._told(place, handle, now)
            if (number := self._xids.get(place)) is not None:
                told["xid"] = float(number)
        return found

    def _told(self, place: int, handle: Any, now: float) -> dict[str, float]:
        nvml, told = self._nvml, dict[str, float]()

        def ask(take: Callable[[], Mapping[str, float | None]]) -> None:
            """Old boards and virtual GPUs do not have everything, and a GPU that is lost has nothing."""
            with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError, ValueError):
                told.update({name: float(value) for name, value in take().items() if value is not None})

        def clocks() -> Mapping[str, float | None]:
            return {
                "sm_clock": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                "memory_clock": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            }

        def memory() -> Mapping[str, float | None]:
            known = nvml.nvmlDeviceGetMemoryInfo(handle)
            return {"gpu_memory": known.used, "gpu_memory_total": known.total}

        def errors() -> Mapping[str, float | None]:
            kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            return {"ecc": self._rates.gain(f"ecc {place}", nvml.nvmlDeviceGetTotalEccErrors(handle, *kinds), now)}

        ask(lambda: {"gpu": nvml.nvmlDeviceGetUtilizationRates(handle).gpu})
        ask(memory)
        ask(lambda: {"power": nvml.nvmlDeviceGetPowerUsage(handle) / 1000})
        ask(lambda: {"temperature": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)})
        ask(clocks)
        ask(lambda: {"throttled": slowed(self._reasons(handle))})
        ask(errors)
        ask(lambda: self._pcie(handle))
        ask(lambda: self._nvlink(place, handle, now))
        ask(lambda: self._processes(handle))
        return told

    def _reasons(self, handle: Any) -> int:
        """Its name until driver 535, and since."""
        nvml = self._nvml
        newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        with contextlib.suppress(nvml.NVMLError):
            if newer:
                return int(newer(handle))
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    def _pcie(self, handle: Any) -> Mapping[str, float | None]:
        """In KB/s, over 20 ms: each answer takes as long (nvml.h)."""
        nvml = self._nvml
        ask = nvml.nvmlDeviceGetPcieThroughput
        return {
            "pcie_received": ask(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1000,
            "pcie_sent": ask(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1000,
        }

    def _nvlink(self, place: int, handle: Any, now: float) -> Mapping[str, float | None]:
        """Counters of all links together, in KiB. The scope `UINT_MAX` stands for all links (nvml.h)."""
        nvml, found = self._nvml, dict[str, float | None]()
        fields = {
            "nvlink_sent": nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            "nvlink_received": nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        }
        values = nvml.nvmlDeviceGetFieldValues(handle, [(field, 0xFFFFFFFF) for field in fields.values()])
        for name, value in zip(fields, values):  # noqa: B905 (strict is newer than 3.9)
            if value.nvmlReturn == nvml.NVML_SUCCESS:
                found[name] = self._rates.of(f"{name} {place}", value.value.ullVal * 1024, now)
        return found

    def _processes(self, handle: Any) -> Mapping[str, float | None]:
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        for one in running:
            self.memory[one.pid] = self.memory.get(one.pid, 0.0) + (one.usedGpuMemory or 0)
        return {"gpu_processes": len(running)}

    def _listen(self, handles: Sequence[Any]) -> Any:
        """For Xids: not every board, and no virtual GPU, tells of them."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            events = nvml.nvmlEventSetCreate()
            for handle in handles:
                with contextlib.suppress(nvml.NVMLError):
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            return events
        return None

    def _hear(self) -> None:
        """What has come since, without waiting."""
        nvml = self._nvml
        uuids = None
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            while self._events is not None:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                uuids = uuids or [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in self._handles]
                uuid = _text(nvml.nvmlDeviceGetUUID(event.device))
                if uuid in uuids:
                    self._xids[uuids.index(uuid)] = int(event.eventData)


class Smi:
    """`nvidia-smi`, now and then and without waiting for it: what it said last counts until it is too old."""

    def __init__(self, visible: str | None, command: Sequence[str] = COMMAND) -> None:
        self._visible, self._command = visible, list(command)
        self._rates = Rates()  # of its own: it does not look each time that others do
        self._found: Found = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._output: int | None = None
        self._due = self._began = 0.0
        self.memory: dict[int, float] = {}

    def look(self, now: float) -> Found:
        if self._process:
            self._take(now)
        if not self._process and now >= self._due:
            self._due = now + SMI_PERIOD_SECONDS
            self._ask(now)
        return self._found

    def _ask(self, now: float) -> None:
        self._close()
        with contextlib.suppress(OSError):
            self._began, self._output = now, os.memfd_create("fermi-gpus")
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
            )

    def _take(self, now: float) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            if now - self._began > SMI_PATIENCE_SECONDS:
                process.kill()
                self._found = {}
            return
        self._process, self._found = None, {}
        if self._output is not None:
            text = os.pread(self._output, SMI_BYTES, 0).decode(errors="replace")
            self._found = self._read(text, now) if process.returncode == 0 else {}
            self._rates.turn()
            self._close()

    def _read(self, text: str, now: float) -> Found:
        rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
        rows = [row for row in rows if len(row) == len(SMI_FIELDS) + 2 and row[0].isdigit()]
        found: Found = {}
        for place, index in enumerate(places(self._visible, [row[1] for row in rows])):
            told = found[place] = {}
            for (name, unit), field in zip(SMI_FIELDS.values(), rows[index][2:]):  # noqa: B905
                with contextlib.suppress(ValueError):
                    told[name] = float(field) * unit if unit else slowed(int(field, 16))
            if (errors := told.pop("ecc", None)) is not None:
                gain = self._rates.gain(f"ecc {place}", errors, now)
                told.update({"ecc": gain} if gain is not None else {})
        return found

    def _close(self) -> None:
        if self._output is not None:
            os.close(self._output)
        self._output = None


class Amd:
    """Raises what `amdsmi` raises where there is no driver to ask."""

    def __init__(self, visible: str | None, rates: Rates, library: Any = None) -> None:
        self._smi = smi = library or importlib.import_module("amdsmi")
        smi.amdsmi_init()
        handles = smi.amdsmi_get_processor_handles()
        uuids = [_text(smi.amdsmi_get_gpu_device_uuid(handle)) for handle in handles]
        self._handles = [handles[index] for index in places(visible, uuids)]
        self._rates = rates
        self.memory: dict[int, float] = {}

    def look(self, now: float) -> Found:
        return {place: self._told(place, handle, now) for place, handle in enumerate(self._handles)}

    def _told(self, place: int, handle: Any, now: float) -> dict[str, float]:
        smi, told = self._smi, dict[str, float]()

        def ask(take: Callable[[], Mapping[str, Any]]) -> None:
            with contextlib.suppress(smi.AmdSmiException, AttributeError, KeyError, TypeError, ValueError):
                told.update({name: float(value) for name, value in take().items() if _is_number(value)})

        def memory() -> Mapping[str, Any]:
            known = smi.amdsmi_get_gpu_vram_usage(handle)  # in MiB
            return {"gpu_memory": known["vram_used"] * 2**20, "gpu_memory_total": known["vram_total"] * 2**20}

        def power() -> Mapping[str, Any]:
            known = smi.amdsmi_get_power_info(handle)
            current = known.get("current_socket_power")
            return {"power": current if _is_number(current) else known.get("average_socket_power")}

        def temperature() -> Mapping[str, Any]:
            kinds = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            return {"temperature": smi.amdsmi_get_temp_metric(handle, *kinds)}

        def errors() -> Mapping[str, Any]:
            count = smi.amdsmi_get_gpu_total_ecc_count(handle)["uncorrectable_count"]
            return {"ecc": self._rates.gain(f"ecc {place}", count, now)}

        ask(lambda: {"gpu": smi.amdsmi_get_gpu_activity(handle)["gfx_activity"]})
        ask(memory)
        ask(power)
        ask(temperature)
        ask(lambda: {"sm_clock": smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)["clk"]})
        ask(lambda: {"memory_clock": smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM)["clk"]})
        ask(errors)
        return told


def find(visible: str | None, rates: Rates) -> Gpus | None:
    """Who can be asked here; None: there are no GPUs, or nobody who knows them."""
    if glob.glob("/dev/nvidia[0-9]*"):
        with contextlib.suppress(Exception):  # no pynvml, or no driver
            return Nvml(visible, rates)
        return Smi(visible)
    if os.path.exists("/dev/kfd"):
        with contextlib.suppress(Exception):
            return Amd(visible, rates)
    return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

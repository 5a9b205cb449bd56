"""Measure the GPUs of a node. Standard library only, Python 3.9 or later; NVML is called through `pynvml`
(nvidia-ml-py) and AMD's library through `amdsmi`, where these can be imported, and else `nvidia-smi`.

GPUs are numbered by their place among those that the node's ranks may use: the first that CUDA_VISIBLE_DEVICES names is
0. A value that a GPU does not report is left out.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fermi.telemetry import nvidia_smi
from fermi.telemetry.metrics import SLOWDOWN_BITS
from fermi.telemetry.proc_files import CounterRates
from fermi.telemetry.slow_command import BackgroundCommand

SMI_PERIOD_SECONDS = 15.0
SMI_METRICS = {
    "utilization.gpu": ("gpu", 1.0), "memory.used": ("gpu_memory", 2.0**20),
    "memory.total": ("gpu_memory_total", 2.0**20), "power.draw": ("power", 1.0),
    "temperature.gpu": ("temperature", 1.0), "clocks.sm": ("sm_clock", 1.0), "clocks.mem": ("memory_clock", 1.0),
}  # fmt: skip
SMI_THROTTLED, SMI_ECC = "clocks_throttle_reasons.active", "ecc.errors.uncorrected.volatile.total"
SMI_FIELDS = ("index", "uuid", *SMI_METRICS, SMI_THROTTLED, SMI_ECC)
GpuReadings = dict[int, dict[str, float]]


class GpuReader(Protocol):
    """Reader of a node's GPUs. `read_gpus`: values by the metric's name, by place. `memory`: bytes by process id."""

    memory: dict[int, float]

    def read_gpus(self, now: float) -> GpuReadings: ...


def encode_slowdown(mask: int | str) -> float:
    """Return why a GPU is slowed, as bits of `SLOWDOWN_BITS`, from NVML's mask."""
    return float(sum(SLOWDOWN_BITS[name] for name in nvidia_smi.list_slowdown_reasons(mask)))


class NvmlReader:
    """Reader that uses NVML. Raises what `pynvml` raises where there is no driver."""

    def __init__(self, visible: str | None, rates: CounterRates, library: Any = None) -> None:
        self._nvml = nvml = library or importlib.import_module("pynvml")
        self._rates = rates
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [_decode_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        self._handles = [handles[index] for index in nvidia_smi.list_visible_gpus(visible, uuids)]
        self._xids: dict[int, int] = {}
        self._events = self._listen(handles)
        self.memory: dict[int, float] = {}

    def read_gpus(self, now: float) -> GpuReadings:
        """Return the values of each GPU, by place. `now`: monotonic seconds."""
        found: GpuReadings = {}
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
            known = self._memory_info(handle)
            return {"gpu_memory": known.used, "gpu_memory_total": known.total}

        def errors() -> Mapping[str, float | None]:
            kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            return {"ecc": self._rates.gain(f"ecc {place}", nvml.nvmlDeviceGetTotalEccErrors(handle, *kinds), now)}

        ask(lambda: {"gpu": nvml.nvmlDeviceGetUtilizationRates(handle).gpu})
        ask(memory)
        ask(lambda: {"power": nvml.nvmlDeviceGetPowerUsage(handle) / 1000})
        ask(lambda: {"temperature": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)})
        ask(clocks)
        ask(lambda: {"throttled": encode_slowdown(self._reasons(handle))})
        ask(errors)
        ask(lambda: self._pcie(handle))
        ask(lambda: self._nvlink(place, handle, now))
        ask(lambda: self._processes(handle))
        return told

    def _memory_info(self, handle: Any) -> Any:
        """Return memory as `nvidia-smi` reports it. The older call, which is the only one of drivers before 510, counts
        as used what the driver keeps for itself: hundreds of MiB of an idle board (nvml.h, `nvmlMemory_t` and
        `nvmlMemory_v2_t`)."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
            return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return nvml.nvmlDeviceGetMemoryInfo(handle)

    def _reasons(self, handle: Any) -> int:
        """Return the mask of reasons; the function has another name until driver 535."""
        nvml = self._nvml
        newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        with contextlib.suppress(nvml.NVMLError):
            if newer:
                return int(newer(handle))
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    def _pcie(self, handle: Any) -> Mapping[str, float | None]:
        """Return the PCIe throughput, which NVML gives in KB/s, over 20 ms: each answer takes as long (nvml.h)."""
        nvml = self._nvml
        ask = nvml.nvmlDeviceGetPcieThroughput
        return {
            "pcie_received": ask(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1000,
            "pcie_sent": ask(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1000,
        }

    def _nvlink(self, place: int, handle: Any, now: float) -> Mapping[str, float | None]:
        """Return the NVLink throughput from counters of all links together, in KiB. The scope `UINT_MAX` stands for all
        links (nvml.h)."""
        nvml, found = self._nvml, dict[str, float | None]()
        fields = {
            "nvlink_sent": nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            "nvlink_received": nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        }
        values = nvml.nvmlDeviceGetFieldValues(handle, [(field, 0xFFFFFFFF) for field in fields.values()])
        for name, value in zip(fields, values):  # noqa: B905 (strict is newer than 3.9)
            if value.nvmlReturn == nvml.NVML_SUCCESS:
                found[name] = self._rates.compute_rate(f"{name} {place}", value.value.ullVal * 1024, now)
        return found

    def _processes(self, handle: Any) -> Mapping[str, float | None]:
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        for one in running:
            self.memory[one.pid] = self.memory.get(one.pid, 0.0) + (one.usedGpuMemory or 0)
        return {"gpu_processes": len(running)}

    def _listen(self, handles: Sequence[Any]) -> Any:
        """Register for Xids: not every board, and no virtual GPU, reports them."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            events = nvml.nvmlEventSetCreate()
            for handle in handles:
                with contextlib.suppress(nvml.NVMLError):
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            return events
        return None

    def _hear(self) -> None:
        """Read the Xids that have come since, without waiting."""
        nvml = self._nvml
        uuids = None
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            while self._events is not None:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                uuids = uuids or [_decode_text(nvml.nvmlDeviceGetUUID(handle)) for handle in self._handles]
                uuid = _decode_text(nvml.nvmlDeviceGetUUID(event.device))
                if uuid in uuids:
                    self._xids[uuids.index(uuid)] = int(event.eventData)


class NvidiaSmiReader:
    """Reader that runs `nvidia-smi` now and then without waiting for it: its last answer counts until the next one."""

    def __init__(self, visible: str | None, command: Sequence[str] | None = None) -> None:
        self._visible, self._command = visible, command or nvidia_smi.build_command(SMI_FIELDS)
        self._rates = CounterRates()  # of its own: it is not read with every sample
        self._beside = BackgroundCommand(SMI_PERIOD_SECONDS)
        self._found: GpuReadings = {}
        self.memory: dict[int, float] = {}

    def read_gpus(self, now: float) -> GpuReadings:
        """Return the values of each GPU, by place. `now`: monotonic seconds."""
        if (text := self._beside.poll(now)) is not None:
            self._found = self._read(text, now)
            self._rates.turn()
        if self._beside.is_due(now):
            self._beside.start(self._command, now)
        return self._found

    def _read(self, text: str, now: float) -> GpuReadings:
        rows = [row for row in nvidia_smi.parse_rows(text, SMI_FIELDS) if "uuid" in row]
        found: GpuReadings = {}
        for place, index in enumerate(nvidia_smi.list_visible_gpus(self._visible, [row["uuid"] for row in rows])):
            row, told = rows[index], found.setdefault(place, {})
            for field, (name, unit) in SMI_METRICS.items():
                if (value := nvidia_smi.get_number(row, field)) is not None:
                    told[name] = value * unit
            if row.get(SMI_THROTTLED, "").startswith("0x"):
                told["throttled"] = encode_slowdown(row[SMI_THROTTLED])
            errors = nvidia_smi.get_number(row, SMI_ECC)
            gain = None if errors is None else self._rates.gain(f"ecc {place}", errors, now)
            told.update({} if gain is None else {"ecc": gain})
        return found


class AmdSmiReader:
    """Reader that uses AMD's library. Raises what `amdsmi` raises where there is no driver."""

    def __init__(self, visible: str | None, rates: CounterRates, library: Any = None) -> None:
        self._library = amd = library or importlib.import_module("amdsmi")
        amd.amdsmi_init()
        handles = amd.amdsmi_get_processor_handles()
        uuids = [_decode_text(amd.amdsmi_get_gpu_device_uuid(handle)) for handle in handles]
        self._handles = [handles[index] for index in nvidia_smi.list_visible_gpus(visible, uuids)]
        self._rates = rates
        self.memory: dict[int, float] = {}

    def read_gpus(self, now: float) -> GpuReadings:
        """Return the values of each GPU, by place. `now`: monotonic seconds."""
        return {place: self._told(place, handle, now) for place, handle in enumerate(self._handles)}

    def _told(self, place: int, handle: Any, now: float) -> dict[str, float]:
        amd, told = self._library, dict[str, float]()

        def ask(take: Callable[[], Mapping[str, Any]]) -> None:
            with contextlib.suppress(amd.AmdSmiException, AttributeError, KeyError, TypeError, ValueError):
                told.update({name: float(value) for name, value in take().items() if _is_number(value)})

        def memory() -> Mapping[str, Any]:
            known = amd.amdsmi_get_gpu_vram_usage(handle)  # in MiB
            return {"gpu_memory": known["vram_used"] * 2**20, "gpu_memory_total": known["vram_total"] * 2**20}

        def power() -> Mapping[str, Any]:
            known = amd.amdsmi_get_power_info(handle)
            current = known.get("current_socket_power")
            return {"power": current if _is_number(current) else known.get("average_socket_power")}

        def temperature() -> Mapping[str, Any]:
            kinds = amd.AmdSmiTemperatureType.HOTSPOT, amd.AmdSmiTemperatureMetric.CURRENT
            return {"temperature": amd.amdsmi_get_temp_metric(handle, *kinds)}

        def errors() -> Mapping[str, Any]:
            count = amd.amdsmi_get_gpu_total_ecc_count(handle)["uncorrectable_count"]
            return {"ecc": self._rates.gain(f"ecc {place}", count, now)}

        ask(lambda: {"gpu": amd.amdsmi_get_gpu_activity(handle)["gfx_activity"]})
        ask(memory)
        ask(power)
        ask(temperature)
        ask(lambda: {"sm_clock": amd.amdsmi_get_clock_info(handle, amd.AmdSmiClkType.GFX)["clk"]})
        ask(lambda: {"memory_clock": amd.amdsmi_get_clock_info(handle, amd.AmdSmiClkType.MEM)["clk"]})
        ask(errors)
        return told


def find_gpu_reader(visible: str | None, rates: CounterRates) -> GpuReader | None:
    """Return a reader of this node's GPUs; None: there are no GPUs, or no library or tool that knows them."""
    if glob.glob("/dev/nvidia[0-9]*"):
        with contextlib.suppress(Exception):  # no pynvml, or no driver
            return NvmlReader(visible, rates)
        return NvidiaSmiReader(visible)
    if os.path.exists("/dev/kfd"):
        with contextlib.suppress(Exception):
            return AmdSmiReader(visible, rates)
    return None


def _decode_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

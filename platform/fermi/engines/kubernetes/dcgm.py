"""GPU metrics of the DCGM exporters that a cluster has already, in place of what a pod's own runner measured. A pod may
lack the driver's library, and cannot see Xids.

Names, units and labels: NVIDIA/dcgm-exporter, etc/default-counters.csv, etc/dcp-metrics-included.csv and README.md. An
exporter knows its own node's GPUs, and, where it is configured to (`DCGM_EXPORTER_KUBERNETES`), which pod has each.
Only GPUs that bear a pod's name are the pod's. A Prometheus that has read the exporters calls the pod `exported_pod`.
"""

import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import urllib3
import urllib3.exceptions

from fermi.engines.kubernetes import names
from fermi.jobs.spec import Sample
from fermi.telemetry.gpus import encode_slowdown
from fermi.telemetry.metrics import GPU, METRICS, parse_key
from fermi.telemetry.proc_files import CounterRates

log = logging.getLogger(__name__)

CACHE_SECONDS, RETRY_SECONDS = 10.0, 60.0
"""How long an answer is used, and how long an exporter that did not answer is not asked again."""
TIMEOUT_SECONDS, MAX_WAIT_SECONDS, MAX_PARALLEL = 2.0, 4.0, 8
MAX_ANSWER_BYTES = 32 << 20
MIN_BLANK = 0x7FFFFFF0
"""Values from here on mean "not supported" or the like (dcgm_structs.h, DCGM_INT32_BLANK; others are larger)."""
LARGE_METRICS = ("pcie_received", "pcie_sent", "nvlink_received", "nvlink_sent")
"""Bytes per second: floating point numbers, whose blanks begin much later (DCGM_FP64_BLANK)."""
MIN_LARGE_BLANK = 140737488355328.0
MIB = 2.0**20
METRIC_FIELDS = {
    "GPU_UTIL": ("gpu", 1.0), "POWER_USAGE": ("power", 1.0), "GPU_TEMP": ("temperature", 1.0),
    "SM_CLOCK": ("sm_clock", 1.0), "MEM_CLOCK": ("memory_clock", 1.0), "FB_USED": ("gpu_memory", MIB),
    "XID_ERRORS": ("xid", 1.0), "ECC_DBE_VOL_TOTAL": ("ecc", 1.0),
    "CLOCK_THROTTLE_REASONS": ("throttled", 1.0), "CLOCKS_EVENT_REASONS": ("throttled", 1.0),
    "PCIE_RX_BYTES": ("pcie_received", 1.0), "PCIE_TX_BYTES": ("pcie_sent", 1.0),
    "NVLINK_RX_BYTES": ("nvlink_received", 1.0), "NVLINK_TX_BYTES": ("nvlink_sent", 1.0),
}  # fmt: skip
MEMORY_FIELDS = ("FB_USED", "FB_FREE", "FB_RESERVED")
_LINE = re.compile(r"DCGM_FI_(?:DEV|PROF)_(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

GpuValues = list[dict[str, float]]
"""Values of a pod's GPUs, in the order of their numbers on the node."""


def parse_metrics(text: str, rates: CounterRates, now: float) -> dict[str, GpuValues]:
    """Return the values of an exporter's text by pod. Instances of a divided GPU (MIG) are left out: each value of
    these is the whole GPU's."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    totals: dict[tuple[str, int], dict[str, float]] = {}
    for line in text.splitlines():
        if not (match := _LINE.match(line)):
            continue
        labels, value = dict(_LABEL.findall(match[2])), _parse_number(match[3])
        pod, number = labels.get("exported_pod") or labels.get("pod"), labels.get("gpu", "")
        if not pod or not number.isdecimal() or len(number) > 3 or labels.get("GPU_I_ID") or value is None:
            continue
        told = found.setdefault(pod, {}).setdefault(int(number), {})
        name, unit = METRIC_FIELDS.get(match[1], ("", 1.0))
        if value >= (MIN_LARGE_BLANK if name in LARGE_METRICS else MIN_BLANK):
            continue
        if match[1] in MEMORY_FIELDS:
            totals.setdefault((pod, int(number)), {})[match[1]] = value * MIB
        if name == "throttled":
            told[name] = encode_slowdown(int(value))
        elif name == "ecc":
            if (gain := rates.gain(f"{pod} {number}", value, now)) is not None:
                told[name] = gain
        elif name and (name != "xid" or value):  # 0: there was none
            told[name] = value * unit
    for (pod, at), sizes in totals.items():
        if {"FB_USED", "FB_FREE"} <= sizes.keys():
            found[pod][at]["gpu_memory_total"] = sum(sizes.values())
    return {pod: [told for _, told in sorted(gpus.items())] for pod, gpus in found.items()}


class DcgmExporters:
    """Exporters of a cluster. `url`: of one that knows all nodes, or with `{node}` or `{host}` in it, which become the
    name and the address of the node that a pod runs on."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._known: dict[str, DcgmExporter] = {}

    def instead(self, samples: Iterable[Sample], pods: Iterable[Mapping[str, Any]]) -> list[Sample]:
        """Return the samples, the newest of each node with the GPU values that its exporter reports now, where it
        reports any."""
        samples = list(samples)
        newest = {sample.node_rank: place for place, sample in enumerate(samples)}
        wanted = {rank: pod for pod in pods if (rank := names.get_node_rank(pod)) in newest}
        with self._lock:
            told = self._told(wanted)
        for rank, gpus in told.items():
            samples[newest[rank]] = _replace_gpu_values(samples[newest[rank]], gpus)
        return samples

    def _told(self, pods: Mapping[int, Mapping[str, Any]]) -> dict[int, GpuValues]:
        urls = {rank: url for rank, pod in pods.items() if (url := self._of(pod))}
        now = time.monotonic()
        asked = {url: self._known.setdefault(url, DcgmExporter(url)) for url in set(urls.values())}
        if due := [exporter for exporter in asked.values() if now >= exporter.due]:
            pool = ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="dcgm")
            wait([pool.submit(exporter.update, now) for exporter in due], MAX_WAIT_SECONDS)
            pool.shutdown(wait=False, cancel_futures=True)
        self._known = {url: one for url, one in self._known.items() if now < one.due + RETRY_SECONDS}
        return {
            rank: gpus for rank, url in urls.items() if (gpus := asked[url].pods.get(pods[rank]["metadata"]["name"]))
        }

    def _of(self, pod: Mapping[str, Any]) -> str:
        """Return the URL of a pod's exporter; empty while the pod has no node yet."""
        node, host = (pod.get("spec") or {}).get("nodeName"), (pod.get("status") or {}).get("hostIP")
        if ("{node}" in self._url and not node) or ("{host}" in self._url and not host):
            return ""
        bracketed = f"[{host}]" if host and ":" in host else str(host)
        return self._url.replace("{node}", str(node)).replace("{host}", bracketed)


class DcgmExporter:
    """One exporter and its last answer."""

    def __init__(self, url: str) -> None:
        self._url, self._rates = url, CounterRates()
        self.due = 0.0
        self.pods: dict[str, GpuValues] = {}

    def update(self, now: float) -> None:
        """Update `pods` from the exporter. Never raises: what an exporter does not report, the pod does."""
        self.due = now + RETRY_SECONDS  # no other thread asks meanwhile
        try:
            text = _fetch_text(self._url)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            log.info("no figures of GPUs from %s: %s", self._url, error)
            self.pods = {}
            return
        self.pods = parse_metrics(text, self._rates, now)
        self._rates.turn()
        self.due = now + CACHE_SECONDS


def _fetch_text(url: str) -> str:
    """Return the text of a URL; redirects are not followed, since the connection says where an exporter is."""
    with urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS) as pool:
        answer = pool.request("GET", url, redirect=False, preload_content=False)
        try:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            return answer.read(MAX_ANSWER_BYTES, decode_content=True).decode(errors="replace")
        finally:
            answer.close()


def _replace_gpu_values(sample: Sample, gpus: GpuValues) -> Sample:
    values = {key: value for key, value in sample.values.items() if not _is_replaced(key, len(gpus), sample.emulated)}
    values.update({f"{name}:{place}": value for place, told in enumerate(gpus) for name, value in told.items()})
    return replace(sample, values=values, emulated=False)


def _is_replaced(key: str, count: int, emulated: bool) -> bool:
    name, index = parse_key(key) or ("", "")
    return bool(name) and METRICS[name].subject == GPU and (emulated or (index.isdecimal() and int(index) < count))


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None

"""Metrics of environments and of their GPUs."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from apps.accounts.models import User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.overview import machines
from apps.overview.scope import Scope
from apps.telemetry import reader, subjects

MAX_GPUS = 10_000
"""Maximum number of GPUs whose values are exported; `fermi_gpus_left_out` counts the rest."""

ECC, HOUR_SECONDS = "ecc", 3600
GPU_METRICS = {
    "gpu": ("fermi_gpu_utilization_percent", "Of the time, something ran on the GPU."),
    "gpu_memory": ("fermi_gpu_memory_used_bytes", "Memory of the GPU that is used."),
    "gpu_memory_total": ("fermi_gpu_memory_total_bytes", "Memory of the GPU."),
    "power": ("fermi_gpu_power_watts", "Power that the GPU draws."),
    "temperature": ("fermi_gpu_temperature_celsius", "Temperature of the GPU."),
    ECC: ("fermi_gpu_ecc_errors_1h", "Memory errors within an hour that could not be corrected."),
}
GPU_LABELS = ["environment", "zone", "gpu", "task"]


def collect_environments(moment: datetime) -> Iterator[Metric]:
    """Yield the number of environments by status."""
    counts = dict(DevEnvironment.objects.order_by().values_list("status").annotate(Count("pk")))
    family = GaugeMetricFamily("fermi_environments", "Environments by status.", labels=["status"])
    for status in EnvironmentStatus.values:
        family.add_metric([status], counts.get(status, 0))
    yield family


def collect_gpus(moment: datetime) -> Iterator[Metric]:
    """Yield the number of GPUs by zone, type and state, and each GPU's newest values."""
    here = machines.list_machines(Scope(User(is_superuser=True)), moment)
    tallies: dict[tuple[str, str], machines.GpuCount] = {}
    for one in here:
        if one.machine.gpus:
            key = one.machine.zone, one.machine.gpu_type
            tallies.setdefault(key, machines.GpuCount(*key)).add(one)
    family = GaugeMetricFamily(
        "fermi_gpus",
        "GPUs: of those that are held, some are busy, some idle, and of the rest nothing is known.",
        labels=["zone", "type", "state"],
    )
    for (zone, kind), tally in sorted(tallies.items()):
        told = {"total": tally.total, "out": tally.out, "held": tally.held, "busy": tally.busy, "idle": tally.idle}
        for state, count in told.items():
            family.add_metric([zone, kind, state], count)
    yield family
    yield from _collect_gpu_values([one.machine for one in here])


def _collect_gpu_values(known: list[machines.MachineRow]) -> Iterator[Metric]:
    families = {name: GaugeMetricFamily(*told, labels=GPU_LABELS) for name, told in GPU_METRICS.items()}
    disks = GaugeMetricFamily(
        "fermi_environment_disk_used_ratio", "The fullest disk of an environment.", labels=["environment", "zone"]
    )
    told = left_out = 0
    measured = subjects.make_environment_subjects(machine.id for machine in known)
    newest, errors = reader.read_newest(measured), reader.sum_recent_counters(measured, ECC, HOUR_SECONDS)
    for machine in known:
        said = newest.get(subjects.make_environment_subject(machine.id))
        if said is None:
            continue
        by_gpu: dict[str, dict[str, float]] = defaultdict(dict)
        none = {key: 0.0 for key in said.values if key.startswith(f"{ECC}:")}
        for key, value in {
            **said.values,
            **none,
            **errors.get(subjects.make_environment_subject(machine.id), {}),
        }.items():
            name, _, index = key.partition(":")
            if name in families:
                by_gpu[index][name] = value
        if full := max((used for _, used in said.disks()), default=0.0):
            disks.add_metric([machine.id, machine.zone], full)
        for index, values in by_gpu.items():
            if told >= MAX_GPUS:
                left_out += 1
                continue
            told += 1
            for name, value in values.items():
                families[name].add_metric([machine.id, machine.zone, index, machine.holder or ""], value)
    yield from families.values()
    yield disks
    family = GaugeMetricFamily("fermi_gpus_left_out", f"GPUs beyond {MAX_GPUS:,}, whose values are not told.")
    family.add_metric([], left_out)
    yield family

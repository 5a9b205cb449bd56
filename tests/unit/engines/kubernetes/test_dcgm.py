"""GPU values from DCGM exporters that a cluster has, in the form in which these write them."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.dcgm import DcgmExporters, parse_metrics
from fermi.engines.kubernetes.logs import AttemptFiles
from fermi.jobs.spec import Phase, Sample
from fermi.telemetry.proc_files import CounterRates
from tests.fakes.kubernetes import Sleeps
from tests.unit.engines.kubernetes.conftest import POD, Lab, job, submit, until_seen

MIB = 2**20


def line(name: str, value: object, gpu: int = 0, pod: str = "one", label: str = "pod", more: str = "") -> str:
    return (
        f'DCGM_FI_{name}{{gpu="{gpu}",UUID="GPU-604ac76c-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
        f'Hostname="machine-a"{more},container="main",namespace="training",{label}="{pod}"}} {value}\n'
    )


def parse_text(text: str) -> dict[str, list[dict[str, float]]]:
    return parse_metrics(text, CounterRates(), 1.0)


@pytest.fixture
def exporter() -> Iterator[Callable[[str], str]]:
    """Says a text at a path, and counts who asks."""
    texts: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = texts.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write((found or "").encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()

    def says(text: str, path: str = "/metrics") -> str:
        texts[path] = text
        return f"http://127.0.0.1:{server.server_port}"

    yield says
    server.shutdown()
    thread.join()
    server.server_close()


def pod(name: str, node_rank: int, node: str = "machine-a") -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {names.NODE_RANK: str(node_rank)}}, "spec": {"nodeName": node}}


def test_metrics_get_our_names_and_units() -> None:
    text = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" + "".join([
        line("DEV_GPU_UTIL", 87), line("DEV_POWER_USAGE", 412.5), line("DEV_GPU_TEMP", 66), line("DEV_SM_CLOCK", 1410),
        line("DEV_MEM_CLOCK", 1593), line("DEV_FB_USED", 1000), line("DEV_FB_FREE", 500), line("DEV_FB_RESERVED", 24),
        line("DEV_XID_ERRORS", 79), line("DEV_CLOCK_THROTTLE_REASONS", 0x04 | 0x20), line("PROF_PCIE_RX_BYTES", 5e9),
        line("PROF_NVLINK_TX_BYTES", 9e10), line("PROF_DRAM_ACTIVE", 0.25),
    ])  # fmt: skip
    assert parse_text(text) == {"one": [{
        "gpu": 87, "power": 412.5, "temperature": 66, "sm_clock": 1410, "memory_clock": 1593,
        "gpu_memory": 1000 * MIB, "gpu_memory_total": 1524 * MIB, "xid": 79, "throttled": 3, "pcie_received": 5e9,
        "nvlink_sent": 9e10,
    }]}  # fmt: skip


def test_gpus_of_a_pod_are_numbered_from_zero_in_order() -> None:
    text = line("DEV_GPU_UTIL", 60, 6) + line("DEV_GPU_UTIL", 30, 3) + line("DEV_GPU_UTIL", 99, 1, pod="two")
    assert parse_text(text) == {"one": [{"gpu": 30}, {"gpu": 60}], "two": [{"gpu": 99}]}


def test_a_pod_label_renamed_by_prometheus_is_recognized() -> None:
    text = line("DEV_GPU_UTIL", 5, label="exported_pod", more=',pod="dcgm-exporter-7c6vs"')
    assert parse_text(text) == {"one": [{"gpu": 5}]}


@pytest.mark.parametrize("text", [
    line("DEV_GPU_TEMP", 9223372036854775794), line("DEV_GPU_UTIL", 2147483632), line("DEV_GPU_UTIL", "NaN"),
    line("PROF_PCIE_RX_BYTES", 140737488355328.0), line("DEV_XID_ERRORS", 0), line("DEV_ECC_DBE_VOL_TOTAL", 7),
    line("DEV_GPU_UTIL", 5, pod=""), line("DEV_GPU_UTIL", 5, more=',GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'),
    'DCGM_FI_DEV_GPU_UTIL{gpu="0"', "<html>", "",
])  # fmt: skip
def test_unsupported_and_unassigned_metrics_are_left_out(text: str) -> None:
    assert not any(any(gpus) for gpus in parse_text(text).values())


def test_memory_errors_are_counted_between_scrapes() -> None:
    rates = CounterRates()
    parse_metrics(line("DEV_ECC_DBE_VOL_TOTAL", 7), rates, 1.0)
    rates.turn()
    assert parse_metrics(line("DEV_ECC_DBE_VOL_TOTAL", 9), rates, 11.0) == {"one": [{"ecc": 2}]}


def test_the_newest_sample_of_a_node_gets_the_exporters_values(exporter: Callable[[str], str]) -> None:
    url = exporter(line("DEV_GPU_UTIL", 87)) + "/metrics"
    older, newest = (Sample(0, at, {"cpu": at, "gpu:0": 1.0, "power:0": 9.0}) for at in (10.0, 25.0))
    other = Sample(1, 25.0, {"gpu:0": 2.0})
    found = DcgmExporters(url).instead([older, other, newest], [pod("one", 0), pod("unknown", 1)])
    assert found == [older, other, Sample(0, 25.0, {"cpu": 25.0, "gpu:0": 87.0})]


def test_each_node_has_its_own_exporter_where_the_address_says_so(exporter: Callable[[str], str]) -> None:
    exporter(line("DEV_GPU_UTIL", 10), "/machine-a")
    base = exporter(line("DEV_GPU_UTIL", 20, pod="two"), "/machine-b")
    samples = [Sample(rank, 5.0, {"gpu:0": 1.0}, emulated=True) for rank in range(3)]
    pods = [pod("one", 0), pod("two", 1, "machine-b"), {"metadata": {"labels": {names.NODE_RANK: "2"}, "name": "none"}}]
    found = DcgmExporters(base + "/{node}").instead(samples, pods)
    assert found == [Sample(0, 5.0, {"gpu:0": 10.0}), Sample(1, 5.0, {"gpu:0": 20.0}), samples[2]]


def test_an_unreachable_exporter_leaves_the_pods_values(exporter: Callable[[str], str]) -> None:
    samples = [Sample(0, 5.0, {"gpu:0": 1.0})]
    for url in (exporter("") + "/nothing-here", "http://127.0.0.1:1/metrics"):
        assert DcgmExporters(url).instead(samples, [pod("one", 0)]) == samples


def test_a_running_task_has_values_of_the_clusters_exporter(
    lab: Lab, exporter: Callable[[str], str]
) -> None:  # fmt: skip
    lab.cluster.script(POD, Sleeps())
    spec = job(1)
    url = exporter("")
    backend = lab.backend(dcgmUrl=f"{url}/metrics")
    one = submit(backend, spec)
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    (name,) = (found for found in lab.cluster.names("pods") if found.startswith(one.name))
    exporter(line("DEV_GPU_UTIL", 42, pod=name))
    files = AttemptFiles(lab.data_dir, one.task_id, one.attempt)
    files.folder.mkdir(parents=True, exist_ok=True)
    said = {"at": 100.0, "values": {"cpu": 3, "gpu:0": 1}}
    files.node(0, "telemetry.json").write_text(json.dumps({"telemetry": [said]}))
    assert backend.telemetry(one, 0.0) == [Sample(0, 100.0, {"cpu": 3.0, "gpu:0": 42.0})]

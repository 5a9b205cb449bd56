"""Requests per second that one web process answers, compared with a REST framework view that does nothing; then with as
many web processes as `WEB=auto` starts.

Eight persistent connections from a process of its own, which shares the platform's cores. No worker runs, so creating a
task starts no training; the broker runs, since each creation sends it a message. The created task is the requirement
document's example: three environments, fourteen ranks. The processor time of a request hardly depends on other load of
the machine.
"""

from collections.abc import Iterator
from functools import partial
from statistics import median

import orjson

from bench.load import run_load
from bench.procfs import read_cpu_seconds
from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder, run_in_django
from bench.timing import measure_in_turns, measure_seconds
from bench.web import BenchWeb, serve_web
from server.up import web_processes
from tests.platform_process import Running

TASKS = 500
SECONDS = 0.5
ROUNDS, ROUNDS_TOGETHER = 5, 3
TARGETS = {
    "create": FigureTarget(60, "at least"),
    "list of 50": FigureTarget(250, "at least"),
}
SPENT_SECONDS = {
    "create": FigureTarget(12, applies_to="ratio"),
    "get": FigureTarget(3.5, applies_to="ratio"),
    "list of 50": FigureTarget(4.5, applies_to="ratio"),
}
CONCURRENCY = {
    "create": FigureTarget(100, "at least"),
    "list of 50": FigureTarget(500, "at least"),
}


REQUESTS = {
    "bare view": ("GET", "/bench/bare", b""),
    "create": (
        "POST",
        "/api/v1/training-tasks",
        orjson.dumps(Running.request(["env-001", "env-003", "env-005"])),
    ),
    "get": ("GET", "/api/v1/training-tasks/task-bench-00001", b""),
    "list of 50": ("GET", "/api/v1/training-tasks?pageSize=50", b""),
}


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        run_in_django(data, "tasks", str(TASKS))
        with serve_web(data) as web:
            yield from _measure_throughput(web)
            yield from _measure_preview(web)
        processes = web_processes.ProcessCount(None).most
        with serve_web(data, processes) as web:
            yield from _measure_concurrent(web, processes)


def _measure_requests(web: BenchWeb) -> dict[str, bytes]:
    return {name: web.request(*request) for name, request in REQUESTS.items()}


def _measure_throughput(web: BenchWeb) -> Iterator[Figure]:
    requests = _measure_requests(web)
    busy: list[float] = []
    spent: dict[str, list[float]] = {name: [] for name in requests}

    def rate(name: str) -> float:
        before = read_cpu_seconds(web.pids)
        load = run_load(web.port, requests[name], SECONDS)
        spent[name].append((read_cpu_seconds(web.pids) - before) / (load.per_second * SECONDS))
        busy.append(load.busy)
        return load.per_second

    for request in requests.values():
        run_load(web.port, request, 0.5)
    rates = measure_in_turns(ROUNDS, **{name: partial(rate, name) for name in requests})
    bare, bare_spent = rates.pop("bare view"), median(spent.pop("bare view"))
    for name, found in rates.items():
        yield Figure(name, found, "/s", bare, "bare view", TARGETS.get(name))
    for name, each in spent.items():
        took = 1e3 * median(each)
        yield Figure(f"{name}, processor time", took, "ms", 1e3 * bare_spent, "bare view", SPENT_SECONDS.get(name))
    yield Figure("the load generator's own share of a core", 100 * median(busy), "%")


def _measure_concurrent(web: BenchWeb, processes: int) -> Iterator[Figure]:
    requests = _measure_requests(web)

    def rate(name: str) -> float:
        return run_load(web.port, requests[name], SECONDS).per_second

    for request in requests.values():
        run_load(web.port, request, 0.5)
    rates = measure_in_turns(ROUNDS_TOGETHER, **{name: partial(rate, name) for name in requests})
    bare = rates.pop("bare view")
    for name, found in rates.items():
        yield Figure(f"{name}, {processes} web processes", found, "/s", bare, "bare view", CONCURRENCY.get(name))


def _measure_preview(web: BenchWeb) -> Iterator[Figure]:
    """Measure previews of 64 environments with 8 GPUs each, requested one after the other."""
    with web.client() as client:
        environments = []
        for number in range(64):
            wish = {
                "name": f"gn{number:03}", "projectId": "default", "clusterId": "local", "zone": "北京可用区A",
                "gpuType": "A100", "gpuCount": 8, "emulated": True, "cpuCores": 64, "memoryGb": 512,
                "ip": f"10.0.0.{number + 1}",
            }  # fmt: skip
            answer = client.post("/api/v1/dev-environments", json=wish).raise_for_status()
            environments.append(answer.json()["data"]["id"])
        body = orjson.dumps(Running.request(environments))

        def preview() -> float:
            return measure_seconds(
                lambda: client.post(
                    "/api/v1/training-tasks/preview", content=body, headers={"Content-Type": "application/json"}
                ).raise_for_status()
            )

        def bare() -> float:
            return measure_seconds(lambda: client.get("/bench/bare").raise_for_status())

        preview()
        took = measure_in_turns(15, preview=preview, bare=bare)
    yield Figure(
        "preview of 512 ranks over HTTP", took["preview"] * 1e3, "ms", took["bare"] * 1e3, "bare view", FigureTarget(50)
    )  # fmt: skip

"""Tasks that really run, as their operator's collector sees them; and one whose collector is away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import Collector, Received, collecting
from tests.platform_process import Running, free_port
from tests.polling import until

pytestmark = pytest.mark.e2e

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCRIPT = """
import json, os, sys
print("told", json.dumps([os.environ.get("TRACEPARENT"), [name for name in os.environ if name.startswith("OTEL_")]]))
if os.environ["RANK"] == "0":
    print(json.dumps({"step": 1, "loss": 2.5}), flush=True)
sys.exit(3 if sys.argv[1:] == ["fail"] and os.environ["RANK"] == "1" else 0)
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def traced(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "fermi-of-a-test"}
    running = Running(tmp_path_factory.mktemp("traced") / "data", **env).start()
    yield running
    running.close()


def run(platform: Running, *args: str, **headers: str) -> str:
    """A task on two nodes with two ranks each, to its end."""
    script = platform.data / "workspace" / "traced.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    request = platform.request(
        ["env-001", "env-002"], entrypoint={"script": "traced.py", "args": list(args)}, maxRestarts=0,
        datasetId=None, datasetVersionId=None, modelId=None,
    )  # fmt: skip
    answer = platform.api.post("/training-tasks", json=request, headers=headers)
    assert answer.status_code == 201, answer.text
    task: str = answer.json()["data"]["taskId"]
    platform.until_final(task, seconds=180)
    return task


def read_told_line(platform: Running, task: str, rank: int = 0) -> list[object]:
    line = next(line for line in platform.log(task, rank).splitlines() if line.startswith("told "))
    found: list[object] = json.loads(line.removeprefix("told "))
    return found


def spans(collector: Collector, task: str) -> list[Received]:
    """Of the task, once the last of them has come."""

    def found() -> list[Received]:
        mine = [span for span in collector.spans if span.attributes["fermi.task_id"] == task]
        return mine if {"training task", "attempt"} <= {span.name for span in mine} else []

    return until(found, seconds=60, what=f"the trace of {task}")


def test_a_trace_covers_the_request_to_the_first_step_of_every_rank(traced: Running, collector: Collector) -> None:
    task = run(traced, traceparent=CALLER)
    mine = spans(collector, task)
    by_id = {span.span: span for span in mine}
    assert len(by_id) == len(mine)
    one = {span.name: span for span in mine}
    assert (one["training task"].trace, one["training task"].parent) == (CALLER[3:35], CALLER[36:52])
    assert {span.trace for span in mine} == {CALLER[3:35]}
    assert sorted(span.attributes["fermi.rank"] for span in mine if span.name == "rank") == list(range(4))
    assert {by_id[span.parent].attributes["fermi.node_rank"] for span in mine if span.name == "rank"} == {0, 1}
    order = ("request", "prepare", "queue", "plan", "submit", "start", "run", "end")
    begins = [one[name].begins for name in order]
    assert begins == sorted(begins)
    whole, attempt = one["training task"], one["attempt"]
    for span in mine:
        assert whole.begins <= span.begins <= span.ends <= whole.ends
        if by_id.get(span.parent) is attempt:
            assert attempt.begins <= span.begins
    first = one["first step"]
    assert all(span.begins <= span.ends <= first.ends for span in mine if span.name == "rank"), "all on this machine"
    assert one["submit"].begins <= min(span.begins for span in mine if span.name == "node")
    assert not any(span.error for span in mine)
    assert collector.services == {"fermi-of-a-test"}
    assert [read_told_line(traced, task, rank) for rank in range(4)] == [
        [f"00-{CALLER[3:35]}-{attempt.span}-01", []]
    ] * 4


def test_a_failed_rank_is_named_in_its_span(traced: Running, collector: Collector) -> None:
    task = run(traced, "fail")
    mine = {span.name: span for span in spans(collector, task)}
    assert mine["training task"].error == mine["attempt"].error == "RANK_FAILED"
    assert mine["attempt"].attributes["fermi.failed_rank"] == 1
    assert mine["training task"].parent == ""


def test_an_unreachable_collector_does_not_affect_a_task(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    running = Running(tmp_path / "data", OTEL_EXPORTER_OTLP_ENDPOINT=nobody, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    try:
        task = run(running.start())
        assert running.task(task)["status"] == "succeeded"
        said = "the collector of traces takes nothing"
        until(lambda: said in running.output.read_text(), seconds=60, what="that is said")
        assert running.output.read_text().count(said) == 1
    finally:
        running.close()

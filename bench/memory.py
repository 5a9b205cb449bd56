"""What the 14 ranks of the document's example take while they train, against the same under torchrun."""

from collections.abc import Iterator

from bench import live, procfs
from bench.scratch import scratch
from bench.table import Figure, Target
from tests.waiting import until

LONG = {"totalSteps": 100_000, "stepDelay": 1.0}


def measure() -> Iterator[Figure]:
    running = live.shared()
    with scratch() as folder:
        folder.mkdir()
        task_id, began = live.create(running, 14, hyperparameters=LONG, maxRestarts=0)
        live.until_first_step(running.data / "logs" / task_id / "1" / "0.log", began)
        ranks = [rank["pid"] for rank in until(lambda: _ranks(running, task_id), what="14 ranks run")]
        runners = {procfs.parent(pid) for pid in ranks}
        ours = procfs.memory([*ranks, *runners])
        words = live.command_of(running, task_id)
        running.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
        running.until_state(task_id, "stopped")
        log = folder / "torchrun.log"
        process = live.torchrun(words, 14, log)
        try:
            live.until_first_step(log, 0.0)
            theirs = procfs.memory(procfs.descendants(process.pid))
        finally:
            process.terminate()
            process.wait()
    name = "14 ranks with their runners, proportional"
    yield Figure(name, ours.proportional, "MiB", theirs.proportional, "torchrun", Target(2048))


def _ranks(running: live.Live, task_id: str) -> list[dict]:
    ranks = running.task(task_id)["ranks"]
    return ranks if len(ranks) == 14 and all(rank["state"] == "running" for rank in ranks) else []

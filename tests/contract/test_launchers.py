"""One process per node on every engine: it starts the ranks of its node, which are told apart."""

from dataclasses import replace
from pathlib import Path

from fermi.jobs.spec import Entrypoint, JobSpec, Phase

LAUNCHER = Path(__file__).with_name("launcher.py")


def launched(engine, code: str, gpus: tuple[int, ...] = (1, 2)) -> JobSpec | None:
    """The job, or None where it is refused: workers of one GPU each start no process for a whole node."""
    job = replace(engine.job("", gpus), entrypoint=Entrypoint(str(LAUNCHER), (code,), processes="node"))
    refused = {one.code for one in engine.backend.problems(job)}
    return None if "WORKERS_START_RANKS" in refused else job


def test_ranks_that_a_command_starts_have_logs_of_their_own(engine):
    if (job := launched(engine, "import os; print('rank', os.environ['LOCAL_RANK'])")) is None:
        return
    handle = engine.submit(job)
    ended = engine.until(handle, Phase.SUCCEEDED, Phase.FAILED)
    assert (ended.phase, [rank.exit_code for rank in ended.ranks]) == (Phase.SUCCEEDED, [0, 0, 0]), ended
    engine.until_gone(handle)
    assert [engine.log(handle, rank) for rank in range(3)] == [
        "launcher 0 2 1 [] True\nrank 0\n", "launcher 1 2 2 [] True\nrank 0\n", "rank 1\n",
    ]  # fmt: skip


def test_the_rank_of_a_command_that_failed_is_named(engine):
    fails = "import os, time; assert os.environ['LOCAL_RANK'] == '0' or time.sleep(2), 'out of luck'"
    if (job := launched(engine, fails, (2,))) is None:
        return
    handle = engine.submit(job)
    ended = engine.until(handle, Phase.FAILED, Phase.SUCCEEDED)
    assert ended.phase is Phase.FAILED
    assert ended.cause.params["rank"] == 1
    assert [rank.error and rank.error["message"] for rank in ended.ranks] == [None, "out of luck"]
    assert [rank.asked for rank in ended.ranks] == [True, False]
    engine.until_gone(handle)

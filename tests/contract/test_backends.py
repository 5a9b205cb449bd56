"""What every backend must do, with real processes. See `conftest.py` for how a backend joins."""

import contextlib
import hashlib
import json
import os
import secrets
import signal
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

from fermi.jobs.spec import Handle, Phase, RankStatus
from fermi.runner.record_frames import strip_frames
from tests.polling import until
from tests.process_state import alive


def starts(engine) -> Counter[str]:
    """How often each rank was started."""
    path: Path = engine.scratch / "starts"
    return (
        Counter(line.split()[0] for line in path.read_text(encoding="utf-8").splitlines())
        if path.exists()
        else Counter()
    )


def ready(engine, handle: Handle) -> list[RankStatus]:
    """Returns the ranks once all have printed that they are ready and their processes are known: which of the two an
    engine tells first, it tells for each node by itself."""
    engine.until(handle, Phase.RUNNING)
    until(lambda: all("ready" in engine.log(handle, rank) for rank in range(handle.world_size)), what="ranks ready")

    def find_processes() -> list[RankStatus]:
        ranks = list(engine.observe(handle).ranks)
        return ranks if len(ranks) == handle.world_size and all(one.pid for one in ranks) else []

    return until(find_processes, what="the ranks' processes are known")


def test_rendering_is_pure(engine):
    job = engine.job("ok", (1, 2))
    first, second = (engine.backend.render(job, engine.plan(job)) for _ in range(2))
    assert first == second
    assert json.loads(json.dumps(first.to_json()))["name"] == f"{job.task_id}-1"


def test_a_job_never_submitted_is_gone_only_after_it_was_cancelled(engine):
    handle = engine.handle(engine.job("ok"))
    seen = engine.observe(handle)
    assert seen.phase is Phase.ABSENT
    assert seen.left is not False
    engine.backend.cancel(handle, 0.0)
    assert engine.observe(handle).left is False


def test_a_job_being_started_is_gone_only_after_it_was_cancelled(engine):
    handle = engine.submit(engine.job("wait"))
    assert engine.observe(handle).left is not False
    until(lambda: engine.observe(handle).left, what="it is known to be there")
    engine.backend.cancel(handle, 0.0)
    engine.until_gone(handle)


def test_ranks_of_uneven_nodes_get_their_numbers_and_succeed(engine):
    job = engine.job("ok", (1, 2))
    handle = engine.submit(job)
    seen = engine.until(handle, Phase.SUCCEEDED, Phase.FAILED)
    assert seen.phase is Phase.SUCCEEDED
    assert engine.until_gone(handle).phase is Phase.SUCCEEDED
    assert [engine.log(handle, rank).strip() for rank in range(3)] == [
        f"env {seat} {job.master_port}" for seat in ("0 0 3 1 0 0", "1 0 3 2 1 1", "2 1 3 2 1 1")
    ]  # fmt: skip


def test_placeholders_become_each_ranks_values(engine):
    job = engine.job("ok", (1, 2), env={"GIVEN": "rank-{rank}"})
    args = (*job.entrypoint.args, "{node_rank}.{local_rank}/{world_size}", "{{rank}}", "{epoch}")
    handle = engine.submit(replace(job, entrypoint=replace(job.entrypoint, args=args)))
    assert engine.until(handle, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED
    engine.until_gone(handle)
    assert [engine.log(handle, rank).splitlines()[1] for rank in range(3)] == [
        f"{place}/3 {{rank}} {{epoch}} rank-{rank}" for rank, place in enumerate(("0.0", "1.0", "1.1"))
    ]


def test_submitting_twice_starts_once_even_after_the_end(engine):
    job = engine.job("ok")
    handle = engine.submit(job)
    engine.submit(job)
    engine.until(handle, Phase.SUCCEEDED)
    engine.submit(job)
    assert engine.observe(handle).phase is Phase.SUCCEEDED
    assert starts(engine) == {"0": 1, "1": 1}


def test_many_jobs_are_observed_in_one_call(engine):
    handles = [engine.submit(engine.job("ok", (1,))) for _ in range(3)]
    for handle in handles:
        engine.until(handle, Phase.SUCCEEDED)
    seen = engine.backend.observe(handles)
    assert {name: o.phase for name, o in seen.items()} == dict.fromkeys((h.name for h in handles), Phase.SUCCEEDED)


def test_a_job_cancelled_before_it_was_submitted_never_starts(engine):
    job = engine.job("ok")
    handle = engine.handle(job)
    engine.backend.cancel(handle, 0.0)
    engine.submit(job)
    seen = engine.until_gone(handle)
    assert seen.phase in (Phase.FAILED, Phase.ABSENT)
    assert not starts(engine)


def test_cancelling_asks_first_and_leaves_no_process(engine):
    handle = engine.submit(engine.job("polite"))
    ready(engine, handle)
    engine.backend.cancel(handle, 30.0)
    engine.backend.cancel(handle, 30.0)
    seen = engine.until_gone(handle)
    assert [rank.exit_code for rank in seen.ranks] == [143, 143]
    assert all("leaving" in engine.log(handle, rank) for rank in (0, 1))


def test_ranks_that_ignore_the_request_are_killed_after_the_grace(engine):
    handle = engine.submit(engine.job("stubborn"))
    ready(engine, handle)
    engine.backend.cancel(handle, 0.2)
    seen = engine.until_gone(handle)
    assert [rank.exit_code for rank in seen.ranks] == [-signal.SIGKILL, -signal.SIGKILL]


def test_a_later_shorter_grace_wins(engine):
    handle = engine.submit(engine.job("stubborn"))
    ready(engine, handle)
    engine.backend.cancel(handle, 600.0)
    engine.backend.cancel(handle, 0.0)
    engine.until_gone(handle)


def test_the_failed_rank_is_named_and_its_peers_end(engine):
    handle = engine.submit(engine.job("one-fails"))
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause.code == "RANK_FAILED"
    assert seen.cause.params.items() >= {"rank": 1, "nodeRank": 0, "node": "node-0", "exitCode": 1}.items()
    until(lambda: "ValueError: out of luck" in engine.log(handle, 1), what="what it printed is here")
    assert "node.py" not in engine.log(handle, 1)
    engine.until_gone(handle)


def test_a_rank_killed_from_outside_is_named_with_its_signal(engine):
    handle = engine.submit(engine.job("wait", (1, 2)))
    victim = next(rank for rank in ready(engine, handle) if rank.rank == 2)
    os.kill(victim.pid, signal.SIGKILL)
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause.code == "RANK_KILLED"
    assert seen.cause.params.items() >= {"rank": 2, "nodeRank": 1, "node": "node-1", "signal": "SIGKILL"}.items()


def test_ranks_do_not_outlive_their_runner(engine):
    handle = engine.submit(engine.job("wait"))
    ranks = ready(engine, handle)
    parent = int(Path(f"/proc/{ranks[0].pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause.code in ("RUNNER_LOST", "RANK_KILLED")
    engine.until_gone(handle)
    assert not any(alive(rank.pid) for rank in ranks)


def test_an_incomplete_line_is_read_while_it_is_overwritten(engine):
    handle = engine.submit(engine.job("wait", (1,)))
    until(lambda: engine.log(handle, 0).endswith("ready\n\r 1%\r 2%"), what="the bar's newest state")


def test_processes_left_by_ranks_are_ended(engine):
    handle = engine.submit(engine.job("helpers"))
    engine.until(handle, Phase.SUCCEEDED)
    helpers = [int(pid) for pid in (engine.scratch / "helpers").read_text().split()]
    assert len(helpers) == 4
    assert not any(alive(pid) for pid in helpers)


def test_a_log_is_read_by_cursor_without_loss_or_duplicates(engine):
    handle = engine.submit(engine.job("lines", (1,)))
    engine.until(handle, Phase.SUCCEEDED)
    engine.until_gone(handle)
    data, cursor = b"", 0
    while True:
        chunk = engine.backend.logs(handle, 0, cursor, limit=1000)
        data, cursor = data + chunk.data, chunk.cursor
        if chunk.end:
            break
    assert strip_frames(data).decode().splitlines()[1:] == [f"line {number}" for number in range(2000)]
    assert engine.backend.logs(handle, 0, cursor).data == b""
    assert engine.backend.logs(handle, 7, 0).data == b""
    tail = engine.backend.logs(handle, 0, -9)
    assert (tail.data, tail.cursor) == (data[-9:], cursor)


def test_a_port_that_is_listened_on_is_not_free(engine):
    if not engine.shares_ports:
        assert engine.backend.port_is_free(22)
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not engine.backend.port_is_free(port)
    assert engine.backend.port_is_free(port)


def test_forgetting_keeps_the_logs(engine):
    handle = engine.submit(engine.job("ok", (1,)))
    engine.until(handle, Phase.SUCCEEDED)
    engine.until_gone(handle)
    engine.backend.delete_attempt(handle)
    engine.until(handle, Phase.ABSENT)
    assert "env 0" in engine.log(handle, 0)


def holding(folder: Path, value: str) -> list[str]:
    """Files that have the value in them, or in their names."""
    found = []
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names):  # folders come and go
        with contextlib.suppress(OSError):
            if value in path.name or (path.is_file() and value.encode() in path.read_bytes()):
                found.append(str(path.relative_to(folder)))
    return found


def command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(found)


def test_secrets_reach_every_rank_and_are_left_nowhere(engine):
    value = f"$(HOME) '\"\\ 汉 {secrets.token_urlsafe(24)}"
    job = engine.job("secret", (1, 2), secret_env={"API_KEY": "the-key"})
    rendered = engine.backend.render(job, engine.plan(job))
    assert value not in json.dumps(rendered.to_json(), ensure_ascii=False)
    handle = engine.submit(job, {"API_KEY": value})
    expected = f"secret {hashlib.sha256(value.encode()).hexdigest()}"
    until(lambda: all(expected in engine.log(handle, rank) for rank in range(3)), what="ranks have the secret")
    tail = value[-24:]
    assert tail not in command_lines()
    until(lambda: not holding(engine.scratch, tail), what="no file has the secret once ranks run")
    engine.backend.cancel(handle, 0.0)
    engine.until_gone(handle)
    assert holding(engine.scratch, tail) == []


def test_secrets_of_an_attempt_that_never_runs_are_removed(engine):
    value = secrets.token_urlsafe(24)
    job = engine.job("secret", secret_env={"API_KEY": "the-key"})
    handle = engine.submit(job, {"API_KEY": value})

    def gone() -> bool:  # as the reconciler asks: again and again, since a watch may not have told of all that is there
        engine.backend.cancel(handle, 0.0)
        return engine.observe(handle).left is False

    until(gone, what=f"{handle.name} gone")
    assert holding(engine.scratch, value) == []

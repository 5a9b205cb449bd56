"""Pods' logs become files, once and whole, whatever breaks."""

import os
import threading
from dataclasses import replace

import pytest

from fermi import messages
from fermi.engines.kubernetes import logs
from fermi.engines.kubernetes.logs import AttemptFiles, LogSink, truncate_timestamp
from fermi.jobs.spec import Phase
from fermi.runner.record_frames import strip_frames
from tests.fakes.kubernetes import Sleeps
from tests.fakes.kubernetes.errors import Refused
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, handle, job, observe_one, submit, until_seen

COUNT = """
import os, sys, time
rank = os.environ["RANK"]
for number in range(600):
    print(f"rank {rank} line {number}", flush=True)
    if number % 20 == 0:
        time.sleep(0.02)
sys.stdout.write("no line feed at the end")
"""


def whole(rank: int) -> str:
    return "".join(f"rank {rank} line {number}\n" for number in range(600)) + "no line feed at the end"


def text(backend, one, rank: int) -> str:
    lines = strip_frames(backend.logs(one, rank, 0).data).decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("fermi: "))


def until_drained(backend, one):
    return until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED and seen.left is False)


def test_ranks_of_one_pod_have_separate_logs(lab, backend):
    lab.watched(backend)
    one = submit(backend, job(2, 1, script=COUNT))
    until_drained(backend, one)
    assert [text(backend, one, rank) for rank in range(3)] == [whole(rank) for rank in range(3)]


def test_broken_streams_and_api_restarts_lose_and_duplicate_nothing(lab, backend):
    lab.watched(backend)
    one = submit(backend, job(2, script=COUNT))
    for number in (50, 200, 350):
        until(lambda number=number: f"rank 0 line {number}\n" in text(backend, one, 0), what="the log to grow")
        lab.cluster.break_connections()
    until_drained(backend, one)
    assert [text(backend, one, rank) for rank in range(2)] == [whole(0), whole(1)]


def test_another_watcher_continues_after_one_died(lab):
    first, second = lab.backend(), lab.backend()
    stop = lab.watched(first)
    one = submit(first, job(2, script=COUNT))
    until(lambda: "rank 0 line 100\n" in text(first, one, 0), what="the log to grow")
    stop.set()
    first.close()
    lab.watched(second)
    until_drained(second, one)
    assert [text(second, one, rank) for rank in range(2)] == [whole(0), whole(1)]


def test_without_a_watcher_a_log_is_read_before_its_attempt_is_gone(lab, backend):
    one = submit(backend, job(1, script="print('all of it')"))
    until_drained(backend, one)
    assert text(backend, one, 0) == "all of it\n"


def test_logs_stay_when_their_pods_are_deleted(lab, backend):
    one = submit(backend, job(1, script="print('all of it')"))
    until_drained(backend, one)
    backend.delete_attempt(one)
    until(lambda: not lab.cluster.pods(POD))
    assert text(backend, one, 0) == "all of it\n"


def test_exit_codes_are_kept_when_pods_are_deleted(lab, backend):
    one = submit(backend, job(2, script="import os, sys; sys.exit(3) if os.environ['RANK'] == '1' else None"))
    until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED and seen.left is False)
    backend.client.delete("Job", f"{one.name}-node-0")
    until(lambda: not lab.cluster.pods(POD))
    seen = until_seen(backend, one, lambda seen: all(rank.state == "exited" for rank in seen.ranks))
    assert seen.ranks[1].exit_code == 3
    assert all(rank.pid for rank in seen.ranks)


def test_the_last_output_of_a_stopped_rank_is_kept(lab, backend):
    script = """
import signal, sys, time
def leave(*_):
    print("saved a checkpoint", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""
    lab.watched(backend)
    one = submit(backend, job(1, script=script))
    until(lambda: "ready" in text(backend, one, 0), what="the rank ready")
    until(lambda: (backend.cancel(one, 20.0), observe_one(backend, one).left is False)[1], what="gone")
    assert text(backend, one, 0) == "ready\nsaved a checkpoint\n"


def test_repeated_and_partial_lines_are_written_once(tmp_path):
    files = AttemptFiles(tmp_path, "task-x", 1)
    files.folder.mkdir(parents=True)
    lines = [b"2026-11-21T08:00:00.1Z 3:0:one", b"2026-11-21T08:00:00.2Z 3+4:two", b"2026-11-21T08:00:00.3Z 3:7: more"]
    LogSink(files, 0, range(4)).write_lines(lines)
    files.rank(3).write_bytes(files.rank(3).read_bytes()[:6])  # killed while it wrote
    sink = LogSink(files, 0, range(4))
    sink.write_lines(lines)
    sink.write_lines(lines)
    assert files.rank(3).read_bytes() == b"one\ntwo more\n"


def test_lines_rotated_away_by_the_node_are_reported_and_offsets_stay_right(tmp_path):
    files = AttemptFiles(tmp_path, "task-x", 1)
    files.folder.mkdir(parents=True)
    LogSink(files, 0, range(4)).write_lines([b"2026-11-21T08:00:00.1Z 0:0:one", b"2026-11-21T08:00:00.2Z 0:500:later"])
    data = files.rank(0).read_bytes()
    assert data[:4] == b"one\n"
    assert b"496 bytes are missing here" in data
    assert data[500:] == b"later\n"


HOSTILE = """
import os, signal
runner = os.getppid()
with open(f"/proc/{runner}/fd/1", "w") as output:
    output.write('@{"ranks": 5}\\n@[[[\\n@{"ranks": [{"rank": 0}, 7]}\\n')
    output.write("0:99999999999999:beyond all files\\n7:0:of no rank here\\n" + "9" * 5000 + ":0:x\\n")
with open(os.environ["FERMI_TERMINATION_LOG"], "w") as message:
    message.write('{"ranks": [[0]], "asked": 3, "cause": [], "about": 4, "rank": "a", "tail": "\\\\u0000"}')
os.kill(runner, signal.SIGKILL)  # as if its memory had run out
"""


def test_a_script_that_imitates_its_runner_harms_only_itself(lab):
    """A pod's runner may not be looked into (see the next test), which root with all capabilities need not mind."""
    backend = lab.backend()
    lab.watched(backend)
    other = submit(backend, replace(job(1, script="import time; time.sleep(600)"), task_id="task-y"))
    one = submit(backend, job(1, script=HOSTILE))
    seen = until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED and seen.left is False)
    for lang in messages.LANGUAGES:
        assert messages.render_text(seen.cause.code, lang, **seen.cause.params)
    assert (
        sum(path.stat().st_size for path in AttemptFiles(lab.data_dir, one.task_id, one.attempt).folder.iterdir())
        < 100_000
    )
    assert backend.observe([one, other])[other.name].phase in (Phase.STARTING, Phase.RUNNING)


def test_output_of_a_broken_interpreter_is_kept(lab):
    backend = lab.backend(python="/bin/ls")
    one = submit(backend, job(1))
    seen = until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED and seen.left is False)
    assert "fermi.runner.pod" in seen.cause.params["evidence"]
    assert AttemptFiles(lab.data_dir, one.task_id, 1).node(0, "log").read_text()


def test_a_pod_is_followed_by_one_process(lab):
    lab.cluster.script(POD, Sleeps(lines=("0:0:hello",)))
    backends = [lab.backend(), lab.backend()]
    one = submit(backends[0], job(1))
    for backend in backends:
        lab.watched(backend)
    until(lambda: text(backends[0], one, 0) == "hello\n", what="the log")
    until(lambda: len(lab.changes) >= 2)
    assert len(lab.cluster.calls("get", "pods/log")) == 1
    assert threading.active_count() < 200
    assert os.path.exists(AttemptFiles(lab.data_dir, one.task_id, 1).node(0, "lock"))


def test_nodes_of_any_time_zone_are_queried_in_utc():
    assert truncate_timestamp("2026-11-21T16:00:00.123456789+08:00") == "2026-11-21T08:00:00Z"
    assert truncate_timestamp("2026-11-21T08:00:00.9Z") == "2026-11-21T08:00:00Z"


def test_an_absent_log_is_empty(backend):
    assert backend.logs(handle(job(1)), 0, 0).data == b""


def test_a_node_that_serves_no_log_is_backed_off_and_named(lab, backend, monkeypatch):
    monkeypatch.setattr(logs, "PAUSE_SECONDS", (0.01, 0.05))
    lab.watched(backend)
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING and not seen.waiting)
    until(lambda: lab.cluster.calls("get", "pods/log"), what="it is followed")
    silent = 'Get "https://10.0.0.1:10250/containerLogs/task": dial tcp 10.0.0.1:10250: i/o timeout'
    lab.cluster.faults.refuse("get", "pods/log", Refused(500, "InternalError", silent), times=None)
    lab.cluster.break_connections()
    before = len(lab.cluster.calls("get", "pods/log"))
    seen = until_seen(backend, one, lambda seen: seen.waiting)
    assert (seen.phase, seen.waiting.code) == (Phase.RUNNING, "LOG_UNAVAILABLE")
    assert "i/o timeout" in seen.waiting.params["evidence"]
    for lang in messages.LANGUAGES:
        assert messages.render_text(seen.waiting.code, lang, **seen.waiting.params)
    until(lambda: len(lab.cluster.calls("get", "pods/log")) >= before + 12, what="twelve questions")
    asked = [call.at for call in lab.cluster.calls("get", "pods/log")][before:]
    assert asked[-1] - asked[-2] > 4 * logs.PAUSE_SECONDS[1], "longer than between two questions of a quiet pod"
    lab.cluster.faults.clear()
    until_seen(backend, one, lambda seen: not seen.waiting)


def test_a_returned_node_is_queried_at_once(lab, backend, monkeypatch):
    monkeypatch.setattr(logs, "PAUSE_SECONDS", (3600.0, 3600.0))
    monkeypatch.setattr(logs, "MAX_PAUSE_SECONDS", 3600.0)
    lab.watched(backend)
    one = submit(backend, job(1, script=COUNT.replace("range(600)", "range(10**6)")))
    until(lambda: "rank 0 line 100\n" in text(backend, one, 0), what="the log to grow")
    lab.cluster.nodes.evicts = False
    lab.cluster.lose_node("machine-a", processes_die=False)
    asked = len(lab.cluster.calls("get", "pods/log"))
    lab.cluster.break_connections()
    until(lambda: len(lab.cluster.calls("get", "pods/log")) > asked, what="a question that the node does not answer")
    size = len(text(backend, one, 0))
    lab.cluster.restore_node("machine-a")
    until(lambda: len(text(backend, one, 0)) > size, what="the log goes on")
    until(lambda: (backend.cancel(one, 0.0), observe_one(backend, one).left is False)[1], what="gone")


@pytest.mark.parametrize("again", [False, True])
def test_stopped_followers_let_others_follow_and_can_restart(lab, again):
    first, second = lab.backend(), lab.backend()
    lab.watched(first).set()
    one = submit(first, job(1, script=COUNT))
    first.close()
    lab.watched(first if again else second)
    until_drained(second, one)
    assert text(second, one, 0) == whole(0)

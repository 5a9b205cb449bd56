"""The node runner in a terminal: exit codes, output, signals, ports, nodes that do not come."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.alive import alive
from tests.byhand import ROOT, Started, lines_of
from tests.running import free_port

RUNNER = [sys.executable, "-m", "fermi.runner.foreground"]
SLEEP = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


@pytest.fixture
def hand(tmp_path: Path) -> Iterator["Hand"]:
    made = Hand(tmp_path)
    yield made
    for run in made.runs:
        run.close()


class Hand:
    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, []

    def __call__(self, code: str, *options: str, ranks: int = 2, under: Sequence[str] = (), **env: str) -> Started:
        words = ["--port", str(free_port()), *options]
        for rank in range(ranks):
            words += ["--rank", str(rank), f"RANK={rank}"]
        output = self.folder / f"log-{len(self.runs)}"
        path = str(ROOT / "platform")
        run = Started(output, *under, *RUNNER, *words, "--", sys.executable, "-u", "-c", code, PYTHONPATH=path, **env)
        self.runs.append(run)
        return run


def test_the_exit_code_is_that_of_the_rank_that_failed_first(hand):
    run = hand("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(9)\ntime.sleep(600)", "--grace", "5")
    assert run.wait() == 9
    assert "rank 1 (pid " in run.text
    assert "ended with exit code 9" in run.text


def test_the_last_line_names_the_exception_and_the_users_own_line(hand):
    run = hand(
        "import os\ndef forward():\n    raise ValueError('bad shape (4, 7)')\nif os.environ['RANK'] == '1': forward()"
    )
    assert run.wait() == 1
    assert "ended with exit code 1: ValueError: bad shape (4, 7) (" in run.text
    assert ":3 in forward); the other ranks" in run.text


def test_ranks_that_hang_are_named_with_where_each_of_them_is(hand):
    code = "import os, time\ndef load():\n    time.sleep(600)\nif os.environ['RANK'] == '1': load()\ntime.sleep(600)"
    run = hand(code, "--hang-seconds", "1", ranks=3)
    run.until_says("ranks 0, 2 are at <string>:5 in <module>; rank 1 is at <string>:3 in load")
    run.send(signal.SIGTERM)
    assert run.wait() == 143


def test_a_rank_that_a_signal_ended_gives_128_and_its_number(hand):
    run = hand("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", ranks=1)
    assert run.wait() == 128 + signal.SIGKILL
    assert "was ended by SIGKILL" in run.text


def test_lines_are_marked_and_kept_in_files(hand, tmp_path):
    run = hand("import os\nprint('hello', os.environ['RANK'])\nprint('no end', end='')", "--logs", str(tmp_path / "l"))
    text = run.succeed()
    assert [lines_of(text, rank) for rank in (0, 1)] == [["hello 0", "no end"], ["hello 1", "no end"]]
    assert [(tmp_path / "l" / f"{rank}.log").read_text() for rank in (0, 1)] == ["hello 0\nno end", "hello 1\nno end"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_all_ranks(hand, number, code):
    run = hand(SLEEP)
    run.until_says("[rank 0] ")
    run.until_says("[rank 1] ")
    run.send(number)
    assert run.wait() == code
    assert not any(alive(int(lines_of(run.text, rank)[0])) for rank in (0, 1))


def test_under_nohup_the_end_of_the_terminal_ends_nothing(hand):
    run = hand(SLEEP, ranks=1, under=["nohup"])
    run.until_says("[rank 0] ")
    run.send(signal.SIGHUP)
    run.send(signal.SIGTERM)
    assert run.wait() == 143  # the first that counts


def test_a_second_signal_kills_what_does_not_end(hand):
    run = hand(STUBBORN, ranks=1)
    run.until_says("[rank 0] ")
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    assert run.wait() in (130, 143)
    assert not alive(int(lines_of(run.text, 0)[0]))


def test_what_a_rank_leaves_behind_ends_with_it(hand):
    left = f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, flush=True)"
    text = hand(left, ranks=1).succeed()
    assert not alive(int(lines_of(text, 0)[0]))


def altered(folder, change: str, script: str, *options: str, ranks: int = 2) -> Started:
    """The program with a change for which the command line has no option, or that no signal could be in time for."""
    parts = ["import os, signal, sys, time", "from fermi.runner import foreground, node", "begin = os.setsid", change]
    numbers = [word for rank in range(ranks) for word in ("--rank", str(rank), f"RANK={rank}")]
    command = [sys.executable, "-c", "\n".join([*parts, "sys.exit(foreground.main(sys.argv[1:]))"])]
    words = ["--port", str(free_port()), *options, *numbers, "--", sys.executable, "-c", script]
    return Started(folder / "log", *command, *words, PYTHONPATH=str(ROOT / "platform"))


@pytest.mark.parametrize("also", ["", "os.setsid = lambda: time.sleep(0.5) or begin()"], ids=["", "a slow start"])
def test_a_rank_that_never_ends_after_all_others_is_ended_and_named(tmp_path, also):
    """Also where its process got the processor long after its runner."""
    hangs = "import os, signal\nif os.environ['RANK'] == '1': signal.sigwait([signal.SIGUSR2])"
    run = altered(tmp_path, f"node.LAST_SECONDS = 1.0\n{also}", hangs)
    try:
        assert run.wait() == 0
        assert "rank 1 hung after all others had ended with 0: killed" in run.text
    finally:
        run.close()


def test_a_stop_that_comes_before_a_rank_leads_its_session_reaches_it(tmp_path):
    """The rank's process asks for the stop itself, just before it makes its session."""
    early = "os.setsid = lambda: os.kill(os.getppid(), signal.SIGTERM) or time.sleep(0.5) or begin()"
    run = altered(tmp_path, early, SLEEP, "--grace", "3600", ranks=1)
    try:
        assert run.wait() == 143
    finally:
        run.close()


def test_a_port_in_use_is_named_with_its_holder_and_no_rank_starts(hand):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = hand(SLEEP, "--port", str(taken.getsockname()[1]))
        assert run.wait() == 71
    assert f"in use by pid {os.getpid()} (" in run.text
    assert "[rank" not in run.text


def test_nodes_that_do_not_come_are_named(hand):
    several = ["--nodes", "3", "--patience", "0.2"]
    head = hand(SLEEP, *several)
    assert head.wait() == 71
    assert "NODES_MISSING: 1-2" in head.text
    member = hand(SLEEP, *several, "--node-rank", "1", "--head", "127.0.0.1")
    assert member.wait() == 71
    assert "MASTER_UNREACHABLE: 127.0.0.1:" in member.text


def test_ranks_end_when_standard_input_does(tmp_path):
    command = [
        *RUNNER,
        "--port",
        str(free_port()),
        "--until-eof",
        "--rank",
        "0",
        "RANK=0",
        "--",
        sys.executable,
        "-c",
        SLEEP,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as run:
        pid = int(run.stdout.readline().removeprefix("[rank 0] "))
        run.stdin.close()
        assert run.wait(120) == 129
    assert not alive(pid)


def test_no_rank_begins_when_standard_input_ends_while_the_nodes_meet(tmp_path):
    words = ["--port", str(free_port()), "--nodes", "2", "--until-eof", "--rank", "0", "RANK=0", "--"]
    command = [*RUNNER, *words, sys.executable, "-c", "print('began')"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as run:
        assert b"waiting on port" in run.stderr.readline()
        run.stdin.close()
        assert run.wait(120) == 129
        assert run.stdout.read() == b""

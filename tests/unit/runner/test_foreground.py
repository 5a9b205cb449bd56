"""The node runner in a terminal: exit codes, output, signals, ports, nodes that do not come."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fermi.runner import processes
from tests.exported_scripts import ROOT, Started, lines_of
from tests.platform_process import free_port
from tests.process_state import alive
from tests.unit.runner.test_bounds import environment

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

    def __call__(
        self, code: str, *options: str, ranks: int = 2, under: Sequence[str] = (), cwd: Path | None = None, **env: str
    ) -> Started:
        words = ["--port", str(free_port()), *options]
        for rank in range(ranks):
            words += ["--rank", str(rank), f"RANK={rank}"]
        output = self.folder / f"log-{len(self.runs)}"
        path = str(ROOT / "platform")
        command = [*under, *RUNNER, *words, "--", sys.executable, "-u", "-c", code]
        run = Started(output, *command, cwd=cwd, PYTHONPATH=path, **env)
        self.runs.append(run)
        return run


def test_the_exit_code_is_that_of_the_first_failed_rank(hand):
    run = hand("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(9)\ntime.sleep(600)", "--grace", "5")
    assert run.wait() == 9
    assert "rank 1 (pid " in run.text
    assert "ended with exit code 9" in run.text


def test_the_last_line_has_the_exception_and_the_users_line(hand):
    run = hand(
        "import os\ndef forward():\n    raise ValueError('bad shape (4, 7)')\nif os.environ['RANK'] == '1': forward()"
    )
    assert run.wait() == 1
    assert "ended with exit code 1: ValueError: bad shape (4, 7) (" in run.text
    assert ":3 in forward); the other ranks" in run.text


def test_hanging_ranks_are_named_with_their_locations(hand):
    code = "import os, time\ndef load():\n    time.sleep(600)\nif os.environ['RANK'] == '1': load()\ntime.sleep(600)"
    run = hand(code, "--hang-seconds", "1", ranks=3)
    run.until_says("ranks 0, 2 are at <string>:5 in <module>; rank 1 is at <string>:3 in load")
    run.send(signal.SIGTERM)
    assert run.wait() == 143


def test_a_rank_ended_by_a_signal_gives_128_plus_its_number(hand):
    run = hand("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", ranks=1)
    assert run.wait() == 128 + signal.SIGKILL
    assert "was ended by SIGKILL" in run.text


def test_lines_have_their_rank_and_are_kept_in_files(hand, tmp_path):
    run = hand("import os\nprint('hello', os.environ['RANK'])\nprint('no end', end='')", "--logs", str(tmp_path / "l"))
    text = run.succeed()
    assert [lines_of(text, rank) for rank in (0, 1)] == [["hello 0", "no end"], ["hello 1", "no end"]]
    assert [(tmp_path / "l" / f"{rank}.log").read_text() for rank in (0, 1)] == ["hello 0\nno end", "hello 1\nno end"]


def test_a_progress_bar_is_shown_in_its_current_state_and_once_at_the_end(hand, tmp_path):
    go = tmp_path / "go"
    code = (
        f"import os, time\nfor n in range(3): print(f'\\r {{n}}%  ', end='')\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\nprint('\\r 8%\\r 9%')\nprint('end\\r')"
    )
    run = hand(code)
    run.until_says("[rank 0]  2%\n")
    run.until_says("[rank 1]  2%\n")
    go.touch()
    text = run.succeed()
    assert [line for line in lines_of(text, 0) if line not in (" 0%", " 1%")] == [" 2%", " 9%", "end"]
    assert "\r" not in text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_all_ranks(hand, number, code):
    run = hand(SLEEP)
    run.until_says("[rank 0] ")
    run.until_says("[rank 1] ")
    run.send(number)
    assert run.wait() == code
    assert not any(alive(int(lines_of(run.text, rank)[0])) for rank in (0, 1))


def test_under_nohup_closing_the_terminal_ends_nothing(hand):
    run = hand(SLEEP, ranks=1, under=["nohup"])
    run.until_says("[rank 0] ")
    run.send(signal.SIGHUP)
    run.send(signal.SIGTERM)
    assert run.wait() == 143  # the first that counts


def test_a_second_signal_kills_remaining_processes(hand):
    run = hand(STUBBORN, ranks=1)
    run.until_says("[rank 0] ")
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    assert run.wait() in (130, 143)
    assert not alive(int(lines_of(run.text, 0)[0]))


def test_processes_left_by_a_rank_end_with_it(hand):
    left = f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, flush=True)"
    text = hand(left, ranks=1).succeed()
    assert not alive(int(lines_of(text, 0)[0]))


# --- what the run may use of the machine ---

FORKS = """
import os, signal, sys, time
for number in range(300):
    if os.fork() == 0:
        if number % 2:
            os.setsid()
        signal.pause()
time.sleep(60)
sys.exit(7)
"""


def test_a_fork_bomb_is_ended_with_a_message(hand):
    """The script ends itself after a minute, should nobody else do it."""
    run = hand(FORKS, "--processes", "100", "--no-pulse", ranks=1, FERMI_TASK_ID=str(hand.folder))
    assert run.wait() == 128 + signal.SIGKILL
    [line] = [line for line in run.text.splitlines() if line.startswith("fermi: ")]
    assert re.match(r"fermi: the ranks were ended: there were \d+ processes with \d+ threads, most of them started by "
                    r"rank 0; the bounds are 100 and 800: start fewer .* or raise --processes$", line)  # fmt: skip
    mark = f"FERMI_TASK_ID={hand.folder}".encode()
    assert [pid for pid, _ in processes.list_living_processes() if mark in environment(pid)] == []


def test_without_a_bound_nothing_is_measured(hand):
    bounds = ["--processes", "0", "--open-files", "0", "--reserve-percent", "0"]
    code = "import os\npids = [os.fork() or os._exit(0) for _ in range(50)]\nprint(len(pids))"
    assert lines_of(hand(code, *bounds, ranks=1).succeed(), 0) == ["50"]


def test_a_run_over_its_disk_limit_is_ended(hand, tmp_path):
    code = f"""
import os, time
for number in range(400):
    with open(os.path.join({str(tmp_path / "out")!r}, f"{{number}}.bin"), "wb") as file:
        file.write(b"x" * (1 << 18))
    time.sleep(0.02)
os._exit(7)
"""
    (tmp_path / "out").mkdir()
    run = hand(code, "--disk-gb", "0.0078125", "--no-pulse", ranks=1, FERMI_CHECKPOINT_DIR=str(tmp_path / "out"))
    assert run.wait() == 128 + signal.SIGKILL
    assert "the ranks were ended: the folders of the run hold " in run.text
    assert "the bound is 8 MiB: keep fewer checkpoints and outputs, or raise --disk-gb" in run.text


def test_no_rank_starts_on_a_disk_with_only_reserved_space(tmp_path):
    change = "from fermi.runner import disk_usage\ndisk_usage.MAX_RESERVE_BYTES = 1 << 60"
    run = altered(tmp_path, change, "print('began')", "--reserve-percent", "100", ranks=1)
    try:
        assert run.wait() == 71
        assert f"no rank was started: the disk of {tmp_path} has " in run.text
        assert "make room there, or lower --reserve-percent" in run.text
        assert "began" not in run.text
    finally:
        run.close()


# --- what it may reach ---


def confined(hand, code: str, *options: str, **env: str) -> Started:
    run = hand(code, "--confine", *options, ranks=1, **env)
    run.wait()
    if "no rank was started" in run.text:
        pytest.skip(run.text.splitlines()[-1])
    return run


def tries(*paths: Path) -> str:
    return f"""
import os
for path in {[str(path) for path in paths]!r}:
    try:
        with open(path, "a") as file:
            file.write("x")
        print("wrote", os.path.basename(path))
    except OSError as error:
        print("refused", os.path.basename(path))
print("home", os.path.basename(os.path.expanduser("~")))
"""


def test_a_confined_rank_writes_only_to_allowed_folders(hand, tmp_path):
    for name in ("given", "checkpoints"):
        (tmp_path / name).mkdir()
    code = tries(*(tmp_path / name for name in ("given/a", "checkpoints/b", "here", "logs/0.log", ".fermi-home/c")))
    run = confined(hand, code, "--write", str(tmp_path / "given"), "--logs", str(tmp_path / "logs"),
                   FERMI_CHECKPOINT_DIR=str(tmp_path / "checkpoints"))  # fmt: skip
    assert lines_of(run.succeed(), 0) == [
        "wrote a", "wrote b", "refused here", "refused 0.log", "wrote c", "home .fermi-home"
    ]  # fmt: skip
    assert not (tmp_path / "here").exists()
    assert "wrote a" in (tmp_path / "logs" / "0.log").read_text()


def test_a_confined_rank_cannot_read_the_users_keys(hand, tmp_path):
    home = tmp_path / "person"
    job, key, data = home / "job", home / ".ssh" / "id_ed25519", home / "data" / "train.bin"
    for path in (key, data, job / "script"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    code = f"""
for path in {[str(key), str(data), str(job / "script")]!r}:
    try:
        print(open(path).read())
    except OSError:
        print("refused")
"""
    run = hand(code, "--confine", "--read", str(data.parent), ranks=1, cwd=job, HOME=str(home))
    run.wait()
    if "no rank was started" in run.text:
        pytest.skip(run.text.splitlines()[-1])
    assert lines_of(run.succeed(), 0) == ["refused", "secret", "secret"]


@pytest.mark.parametrize(
    ("options", "env", "why"),
    [
        (["--read", "/nowhere"], {}, "there is no /nowhere"),
        ([], {"HOME": "{folder}/person"}, "holds your home: start in a folder of the job's own"),
    ],
)
def test_a_rank_that_cannot_be_confined_is_not_started(hand, tmp_path, options, env, why):
    (tmp_path / "person").mkdir()
    given = {name: value.format(folder=tmp_path) for name, value in env.items()}
    run = hand("print('began')", "--confine", *options, ranks=1, **given)
    assert run.wait() == 71
    assert f"{why}: no rank was started" in run.text
    assert "began" not in run.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("from fermi.runner import foreground_sandbox, sandbox\n"
         "sandbox.read_landlock_abi = foreground_sandbox.read_landlock_abi = lambda: 0", "this kernel has no Landlock"),
        ("from fermi.runner import mounts\ndef none(): raise mounts.ViewError(1, 'a user namespace: not permitted')\n"
         "mounts._unshare = none", "no mount namespace can be made here (a user namespace: not permitted)"),
    ],
    ids=["Landlock", "mount namespaces"],
)  # fmt: skip
def test_a_machine_without_sandboxes_starts_nothing_and_names_what_is_missing(tmp_path, change, why):
    run = altered(tmp_path, change, "print('began')", "--confine", ranks=1)
    try:
        assert run.wait() == 71
        assert why in run.text
        assert "began" not in run.text
    finally:
        run.close()


def altered(folder, change: str, script: str, *options: str, ranks: int = 2) -> Started:
    """The program with a change for which the command line has no option, or that no signal could be in time for."""
    parts = ["import os, signal, sys, time", "from fermi.runner import foreground, node", "begin = os.setsid", change]
    numbers = [word for rank in range(ranks) for word in ("--rank", str(rank), f"RANK={rank}")]
    command = [sys.executable, "-c", "\n".join([*parts, "sys.exit(foreground.main(sys.argv[1:]))"])]
    words = ["--port", str(free_port()), *options, *numbers, "--", sys.executable, "-c", script]
    return Started(folder / "log", *command, *words, PYTHONPATH=str(ROOT / "platform"))


@pytest.mark.parametrize("also", ["", "os.setsid = lambda: time.sleep(0.5) or begin()"], ids=["", "a slow start"])
def test_a_rank_that_never_exits_after_the_others_is_ended_and_named(tmp_path, also):
    """Also where its process got the processor long after its runner."""
    hangs = "import os, signal\nif os.environ['RANK'] == '1': signal.sigwait([signal.SIGUSR2])"
    run = altered(tmp_path, f"node.MAX_IDLE_SECONDS = 1.0\n{also}", hangs)
    try:
        assert run.wait() == 0
        assert "rank 1 hung after all others had ended with 0: killed" in run.text
    finally:
        run.close()


def test_an_early_stop_reaches_a_rank_before_it_has_a_session(tmp_path):
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


def test_missing_nodes_are_named(hand):
    several = ["--nodes", "3", "--patience", "0.2"]
    head = hand(SLEEP, *several)
    assert head.wait() == 71
    assert "NODES_MISSING: 1-2" in head.text
    member = hand(SLEEP, *several, "--node-rank", "1", "--head", "127.0.0.1")
    assert member.wait() == 71
    assert "MASTER_UNREACHABLE: 127.0.0.1:" in member.text


def test_ranks_end_when_standard_input_closes(tmp_path):
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


def test_no_rank_starts_when_standard_input_closes_at_the_barrier(tmp_path):
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

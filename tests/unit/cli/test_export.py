"""launch, render, scripts and quickstart, as they are typed."""

import json
import os
import pty
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from fermi import export
from fermi.cli import prompts
from fermi.cli.commands import quickstart
from fermi.cli.main import run_command
from tests.exported_scripts import ROOT, Started, fake_ssh, lines_of
from tests.exported_scripts import fermi as command_line
from tests.fakes.api import Reply
from tests.platform_process import free_port

SHOW = (
    "import os; print(*(os.environ[name] for name in "
    "('RANK','WORLD_SIZE','LOCAL_RANK','LOCAL_WORLD_SIZE','NODE_RANK','MASTER_ADDR','MASTER_PORT')))"
)


def start(folder: Path, *arguments: str, **env: str) -> Started:
    path = str(ROOT / "platform")
    return Started(folder / f"log-{len(list(folder.iterdir()))}", *command_line(*arguments), PYTHONPATH=path, **env)


def test_a_script_is_launched_on_one_machine(tmp_path):
    text = start(
        tmp_path, "launch", "--mode", "manual", "--world-size", "3", "--", sys.executable, "-c", SHOW
    ).succeed()
    for rank in range(3):
        [line] = lines_of(text, rank)
        assert line.startswith(f"{rank} 3 {rank} 3 0 127.0.0.1 ")


def test_a_python_script_needs_no_interpreter_and_its_exit_code_is_returned(tmp_path):
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1]); sys.exit(5)")
    started = start(tmp_path, "launch", "--output", "plain", "--nproc_per_node=1", "--", "train.py", "a b")
    assert started.wait() == 5
    assert "\na b\n" in f"\n{started.text}"


@pytest.mark.parametrize(
    "place",
    [
        lambda rank, port: ["--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1", "--master-port", port],
        lambda rank, port: ["--mode", "manual", "--rank", str(rank), "--world-size", "2", "--master-port", port],
    ],
    ids=["nodes", "ranks"],
)
def test_two_nodes_rendezvous(tmp_path, place):
    port = str(free_port())
    runs = [
        start(tmp_path, "launch", *place(rank, port), "--", sys.executable, "-c", SHOW, MASTER_ADDR="127.0.0.1")
        for rank in (1, 0)
    ]
    for rank, started in zip((1, 0), runs, strict=True):
        [line] = lines_of(started.succeed(), rank)
        assert line.split()[:2] == [str(rank), "2"]
        assert line.split()[-2:] == ["127.0.0.1", port]


def test_slurm_tasks_rendezvous_without_options(tmp_path):
    env = {"SLURM_JOB_ID": str(free_port()), "SLURM_NTASKS": "2", "SLURM_NODEID": "0",
           "SLURM_JOB_NODELIST": "localhost,gpu[1-3]", "SLURM_STEP_TASKS_PER_NODE": "2",
           "MASTER_PORT": str(free_port())}  # fmt: skip
    runs = [
        start(tmp_path, "launch", "--", sys.executable, "-c", SHOW, **env, SLURM_PROCID=rank, SLURM_LOCALID=rank)
        for rank in "01"
    ]
    for rank, started in enumerate(runs):
        [line] = lines_of(started.succeed(), rank)
        assert line == f"{rank} 2 {rank} 2 0 localhost {env['MASTER_PORT']}"


def test_an_invalid_launch_gives_advice(command, tmp_path):
    for words, part in [
        (("--rank", "8", "--world-size", "8"), "--rank is 8; allowed: 0 … 7"),
        (("--rank", "1", "--world-size", "8"), "--master-addr 192.168.1.100"),
        (("--nproc-per-node", "x"), "'x' is neither a number"),
        ((), "Script not found: train.py"),
    ]:
        done = command("launch", *words, "--", sys.executable, "train.py")
        assert done.code == 2
        assert part in done.err
    missing = command("launch", "--", "nothing-of-that-name")
    assert (missing.code, "Command not found: nothing-of-that-name" in missing.err) == (2, True)
    chinese = command("launch", "--rank", "1", "--", "true", lang="zh")
    assert "缺少 --world-size" in chinese.err


BARE = ["--mode", "manual", "--rank", "0", "--world-size", "8"]


def test_without_a_command_a_complete_example_is_shown(command, empty_home, monkeypatch):
    monkeypatch.setattr(prompts, "find_own_address", lambda: "10.0.0.5")
    slurm = ["--mode", "create_slurm", "--num-nodes", "2"]
    for typed, line in {
        ("launch", *BARE): f"fermi launch --lang en {' '.join(BARE)} --master-addr 10.0.0.5 -- python train.py",
        (
            "launch",
            "--rank",
            "3",
            "--world-size",
            "8",
        ): "fermi launch --lang en --rank 3 --world-size 8 --master-addr 192.168.1.100 -- python train.py",
        ("launch", *slurm): f"fermi launch --lang en {' '.join(slurm)} -- python train.py",
    }.items():
        done = command(*typed)
        assert (done.code, done.out) == (2, "")
        assert "No command given for the ranks" in done.err
        assert f"The complete command line: {line}\n" in done.err
    assert not (empty_home / "slurm_scripts").exists()
    (empty_home / "scripts").mkdir()
    (empty_home / "scripts" / "train.py").touch()
    monkeypatch.setenv("MASTER_ADDR", "gn6")
    done = command("launch", *BARE, lang="zh")
    assert "没有给出各 rank 要运行的命令" in done.err
    assert f"完整的命令行：fermi launch --lang zh {' '.join(BARE)} -- python scripts/train.py\n" in done.err
    typed = done.err.partition("：fermi ")[2].strip().split()
    assert run_command([*typed[:-3], "--dry-run", *typed[-3:]]) == 0
    done = command("launch", "--rank", "8", "--world-size", "8")  # what is wrong comes before what is missing
    assert "--rank is 8; allowed: 0 … 7" in done.err


def test_without_python_on_the_path_the_commands_own_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["launch", "--nproc-per-node", "1", "--output", "none", "--"]
    assert run_command([*words, "python", "-c", "pass"]) == 0
    assert run_command([*words, "python9", "-c", "pass"]) == 2


def test_launch_options_without_subcommand_mean_launch(empty_home, capsys):
    for words in (["--rank", "0", "--world-size", "8"], ["--mode=create_slurm", "--num-nodes", "2"]):
        for before in (["--lang", "zh"], ["--lang=zh", "--url", "http://nowhere"], []):
            assert run_command([*before, *words]) == 2
            line = capsys.readouterr().err.split("fermi ", 1)[1]
            assert line.startswith(" ".join(["launch", *before, *words]))
    assert run_command(["--rank"]) == 2
    assert run_command(["--help"]) == 0
    assert "--world-size" not in capsys.readouterr().out
    assert run_command(["--nproc-per-node", "1", "--output", "none", "--", "true"]) == 0


def test_in_a_terminal_missing_values_are_prompted_for(tmp_path):
    """Rank 0's own address and the folder's script need no typing."""
    (tmp_path / "train.py").touch()
    ours, theirs = pty.openpty()
    words = ["launch", *BARE, "--dry-run"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "LANG": "zh_CN.UTF-8", "XDG_CONFIG_HOME": str(tmp_path)}
    started = subprocess.Popen(
        [sys.executable, "-m", "fermi.cli", *words], cwd=tmp_path, env=env, stdin=theirs, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, b"\n10.0.0.9\n")
    out, err = started.communicate(timeout=60)
    os.close(ours)
    assert started.returncode == 0, err
    assert "各 rank 运行的命令" in err
    assert "[python train.py]" in err
    assert "主节点地址" in err
    assert "MASTER_ADDR=10.0.0.9" in out
    assert out.rstrip().endswith("python train.py")


def test_missing_nodes_are_named(command):
    shared = ["--nnodes", "3", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--patience", "0.1"]
    shared += ["--master-port", str(free_port())]
    head = command("launch", *shared, "--node-rank", "0", "--", "true")
    assert (head.code, "These nodes or ranks did not connect: 1-2." in head.err) == (2, True), head.err
    member = command("launch", *shared, "--node-rank", "1", "--", "true")
    assert (member.code, "The master node did not respond: 127.0.0.1:" in member.err) == (2, True), member.err


def test_a_busy_port_is_named(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command("launch", "--nproc-per-node", "1", "--master-port", str(port), "--", "true")
    assert done.code == 2
    assert f"The master port {port} is in use: pid {os.getpid()}" in done.err


def test_a_dry_run_shows_the_environment_and_starts_nothing(command):
    done = command("launch", "--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2", "--master-addr", "gn6",
                   "--dry-run", "--", "false")  # fmt: skip
    assert done.code == 0
    first, second = done.out.splitlines()
    assert "RANK=2 LOCAL_RANK=0 ROLE_RANK=2 false" in first
    assert "MASTER_ADDR=gn6 MASTER_PORT=29500 WORLD_SIZE=4" in second


def test_create_slurm_writes_the_script(command, empty_home):
    done = command(
        "launch", "--mode", "create_slurm", "--num-nodes", "2", "--nproc-per-node", "4", "--", "python", "t.py"
    )
    assert done.code == 0
    script = empty_home / "slurm_scripts" / "run_slurm.sh"
    assert "sbatch slurm_scripts/run_slurm.sh" in done.out
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" in script.read_text()
    assert os.access(script, os.X_OK)


REQUEST = {
    "taskName": "My Task",
    "nodes": [{"name": "b", "ip": "10.0.0.2", "gpuCount": 4}, {"name": "a", "ip": "10.0.0.1", "gpuCount": 2}],
    "distributedConfig": {"framework": "ddp", "masterNode": "b", "masterPort": 23456},
    "trainData": "/data/train.bin",
    "hyperparameters": {"batchSize": 8},
    "maxRestarts": 3,
}


def test_a_request_file_becomes_a_folder(command, empty_home):
    (empty_home / "request.yaml").write_text(yaml.safe_dump(REQUEST))
    done = command("render", "--target", "shell", "-f", "request.yaml", "-o", "job", "--master", "a", "--hp", "seed=7")
    assert done.code == 0, done.err
    script = (empty_home / "job" / "start-node-1.sh").read_text()
    assert "node 1 of 2, b (10.0.0.2): ranks 2-5 of 6" in script
    assert '"MASTER_PORT=23456"' in script
    assert "--batch_size 8\n" in script
    assert "--seed 7\n" in script
    again = command("render", "-f", "request.yaml", "-o", "job")
    assert (again.code, "job already exists" in again.err) == (2, True)
    assert command("render", "-f", "request.yaml", "-o", "job", "--force").code == 0


@pytest.mark.parametrize("target", export.TARGETS)
def test_flags_replace_a_request_file(command, empty_home, target):
    image = {"nodes": [{"name": "a", "gpuCount": 1, "image": "i"}], "entrypoint": {"script": "train.py"}}
    (empty_home / "request.json").write_text(json.dumps(image))
    nodes = [] if target == "kubernetes" else ["--node", "a=10.0.0.1:2", "--node", "10.0.0.2:2"]
    done = command("render", "--target", target, "-f", "request.json", *nodes, "--script", "t.py", "--", "-x", "a b")
    assert done.code == 0, done.err
    folder = empty_home / f"task-1-{target}"
    assert "task-1" in (folder / "README.md").read_text()
    assert "a b" in "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_emulated_gpus_are_cpu_processes_on_every_machine(command, empty_home):
    (empty_home / "request.yaml").write_text(yaml.safe_dump(REQUEST))
    given = {
        "flags": ["--node", "10.0.0.1:2", "--node", "10.0.0.2:2", "--script", "t.py"],
        "file": ["-f", "request.yaml"],
    }
    for name, words in given.items():
        for emulated in (True, False):
            folder = f"{name}-{emulated}"
            done = command("render", *words, "-o", folder, *(["--emulated"] if emulated else []))
            assert done.code == 0, done.err
            for script in (empty_home / folder).glob("start-node-*.sh"):
                assert ('"FERMI_BACKEND=gloo"' in script.read_text()) == emulated
                assert ('"CUDA_VISIBLE_DEVICES="' in script.read_text()) == emulated
            table = (empty_home / folder / "README.md").read_text()
            assert ("| CPU |" in table, "| GPU 0 |" in table) == (emulated, not emulated)


def test_a_local_script_is_copied_into_the_folder(command, empty_home):
    (empty_home / "train.py").write_text("import os, sys\nprint('trained', os.environ['RANK'], *sys.argv[1:])\n")
    node = ["--node", "127.0.0.1:2", "--emulated", "--master-port", str(free_port())]
    for target, place in (("shell", "train.py"), ("slurm", "workspace/train.py")):
        done = command("render", "--target", target, *node, "--script", "train.py", "-o", target, "--", "a b")
        assert done.code == 0, done.err
        assert (empty_home / target / place).exists()
    elsewhere = empty_home / "elsewhere"
    elsewhere.mkdir()
    env = fake_ssh(empty_home / "remote")
    text = Started(elsewhere / "log", "bash", empty_home / "shell" / "start-all.sh", **env).succeed()
    assert [lines_of(text, rank) for rank in (0, 1)] == [["trained 0 a b"], ["trained 1 a b"]]


def test_a_launch_command_is_rendered_as_what_it_means(command, empty_home):
    launch = ["torchrun", "--nproc_per_node=2", "--rdzv_endpoint=h:1", "train.py", "--text", "it's 你好"]
    done = command("render", "--node", "10.0.0.1:2", "--emulated", "-o", "job", "--", "A=b", *launch)
    assert done.code == 0, done.err
    assert "python train.py" in done.err + done.out
    script = (empty_home / "job" / "start-node-0.sh").read_text()
    assert '"A=b"' in script
    assert "torchrun" not in script
    assert "你好" in script


def test_a_module_is_rendered_as_python_runs_it(command, empty_home):
    done = command(
        "render", "--node", "10.0.0.1:2", "--emulated", "--module", "pkg.train", "-o", "job", "--", "--out={output_dir}"
    )
    assert done.code == 0, done.err
    script = (empty_home / "job" / "start-node-0.sh").read_text()
    assert '"${python}" -u -m pkg.train' in script
    assert "--out={output_dir}" in script
    assert "script=" not in script


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"nodes": None}, "nodes", "FIELD_NULL"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "nodes", "NODE_TWICE"),
        ({"nodes": [{"name": "a", "gpus": 2}]}, "nodes.0.gpus", "UNKNOWN_FIELD"),
        ({"trainData": ""}, "trainData", "TRAIN_DATA_REQUIRED"),
        ({"distributedConfig": {"masterNode": "c"}}, "distributedConfig.masterNode", "NODE_UNKNOWN"),
        ({"distributedConfig": {"nodeIds": ["c"]}}, "distributedConfig.nodeIds.0", "NODE_UNKNOWN"),
        ({"distributedConfig": {"framework": "jaxx"}}, "distributedConfig.framework", "FRAMEWORK_UNKNOWN"),
        ({"distributedConfig": {"worldSize": 99}}, "distributedConfig.worldSize", "WORLD_SIZE_TOO_LARGE"),
        ({"hyperparameters": {"batchSize": 0}}, "hyperparameters.batchSize", "HYPERPARAMETER_INVALID"),
        ({"env": {"RANK": "1"}}, "env.RANK", "ENV_RESERVED"),
    ],
)
def test_a_request_that_cannot_be_rendered_is_named(command, empty_home, change, field, code):
    (empty_home / "request.json").write_text(json.dumps({**REQUEST, **change}))
    done = command("render", "-f", "request.json")
    assert done.code == 2
    assert any(line.split()[:2] == [field, f"{code}:"] for line in done.err.splitlines()), done.err


def test_without_nodes_the_sources_of_nodes_are_named(command):
    done = command("render")
    assert (done.code, "--node ADDRESS:GPUS" in done.err) == (2, True)


@pytest.mark.parametrize("words", [["scripts", "task-1"], ["render", "--task", "task-1"]])
def test_a_task_s_scripts_are_downloaded_and_unpacked(command, api, empty_home, words):
    packed = export.build_archive(
        "task-1-1-shell", {"README.md": "# 说明\n", "lib/x.py": "", "start-all.sh": "#!/bin/sh\n"}
    )
    api.on("GET", "/training-tasks/task-1/scripts", Reply(packed, headers={"Content-Type": "application/gzip"}))
    done = command(*words, "--target", "shell", "--master-port", "23456")
    assert done.code == 0, done.err
    folder = empty_home / "task-1-1-shell"
    assert (folder / "README.md").read_text() == "# 说明\n"
    assert os.access(folder / "start-all.sh", os.X_OK)
    assert not os.access(folder / "lib" / "x.py", os.X_OK)
    assert api.requests[-1].query == {"target": "shell", "masterPort": "23456"}


def test_quickstart_lists_and_shows_without_a_terminal(command):
    listed = command("quickstart")
    assert listed.code == 0
    for entry in quickstart.list_entries("en"):
        assert f"{entry.number:>2}  {entry.id}" in listed.out
        by_number = command("quickstart", "--show", str(entry.number), "--host", "gn6", "--port", "23456")
        assert entry.title in by_number.out
        assert by_number.out == command("quickstart", "--show", entry.id, "--host", "gn6", "--port", "23456").out
    assert (
        "--master-addr gn6 --master-port 23456"
        in command("quickstart", "--show", "2", "--host", "gn6", "--port", "23456").out
    )
    assert "单机多卡" in command("quickstart", lang="zh").out
    unknown = command("quickstart", "--show", "99")
    assert (unknown.code, "1 (single-node)" in unknown.err) == (2, True)


def test_quickstart_inspects_this_machine(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        held = command("quickstart", "--show", "port", "--check", "--port", port)
        there = command("quickstart", "--show", "network", "--check", "--port", port)
    assert held.code == 1
    assert f"fail  Port {port} is in use on this machine by pid {os.getpid()}" in held.out
    assert there.code == 0
    assert f"pass  Port {port} of 127.0.0.1 can be reached." in there.out
    gone = command("quickstart", "--show", "network", "--check", "--host", "no.such.host.invalid")
    assert (gone.code, "no.such.host.invalid cannot be resolved" in gone.out) == (1, True)
    assert command("quickstart", "--show", "memory", "--check").code == 0


def test_quickstart_is_a_menu_on_a_terminal():
    port = str(free_port())
    near, far = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "TERM": "dumb", "COLUMNS": "200"}
    with subprocess.Popen(command_line("quickstart"), stdin=far, stdout=far, stderr=far, env=env) as menu:
        os.close(far)
        os.write(near, "\n".join(["10", port, "y", "nonsense", "q", ""]).encode())
        said = b""
        with suppress(OSError):  # the end of a terminal
            while piece := os.read(near, 65536):
                said += piece
        assert menu.wait(120) == 0
    os.close(near)
    text = said.decode()
    assert f"ss -ltnp 'sport = :{port}'" in text
    assert f"pass  Port {port} is free on this machine." in text
    assert "There is no nonsense" in text


def test_both_languages_show_the_same_commands():
    for zh, en in zip(quickstart.list_entries("zh"), quickstart.list_entries("en"), strict=True):
        assert _commands(zh.text) == _commands(en.text), zh.id


def _commands(text: str) -> set[str]:
    return {line.split("   ")[0].strip() for line in text.splitlines() if line.startswith("  fermi launch --n")}

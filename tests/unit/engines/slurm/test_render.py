"""The script, read by shellcheck and run by bash; the job, as the two dialects of slurmrestd take it."""

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.engines.check_results import CheckLevel
from fermi.engines.slurm import check, rest
from fermi.engines.slurm.components import parse_megabytes, parse_minutes
from fermi.engines.slurm.driver import SlurmSubmission
from fermi.engines.slurm.render import build_files
from fermi.jobs.spec import JobSpec, Rendered
from fermi.planning import checks, plugins
from tests.goldens import job, pinned

EVERYTHING: dict[str, Any] = {
    "folder": "/shared/fermi data", "python": "/opt/my python/bin/python3", "partition": "gpu,debug", "account": "ml's",
    "qos": "high", "reservation": "friday", "constraint": "a100&nvlink", "time_limit": "2-00:00:00", "mem": "0",
    "options": {"mail-user": "a b@example.org", "exclusive": True, "nice": 10, "requeue-soon": False},
    "modules": ["cuda/12.4", "nccl 2"], "conda": "my env", "setup": ["export NCCL_DEBUG=INFO"],
}  # fmt: skip
HOSTILE = 'it\'s; $(touch pwned) `id` "quoted" \\ *\n#SBATCH --partition=stolen\n'
CONNECTIONS = {
    "least": {"folder": "/shared/fermi"},
    "everything": EVERYTHING,
    "pyxis": {"folder": "/shared", "container": {"runtime": "pyxis", "image": "a#b:24.10", "mounts": ["/data"]}},
    "apptainer": {"folder": "/shared", "container": {"runtime": "apptainer", "image": "/images/my torch.sif"}},
}  # fmt: skip
NODES = {"uneven": ("env-001", "env-003", "env-005"), "even": ("env-001", "env-002"), "one": ("env-003",)}


def render(spec: JobSpec, **connection: Any) -> Rendered:
    plan = plugins.get_framework(spec.framework).plan(spec)
    return plugins.get_backend("slurm", {"folder": "/shared/fermi", **connection}).render(spec, plan)


def script(rendered: Rendered) -> str:
    text = build_files(rendered)["job.sh"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("connection", CONNECTIONS)
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("where", [pinned, lambda spec: spec], ids=["pinned", "anywhere"])
def test_the_script_passes_shellcheck(connection: str, nodes: str, where: Any, tmp_path: Path) -> None:
    spec = where(job(*NODES[nodes], emulated=False))
    path = tmp_path / "job.sh"
    path.write_text(script(render(spec, **CONNECTIONS[connection])))
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", "--severity=style", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_values_cannot_break_out_of_quotes(tmp_path: Path) -> None:
    """All that the script says is what it was told, word for word; but for a line's end, which becomes a space."""
    said = " ".join(HOSTILE.splitlines())
    names = ("partition", "account", "qos", "reservation", "constraint", "conda")
    connection = dict.fromkeys(names, HOSTILE) | {"modules": [HOSTILE], "python": HOSTILE, "folder": str(tmp_path)}
    spec = replace(pinned(job("env-001", "env-003", emulated=False)), task_id=said)
    spec = replace(spec, nodes=tuple(replace(node, name=HOSTILE) for node in spec.nodes))
    text = script(render(spec, **connection))
    for line in text.splitlines():
        if line.startswith("#SBATCH --"):
            [word] = shlex.split(line.removeprefix("#SBATCH "))
            assert "pwned" not in word or said in word
    assert "\n#SBATCH --partition=stolen" not in text
    stubs = "module() { :; }; conda() { :; }; scontrol() { :; }; srun() { printf '%s\\0' \"$@\" > srun.txt; }\n"
    run = tmp_path / "runs" / f"{said}-1"
    run.mkdir(parents=True)
    done = subprocess.run(
        ["bash", "-c", stubs + text], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_JOB_ID": "7"}
    )
    assert done.returncode == 0
    assert said in (run / "srun.txt").read_text().split("\0")
    assert not list(tmp_path.rglob("pwned"))


def test_a_job_runs_once_and_not_after_it_was_cancelled(tmp_path: Path) -> None:
    text = "srun() { echo ran; }; scontrol() { :; }\n" + script(render(pinned(job("env-003")), folder=str(tmp_path)))
    run = tmp_path / "runs" / "task-golden-1"
    run.mkdir(parents=True)

    def begin(**env: str) -> tuple[int, str]:
        env = {"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_JOB_ID": "7", **env}
        done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True)
        return done.returncode, done.stdout

    assert begin(SLURM_RESTART_COUNT="1") == (75, "")
    assert begin() == (0, "ran\n")
    assert (run / "begun").readlink() == Path("7")
    assert '"exit_code": 0' in (run / "end.json").read_text()
    assert begin(SLURM_JOB_ID="8") == (75, "")
    (run / "begun").unlink()
    (run / "stop.json").write_text("{}")
    assert begin() == (75, "")


def test_uneven_nodes_are_het_components_and_equal_nodes_one() -> None:
    text = script(render(pinned(job("env-001", "env-003", "env-005", emulated=False))))
    assert re.findall(r"#SBATCH --(?:gres|nodelist)=(\S+)", text) == [
        "gpu-env-001", "gpu:2", "gpu-env-003", "gpu:4", "gpu-env-005", "gpu:8",
    ]  # fmt: skip
    assert text.count("#SBATCH hetjob") == 2
    assert text.count("--het-group=") == 3
    even = script(render(pinned(job("env-002", "env-001", emulated=False))))
    assert "hetjob" not in even
    assert "#SBATCH --nodelist=gpu-env-002,gpu-env-001" in even, "the master first, then by name"


def test_options_of_an_environment_override(tmp_path: Path) -> None:
    spec = job("env-003")
    facts = {"partition": "big", "gres": "gpu:a100:4", "mem": "10G", "cpus": 3, "python": "/env/bin/python"}
    text = script(render(replace(spec, nodes=(replace(spec.nodes[0], engine=facts),)), partition="small", mem="0"))
    for wanted in ("--partition=big", "--gres=gpu:a100:4", "--mem=10G", "--cpus-per-task=3"):
        assert f"#SBATCH {wanted}\n" in text
    assert "/env/bin/python -m fermi.runner.slurm" in text


def test_files_of_an_attempt_are_in_its_folder() -> None:
    found = build_files(render(pinned(job("env-001", "env-003"))))
    assert {"job.sh", "order.json", "node-0.json", "node-1.json", "files/pytorch_ddp_config.yaml",
            "fermi/runner/slurm.py", "fermi/runner/node.py", "fermi/train/train_ddp.py"} <= found.keys()  # fmt: skip
    assert "tcp://gpu-env-001:29500" in str(found["files/pytorch_ddp_config.yaml"])


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [("90", 90), ("1:30", 2), ("10:00:00", 600), ("1-0", 1440), ("2-12:30", 3630), ("1-00:00:01", 1441)],
)
def test_time_limits_are_parsed_as_by_sbatch(limit: str, wanted: int) -> None:
    assert parse_minutes(limit) == wanted


@pytest.mark.parametrize(("size", "wanted"), [("0", 0), ("500", 500), ("2048K", 2), ("4G", 4096), ("1T", 1048576)])
def test_sizes_are_parsed_as_by_sbatch(size: str, wanted: int) -> None:
    assert parse_megabytes(size) == wanted


def submission() -> tuple[dict[str, Any], SlurmSubmission]:
    rendered = render(pinned(job("env-001", "env-002", emulated=False)), time_limit="1-00:00:00", partition="gpu")
    [options] = next(one.content for one in rendered.artifacts if one.kind == "submission")["components"]
    return options, SlurmSubmission("#!/bin/bash\n", "/shared/fermi/runs/x", [options], {"PATH": "/bin"})


def test_old_slurmrestd_gets_sbatch_options() -> None:
    options, asked = submission()
    assert rest._build_option_fields(options, asked) == {
        "name": "task-golden-1", "comment": "fermi:task-golden-1", "no_requeue": True, "time_limit": "1-00:00:00",
        "standard_output": "/shared/fermi/runs/task-golden-1/slurm.log", "signal": "23@60", "partition": "gpu",
        "memory_per_node": 131072, "nodes": [2, 2], "tasks": 2, "tasks_per_node": 1, "cpus_per_task": 16,
        "nodelist": "gpu-env-001,gpu-env-002", "gres": "gpu:2", "current_working_directory": "/shared/fermi/runs/x",
        "environment": {"PATH": "/bin"},
    }  # fmt: skip


def test_new_slurmrestd_gets_typed_fields() -> None:
    options, asked = submission()

    def number(value: int) -> dict[str, Any]:
        return {"set": True, "infinite": False, "number": value}

    assert rest._build_typed_fields(options, asked) == {
        "name": "task-golden-1", "comment": "fermi:task-golden-1", "requeue": False, "time_limit": number(1440),
        "standard_output": "/shared/fermi/runs/task-golden-1/slurm.log", "kill_warning_signal": "23",
        "kill_warning_delay": number(60), "partition": "gpu", "memory_per_node": number(131072), "nodes": "2",
        "tasks": 2, "tasks_per_node": 1, "cpus_per_task": 16, "required_nodes": ["gpu-env-001", "gpu-env-002"],
        "tres_per_node": "gres/gpu:2", "current_working_directory": "/shared/fermi/runs/x",
        "environment": ["PATH=/bin"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("connection", "codes"),
    [
        ({"url": "http://slurm:6820", "token_file": "/etc/fermi/jwt", "folder": "/shared"}, set()),
        ({"url": "unix:/run/slurmrestd.socket"}, set()),
        ({key: value for key, value in EVERYTHING.items() if key != "setup"}, set()),
        ({"url": "http://slurm:6820"}, {"CONNECTION_INVALID"}),
        ({"token": "eyJ…"}, {"CONNECTION_KEY_UNKNOWN"}),
        ({"partition": "a\nb"}, {"CONNECTION_INVALID"}),
        ({"time_limit": "soon"}, {"CONNECTION_INVALID"}),
        ({"container": {"runtime": "docker"}}, {"CONNECTION_INVALID"}),
        ({"options": {"Exclusive": True}}, {"CONNECTION_INVALID"}),
        ({"node_cache_dir": "scratch"}, {"CONNECTION_INVALID"}),
        ({"node_cache_dir": "/scratch/../etc"}, {"CONNECTION_INVALID"}),
        ({"node_cache_dir": "/"}, {"CONNECTION_INVALID"}),
        ({"node_cache_dir": "/local/scratch/fermi/"}, set()),
        ({"options": {"exclusive": True, "mem-per-cpu": "2G", "hint": 1}}, set()),
    ],
)
def test_a_connection_names_secrets_and_holds_none(connection: dict[str, Any], codes: set[str]) -> None:
    assert {problem.code for problem in checks.find_connection_problems("slurm", connection)} == codes


def test_a_wrong_choice_in_a_connection_names_the_choices() -> None:
    [problem] = checks.find_connection_problems("slurm", {"container": {"runtime": "docker"}})
    told = messages.render_text(problem.code, "en", **problem.params)
    assert told == ("This is not valid in a connection: docker.", "Expected one of pyxis | apptainer, but got docker.")


def test_two_environments_of_one_machine_are_refused() -> None:
    spec = job("env-001", "env-003")
    spec = replace(spec, nodes=tuple(replace(node, engine={"node": "gn7"}) for node in spec.nodes))
    [problem] = plugins.get_backend("slurm", {"folder": "/shared"}).problems(spec)
    assert (problem.code, problem.field, problem.params["machine"]) == ("SLURM_NODE_TWICE", "environmentIds.1", "gn7")


@pytest.mark.parametrize(
    ("user", "level", "code"),
    [
        (None, CheckLevel.WARN, "SLURM_RANKS_CONFINED_AS_PLATFORM"),
        ("platform", CheckLevel.WARN, "SLURM_RANKS_CONFINED_AS_PLATFORM"),
        ("root", CheckLevel.WARN, "SLURM_RANKS_CONFINED_AS_PLATFORM"),
        ("tasks", CheckLevel.PASS, "SLURM_RANKS_CONFINED"),
    ],
)
def test_the_check_reports_the_ranks_user_and_its_access(
    user: str | None, level: CheckLevel, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "platform")
    connection = {"data_dir": "/srv/fermi", **({"user": user} if user else {})}
    unconfined = check.check_rank_user({**connection, "confine": False})
    assert unconfined.level is level
    assert unconfined.code == ("SLURM_RANKS_UNCONFINED" if level is CheckLevel.WARN else "SLURM_RANKS_OF_ANOTHER_USER")
    found = check.check_rank_user(connection)
    assert (found.level, found.code, found.params["user"]) == (level, code, user or "platform")
    for lang in messages.LANGUAGES:
        assert found.params["user"] in messages.render_text(found.code, lang, **found.params)[0]


def test_slurm_orders_the_tasks() -> None:
    assert plugins.get_backend("slurm", {}).queues


def render_directives(connection: dict[str, Any], **changes: Any) -> dict[str, str]:
    text = script(render(replace(job("env-003"), **changes), **connection))
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", text, re.MULTILINE))


def test_options_by_project_and_priority_are_passed_to_slurm() -> None:
    connection = {
        "partition": {"default": "main", "projects": {"project-1": "lab", "nlp": "words"}},
        "account": {"projects": {"nlp": "nlp-account"}},
        "qos": {"priorities": {"high": "soon", "urgent": "now"}, "projects": {"nlp": "nlp"}},
        "nice": {"low": 1000},
    }
    assert not checks.find_connection_problems("slurm", connection)
    usual = render_directives(connection)
    assert (usual["partition"], usual.keys() & {"account", "qos", "nice"}) == ("main", set())
    assert render_directives(connection, project="project-1")["partition"] == "lab"
    ours = render_directives(connection, project="project-2", project_name="nlp")
    assert (ours["partition"], ours["account"], ours["qos"]) == ("words", "nlp-account", "nlp")
    urgent = render_directives(connection, project_name="nlp", priority="urgent")
    assert (urgent["account"], urgent["qos"]) == ("nlp-account", "now"), "a class wins over a project"
    assert render_directives(connection, priority="low")["nice"] == "1000"
    assert render_directives({}, priority="urgent").keys() == render_directives({}).keys(), (
        "nothing is passed on that nobody has mapped"
    )


@pytest.mark.parametrize(
    ("limit", "max_run", "wanted"),
    [
        ("", None, None),
        ("", 3600, "62"),  # with the grace, the warning before the limit and a minute to spare
        ("2-00:00:00", None, "2-00:00:00"),
        ("2-00:00:00", 3600, "62"),
        ("30", 3600, "30"),
        ("0", 3600, "62"),  # Slurm's word for no limit
    ],
)
def test_a_tasks_time_limit_is_passed_up_to_the_connections(
    limit: str, max_run: float | None, wanted: str | None
) -> None:
    connection = {"time_limit": limit} if limit else {}
    options = render_directives(connection, max_run=max_run, grace_seconds=30.0)
    assert options.get("time") == wanted
    if wanted and max_run and wanted != limit:
        delay = int(options["signal"].partition("@")[2])
        assert parse_minutes(wanted) * 60 - delay >= max_run, "Slurm's warning comes after the platform's own end"

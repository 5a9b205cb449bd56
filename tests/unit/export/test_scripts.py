"""A job as scripts: values survive the shell, ranks and environment are the plan's, shellcheck has no complaint."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fermi import export
from fermi.engines.kubernetes.names import MANAGED_BY
from fermi.engines.kubernetes.render import render as kubernetes_objects
from fermi.export.scripts import rename_exported_job
from fermi.export.shell_quotes import quote_text, quote_value, quote_word
from fermi.jobs.spec import Code, Entrypoint, JobSpec, Late, Node, resolve
from fermi.planning import plugins
from fermi.runner.processes import read_start_time
from tests.exported_scripts import Started, fake_ssh, lines_of, nodes, write
from tests.platform_process import free_port
from tests.polling import until
from tests.sampling import examples

NASTY = [
    "", " ", "two words", "it's", 'say "no"', "$HOME", "`id`", "$(id)", "-n", "--", "-rf /", "a=b", "~", "*", "{a,b}",
    "back\\slash", "line\nbreak\n", "tab\there", "!history", "# no comment", "a;b", "a&b|c>d<e", "\r", "\x1b[31m",
    "“curly” – ‘quotes’", "中文路径", "naïve", "\u00a0", "\u202e", "🚀", "[x]", "(x)", "?", "\\", "\\n", "'", '"', "%s",
]  # fmt: skip
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)
TARGETS = list(export.TARGETS)

needs_shellcheck = pytest.mark.skipif(not shutil.which("shellcheck"), reason="apt-get install shellcheck")


def said_by_bash(words: list[str]) -> list[str]:
    """What bash makes of words of a script."""
    script = "words=(\n" + "\n".join(words) + "\n)\nprintf '%s\\0' \"${words[@]}\"\n"
    done = subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True, env={"LC_ALL": "C"})
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


@settings(max_examples=examples(40))
@given(st.lists(TEXT, min_size=1, max_size=30))
def test_any_text_is_one_unchanged_word_of_bash(texts):
    assert said_by_bash([quote_word(text) for text in texts]) == texts
    assert said_by_bash([quote_text(text) for text in texts]) == texts


def test_special_characters_of_shells_are_unchanged():
    assert said_by_bash([quote_word(text) for text in NASTY]) == NASTY
    prefixed = [quote_value((f"{text}=", Late.PYTHON, text), {Late.PYTHON: "BASH_VERSINFO"}) for text in NASTY]
    assert [item[:1] for item in said_by_bash(prefixed)] == [f"{text}="[:1] for text in NASTY]


def job(*gpus: int, framework: str = "pytorch-ddp", **changes) -> JobSpec:
    given = {
        "train_data": "/data/my data/train.bin", "valid_data": "/data/my data/val.bin", "checkpoint_dir": "/ckpt/$x",
        "attempt": 2, "nodes": nodes(*(gpus or (1, 2)), image="registry/train:1"), **changes,
    }  # fmt: skip
    return JobSpec("task-hand", framework, master="env-0", **given)


def nasty(**changes) -> JobSpec:
    env = {f"V{number}": text for number, text in enumerate(NASTY)} | {"UID": "7", "IFS": ":", "PYTHONPATH": "/x y:/z"}
    return job(env=env, **changes)


DUMP = """
import json, os, sys
place = os.path.join(os.environ["OUT"], os.environ["RANK"] + ".json")
json.dump({"env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd()}, open(place, "w"))
"""


def test_each_rank_gets_the_plans_environment_and_arguments_unchanged(tmp_path):
    (tmp_path / "a script.py").write_text(DUMP)
    out = tmp_path / "out"
    out.mkdir()
    spec = nasty(entrypoint=Entrypoint("a script.py", (*NASTY, "{rank}")), master_port=free_port())
    spec = replace(spec, env={**spec.env, "OUT": str(out), "HERE": "{checkpoint_dir}/{rank}"})
    folder = write(tmp_path / "the 'folder'", spec, "shell")
    runs = [
        Started(tmp_path / f"log-{rank}", "bash", folder / f"start-node-{rank}.sh", FERMI_WORKDIR=str(tmp_path))
        for rank in (1, 0)
    ]
    for run in runs:
        run.succeed()
    plan = plugins.get_framework(spec.framework).plan(spec)
    bindings = {Late.HEAD_HOST: "127.0.0.1", Late.FILES_DIR: str(folder / "configs"), Late.PYTHON: sys.executable}
    for node in plan.nodes:
        for process in node.processes:
            seen = json.loads((out / f"{process.rank}.json").read_text())
            wanted = {name: resolve(text, bindings) for name, text in {**node.env, **process.env}.items()}
            path = wanted.pop("PYTHONPATH")
            wanted["HERE"] = f"{wanted['FERMI_CHECKPOINT_DIR']}/{process.rank}"
            assert {name: seen["env"].get(name) for name in wanted} == wanted
            probe, _, rest = seen["env"]["PYTHONPATH"].partition(":")  # first, until the rank trains
            assert (probe, rest) == (f"{folder}/lib/fermi/probe/site", f"{folder}/lib:{path}")
            assert seen["argv"] == [*NASTY, str(process.rank)]
            assert seen["cwd"] == str(tmp_path)


@needs_shellcheck
@pytest.mark.parametrize("target", TARGETS)
def test_scripts_pass_shellcheck(target, tmp_path):
    specs = [
        nasty(hyperparameters={"wandbRunName": "".join(NASTY)}),
        job(2, framework="jax" if target != "torchrun" else "deepspeed"),
        job(1, 1, entrypoint=Entrypoint("-dir/it's.py", tuple(NASTY)), secret_env={"API_KEY": "the-key", "B": "b"}),
    ]
    found = []
    for number, spec in enumerate(specs):
        folder = write(tmp_path / str(number), spec, target)
        found += sorted(folder.rglob("*.sh"))
    assert found
    done = subprocess.run(["shellcheck", *found], capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode == 0


def test_the_readme_explains_how_code_reaches_the_nodes():
    bare = export.render_files(job(2, 1), "shell", "en")["README.md"]
    own = export.render_files(job(2, 1, code=Code(snapshot="5b" * 32)), "shell", "en")["README.md"]
    assert "fermi clone" not in bare
    assert "fermi clone 5b5b5b5b5b5b5b5b ./code" in own
    assert "FERMI_WORKDIR" in own


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_readme_describes_its_job(target, lang):
    spec = job(1, 2)
    text = export.render_files(spec, target, lang)["README.md"]
    assert "task-hand-2" in text
    assert "29500" in text or target == "kubernetes"
    assert "| 1 | node-1 | 127.0.0.1 | 2 × A100 | 1-2 |" in text
    assert "| 2 | 1 | 1 | 2 | CPU |" in text
    assert ("## 节点" in text) is (lang == "zh")


def test_torchrun_says_why_it_cannot_start_a_job():
    for framework in ("jax", "horovod"):
        [found] = export.find_problems(job(2, framework=framework), "torchrun")
        assert (found.field, found.code) == ("target", "TORCHRUN_NOT_FOR_FRAMEWORK")
    uneven = job(nodes=(nodes(1)[0], replace(nodes(1, 2)[1], gpu_type="V100")), options={"batchShare": "proportional"})
    found = export.find_problems(uneven, "torchrun")
    assert [one.code for one in found] in ([], ["TORCHRUN_RANKS_DIFFER"])
    own = any("FERMI_LOCAL_BATCH_SIZE" in process.env for node in plugins.get_framework("ddp").plan(uneven).nodes
              for process in node.processes)  # fmt: skip
    assert bool(found) is own


def test_torchrun_warns_where_nodes_are_uneven():
    uneven, even = (export.render_files(job(*gpus), "torchrun", "en") for gpus in ((1, 2), (2, 2)))
    assert "different numbers of processes" in uneven["README.md"]
    assert "different numbers of processes" in uneven["start-node-0.sh"]
    assert "different numbers of processes" not in even["README.md"] + even["start-node-0.sh"]
    assert "--nnodes=2 --nproc-per-node=2 --node-rank=1" in even["start-node-1.sh"]


def test_a_compose_file_has_a_service_for_each_node():
    cuda = tuple(replace(node, emulated=False, image="" if node.id == "env-1" else node.image)
                 for node in nodes(1, 2, image="a$b"))  # fmt: skip
    files = export.render_files(job(nodes=cuda), "compose", "en")
    composed = yaml.safe_load(files["docker-compose.yml"])
    first, second = composed["services"].values()
    assert list(composed["services"]) == ["node-0", "node-1"]
    assert first["image"] == "a$$b"
    assert second["image"].startswith("${FERMI_IMAGE:?")
    assert "/ckpt/$$x:/ckpt/$$x" in first["volumes"]
    assert "/data/my data:/data/my data" in first["volumes"]
    devices = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for service in (first, second)
    ]
    assert devices == [["0"], ["1", "2"]]
    assert '\nhead="node-0"\n' in files["start-node-1.sh"]


def test_kubernetes_objects_equal_the_backends_without_its_label():
    spec = job(1, 2)
    files = export.render_files(spec, "kubernetes", "en", {"namespace": "training"})
    found = [yaml.safe_load(text) for name, text in sorted(files.items()) if name.startswith("manifests/")]
    own = rename_exported_job(spec)
    plan = plugins.get_framework(spec.framework).plan(spec)
    wanted = [one.content for one in kubernetes_objects(own, plan, {"namespace": "training"}).artifacts]
    text = json.dumps(wanted)
    assert MANAGED_BY in text
    marks = (f', "{MANAGED_BY}": "fermi"', f'"{MANAGED_BY}": "fermi", ', f'"{MANAGED_BY}": "fermi"')
    for mark in marks:
        text = text.replace(mark, "")
    assert found == json.loads(text)
    without = job(nodes=nodes(1))
    assert [one.code for one in export.find_problems(without, "kubernetes")] == ["IMAGE_MISSING"]


SBATCH = """#!/usr/bin/env bash
echo "Submitted $1"
"""


def test_a_slurm_folder_is_copied_to_shared_storage_and_can_be_resubmitted(tmp_path):
    shared = tmp_path / "shared it's"
    folder = write(tmp_path / "job", nasty(), "slurm", folder=str(shared))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH)
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = shared / "runs" / "task-hand-hand-2"
    for _ in range(2):
        done = subprocess.run(["bash", folder / "submit.sh"], capture_output=True, text=True, env={"PATH": path})
        assert done.stdout == f"Submitted {run}/job.sh\n", done.stderr
        assert not os.path.lexists(run / "begun")
        (run / "begun").symlink_to("17")
    script = (run / "job.sh").read_text()
    assert "--comment" not in script
    assert "--kill-on-bad-exit=1" in script
    assert (run / "fermi" / "runner" / "slurm.py").exists()


FAIL = "import os, sys, time\nprint('up', flush=True)\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)\n"


def one_touch(tmp_path: Path, spec: JobSpec, script: str) -> Started:
    (tmp_path / "script.py").write_text(script)
    spec = replace(spec, entrypoint=Entrypoint("script.py"), grace_seconds=5, master_port=free_port())
    folder = write(tmp_path / "job", spec, "shell")
    env = fake_ssh(tmp_path / "remote") | {"FERMI_WORKDIR": str(tmp_path)}
    return Started(tmp_path / "log", "bash", folder / "start-all.sh", **env)


def test_the_one_touch_script_ends_all_nodes_with_the_failed_rank_s_code(tmp_path):
    run = one_touch(tmp_path, job(1, 1), FAIL)
    try:
        assert run.wait() == 7, run.text
    finally:
        run.close()
    assert "node 1 (127.0.0.1) ended with exit code 7; the others are stopped" in run.text


def test_ctrl_c_of_the_one_touch_script_ends_all_nodes(tmp_path):
    run = one_touch(tmp_path, job(1, 1), FAIL.replace("== '1'", "== '9'"))
    try:
        run.until_says("[rank 0] up")
        run.until_says("[rank 1] up")
        run.send(signal.SIGINT)
        assert run.wait() == 130, run.text
    finally:
        run.close()


def test_the_nodes_stop_when_the_one_touch_script_is_killed(tmp_path):
    run = one_touch(tmp_path, job(1, 1), "import os\nprint(os.getpid(), flush=True)\nimport time\ntime.sleep(600)\n")
    try:
        run.until_says("[rank 0] ")
        run.until_says("[rank 1] ")
        run.process.kill()
        run.process.wait()
        pids = [int(lines_of(run.text, rank)[0]) for rank in (0, 1)]
        until(lambda: not any(map(read_start_time, pids)), seconds=120, what="no rank is left")
    finally:
        run.close()


def test_a_host_unreachable_by_ssh_is_named(tmp_path):
    there, gone = nodes(1, 1)
    run = one_touch(tmp_path, job(nodes=(there, replace(gone, ip="gone"))), FAIL)
    assert run.wait() == 255
    assert "cannot copy to gone" in run.text


def test_a_missing_script_and_a_missing_interpreter_are_named(tmp_path):
    folder = write(tmp_path / "job", job(1, entrypoint=Entrypoint("train.py")), "shell")
    start = folder / "start-node-0.sh"
    run = Started(tmp_path / "log", "bash", start)
    assert run.wait() == 2
    assert f"there is no train.py in {folder}" in run.text
    run = Started(tmp_path / "log", "bash", start, FERMI_PYTHON="nopython")
    assert run.wait() == 127
    assert "there is no nopython here: set FERMI_PYTHON" in run.text


def test_nodes_without_an_address_are_called_by_their_name():
    nameless = (Node("env-0", "gpu-a", gpu_count=1, emulated=True), Node("env-1", "gpu-b", host="b.example"))
    files = export.render_files(job(nodes=nameless), "shell", "en")
    assert 'hosts=(\n  "gpu-a"\n  "b.example"\n)' in files["start-all.sh"]


# Secrets --------------------------------------------------------------------------------------------------------------

SCRIPTS = {"slurm": "submit.sh", "kubernetes": "apply.sh"}  # the others begin with a node's


@pytest.mark.parametrize("target", TARGETS)
def test_a_script_names_the_variable_of_a_secret_and_requires_it(target, tmp_path):
    (tmp_path / "train.py").write_text("print('never')\n")
    spec = job(1, entrypoint=Entrypoint("train.py"), secret_env={"API_KEY": "the-key"})
    folder = write(tmp_path / "job", spec, target)
    env = {"PATH": os.environ["PATH"], "FERMI_PYTHON": sys.executable, "FERMI_WORKDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", folder / SCRIPTS.get(target, "start-node-0.sh")], capture_output=True, text=True, env=env
    )
    assert done.returncode != 0
    assert "API_KEY: set it to the value of the secret the-key" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("by", ["environment", "file"])
def test_a_secret_variable_reaches_the_ranks(by, tmp_path):
    value = '$(id) it\'s "so"'
    (tmp_path / "train.py").write_text("import os; print('key', os.environ['API_KEY'])\n")
    spec = job(1, entrypoint=Entrypoint("train.py"), secret_env={"API_KEY": "the-key"})
    folder = write(tmp_path / "job", spec, "shell")
    env = {"PATH": os.environ["PATH"], "FERMI_PYTHON": sys.executable, "FERMI_WORKDIR": str(tmp_path)}
    if by == "file":
        (folder / "secrets.env").write_text(f"API_KEY={shlex.quote(value)}\n")
    else:
        env["API_KEY"] = value
    done = subprocess.run(["bash", folder / "start-node-0.sh"], capture_output=True, text=True, env=env)
    assert f"key {value}" in done.stdout, done.stderr


KUBECTL = """#!/usr/bin/env bash
printf '%q ' "$@" >>"$LOG"; echo >>"$LOG"
for word in "$@"; do
  if [[ $word == --from-file=API_KEY=* ]]; then cat "${word#--from-file=API_KEY=}" >"$LOG.value"; fi
done
if [[ " $* " == *" get pods "* ]]; then echo pod/one; fi
"""


def test_kubectl_gets_the_secret_on_no_command_line(tmp_path):
    folder = write(tmp_path / "job", job(1, secret_env={"API_KEY": "the-key"}), "kubernetes")
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    log, value = tmp_path / "log", "sesame\nopen"
    env = {"PATH": os.environ["PATH"], "KUBECTL": str(tmp_path / "kubectl"), "LOG": str(log), "API_KEY": value}
    subprocess.run(["bash", folder / "apply.sh"], check=True, env=env)
    assert (tmp_path / "log.value").read_text() == value
    assert "sesame" not in log.read_text()
    assert "create secret generic task-hand-hand-2" in log.read_text()
    references = [path.read_text() for path in (folder / "manifests").glob("*-job-*")]
    assert all("name: task-hand-hand-2\n" in text and "key: API_KEY" in text for text in references)
    subprocess.run(["bash", folder / "delete.sh"], check=True, env=env)
    assert "delete --ignore-not-found secret task-hand-hand-2" in log.read_text()


def test_scripts_have_the_resource_bounds_of_their_cluster():
    asked = {"bounds": {"processes": 64, "memoryGb": 1.5, "reservePercent": 10}}
    for target in ("shell", "torchrun", "compose"):
        script = export.render_files(job(1, 1), target, "en", asked)["start-node-0.sh"]
        assert "  --processes 64 --open-files 1048576\n  --memory-gb 1.5 --disk-gb 0 --reserve-percent 10\n" in script
        usual = export.render_files(job(1, 1), target, "en")["start-node-0.sh"]
        assert "  --processes 4096 --open-files 1048576\n  --memory-gb 0 --disk-gb 0 --reserve-percent 5\n" in usual


@pytest.mark.parametrize("target", ["shell", "torchrun"])
def test_options_of_the_script_for_all_nodes_reach_each_node(tmp_path, target):
    spec = job(1, entrypoint=Entrypoint("train.py"), master_port=free_port())
    (folder := write(tmp_path / "job", spec, target)).joinpath("train.py").write_text("print('began')")
    run = Started(tmp_path / "log", "bash", folder / "start-all.sh", "--confine", "--read", "/no such folder")
    assert run.wait() == 71
    assert "fermi: --confine: there is no /no such folder: no rank was started" in run.text
    assert "began" not in run.text

"""A confined rank compiles C++ at run time, where its framework's plan says that it may."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fermi.engines.local import LocalBackend
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Phase
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests.polling import until

SCRIPT = """
import ctypes, os, pathlib
from torch.utils.cpp_extension import load
source = pathlib.Path(os.environ["TMPDIR"], "twice.cpp")
source.write_text('extern "C" int twice(int value) { return 2 * value; }')
built = load("twice", [str(source)], is_python_module=False)
[library] = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"]).rglob("twice.so")
print("twice", ctypes.CDLL(str(library)).twice(21), flush=True)
try:
    pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"]).parent.joinpath("ds_config.json").write_text("{}")
except OSError as error:
    print("the plan's files:", error.strerror, flush=True)
"""


@pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler on this machine")
def test_a_cpp_extension_is_built_in_the_attempts_folder(tmp_path: Path) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path / "data"), "warm": False, "isolation": "auto"})
    if not backend.isolation.protects:
        pytest.skip("nothing confines ranks on this machine")
    script = tmp_path / "data" / "workspace" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    node = Node("env-0", "node-0", gpu_type="A100", gpu_count=1, emulated=True)
    job = JobSpec("task-x", "deepspeed", (node,), "env-0", entrypoint=Entrypoint("train.py"), attempt=1,
                  grace_seconds=5.0, checkpoint_dir=str(tmp_path / "data" / "checkpoints" / "task-x"))  # fmt: skip
    plan = replace(plugins.get_framework("deepspeed").plan(job), preload=())
    handle = Handle(job.name, job.task_id, 1, 1)
    backend.submit(backend.render(job, plan))
    ended = (Phase.SUCCEEDED, Phase.FAILED)
    seen = until(lambda: (now := backend.observe([handle])[handle.name]).phase in ended and now, seconds=300)
    text = strip_frames(backend.logs(handle, 0, 0).data).decode()
    until(lambda: backend.observe([handle])[handle.name].left is False)
    assert seen.phase == Phase.SUCCEEDED, text
    assert "twice 42" in text
    assert "the plan's files: " in text

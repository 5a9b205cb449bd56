"""What cgroups have to say of a rank that was killed."""

from pathlib import Path

import pytest

from fermi.runner import kernel
from fermi.runner.kernel import OomDetector

GIB = 1 << 30
NOBODY = 1 << 30  # a process id that no log names


def group(folder: Path, limit: str, oom: int, oom_kill: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 7\noom {oom}\noom_kill {oom_kill}\noom_group_kill 0\n")
    (folder / "memory.max").write_text(limit + "\n")
    (folder / "memory.peak").write_text(f"{2 * GIB}\n")
    return str(folder)


def test_a_hit_limit_is_named_with_the_usage(tmp_path: Path) -> None:
    pod, machine = tmp_path / "machine" / "pod", tmp_path / "machine"
    memory = OomDetector([group(pod, str(2 * GIB), 0, 3), group(machine, "max", 0, 3)])
    assert memory.explains(NOBODY) is None, "nothing new has happened"
    group(pod, str(2 * GIB), 1, 4), group(machine, "max", 0, 4)
    assert memory.explains(NOBODY) == {"by": "memory", "scope": "cgroup", "limit": 2 * GIB, "used": 2 * GIB}


def test_without_a_limit_the_machine_was_out_of_memory(tmp_path: Path) -> None:
    memory = OomDetector([group(tmp_path, "max", 0, 0)])
    group(tmp_path, "max", 0, 1)
    found = memory.explains(NOBODY)
    assert found is not None
    assert (found["by"], found["scope"], found["used"]) == ("memory", "host", None)


def test_cgroup_v1_reports_the_same(tmp_path: Path) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text(f"{GIB}\n")
    (tmp_path / "memory.max_usage_in_bytes").write_text(f"{GIB}\n")
    counts = tmp_path / "memory.oom_control"
    counts.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    memory = OomDetector([str(tmp_path)])
    counts.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert memory.explains(NOBODY) == {"by": "memory", "scope": "cgroup", "limit": GIB, "used": GIB}


def test_unreadable_counters_explain_nothing(tmp_path: Path) -> None:
    assert OomDetector([str(tmp_path / "absent")]).explains(NOBODY) is None


def test_the_kernels_group_may_differ_from_the_runners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = (
        b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/step/3,task_memcg"
    )
    monkeypatch.setattr(
        kernel, "_read_kernel_log", lambda: iter([(1e9, record + b"=/step/3,task=python3,pid=4711,uid=0")])
    )
    monkeypatch.setattr(kernel, "_ROOTS", (str(tmp_path),))
    group(tmp_path / "step" / "3", str(GIB), 1, 1)
    memory = OomDetector([group(tmp_path / "own", str(9 * GIB), 0, 0)])
    assert memory.explains(4711) == {"by": "memory", "scope": "cgroup", "limit": GIB, "used": 2 * GIB}
    assert memory.explains(4712) is None

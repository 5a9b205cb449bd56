"""Where a rank's libraries keep what they download and compile."""

import json
import os
from pathlib import Path

import pytest

from fermi.runner.caches import COMPILED, FOLDERS, build_cache_env, make_node_cache
from fermi.runner.record_frames import strip_frames
from tests.unit.runner.test_node import run


def test_caches_lie_in_the_home_of_the_rank(tmp_path: Path) -> None:
    expected = {name: f"{tmp_path}/.cache/{folder}" for name, folder in FOLDERS.items()}
    assert build_cache_env({"HOME": str(tmp_path)}) == expected


def test_the_folder_of_the_project_comes_first(tmp_path: Path) -> None:
    env = {"HOME": "/nowhere", "FERMI_CACHE_DIR": str(tmp_path / "nlp"), "XDG_CACHE_HOME": "/nowhere"}
    assert build_cache_env(env)["HF_HOME"] == f"{tmp_path}/nlp/huggingface"
    assert build_cache_env({"XDG_CACHE_HOME": str(tmp_path)})["TORCH_HOME"] == f"{tmp_path}/torch"


def test_what_is_set_stays(tmp_path: Path) -> None:
    found = build_cache_env({"HOME": str(tmp_path), "HF_HOME": "/models", "TORCHINDUCTOR_CACHE_DIR": "/fast"})
    assert found.keys() == {"TORCH_HOME", "TRITON_CACHE_DIR"}


def test_a_folder_that_torch_has_chosen_in_tmp_is_replaced(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_root"}
    assert build_cache_env(env)["TORCHINDUCTOR_CACHE_DIR"] == f"{tmp_path}/.cache/torchinductor"


@pytest.mark.parametrize("env", [{}, {"HOME": ""}, {"HOME": f"{__file__}/nowhere"}, {"HOME": "relative"}])
def test_without_a_folder_nothing_is_set(env: dict[str, str]) -> None:
    assert build_cache_env(env) == {}


@pytest.mark.parametrize("fork", [False, True])
def test_ranks_of_a_node_share_them(fork: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", "/models")
    for name in FOLDERS.keys() - {"HF_HOME"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    run(tmp_path, f"""
import json, os
print(json.dumps({{name: os.environ.get(name) for name in {[*FOLDERS]!r}}}))
""", 2, fork=fork)  # fmt: skip
    logs = [strip_frames((tmp_path / f"{rank}.log").read_bytes()) for rank in (0, 1)]
    assert logs[0] == logs[1]
    assert json.loads(logs[0]) == {
        **{name: os.path.join(tmp_path, ".cache", folder) for name, folder in FOLDERS.items()},
        "HF_HOME": "/models",
    }


def test_kernels_lie_on_the_nodes_own_disk_where_it_has_a_folder_for_them(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "FERMI_NODE_CACHE_DIR": "/local/nlp",
           "TORCHINDUCTOR_CACHE_DIR": f"{tmp_path}/.cache/torchinductor"}  # fmt: skip
    found = build_cache_env(env)
    assert {name: found[name] for name in COMPILED} == {
        "TRITON_CACHE_DIR": "/local/nlp/triton", "TORCHINDUCTOR_CACHE_DIR": "/local/nlp/torchinductor",
    }  # fmt: skip
    assert found["HF_HOME"] == f"{tmp_path}/.cache/huggingface"
    assert "TRITON_CACHE_DIR" not in build_cache_env({**env, "TRITON_CACHE_DIR": "/mine"})


def test_the_nodes_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    for _ in range(2):
        make_node_cache(f"{tmp_path}/scratch/nlp")
    assert os.stat(tmp_path / "scratch" / "nlp").st_mode & 0o777 == 0o700


@pytest.mark.parametrize("case", ["link", "file", "writable", "exchangeable", "missing"])
def test_a_folder_that_others_can_write_to_is_no_cache_of_compiled_code(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "scratch" / "nlp"
    folder.parent.mkdir()
    if case == "link":
        (tmp_path / "else").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "else")
    elif case == "file":
        folder.touch()
    elif case == "writable":
        folder.mkdir()
        folder.chmod(0o777)
    elif case == "exchangeable":
        folder.parent.chmod(0o777)
    else:
        folder = Path("/proc/none/nlp")
    with pytest.raises(OSError):
        make_node_cache(str(folder))


def test_a_rank_without_its_nodes_folder_runs_and_its_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in FOLDERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "nlp").touch()
    run(tmp_path, "import os; print(os.environ['TRITON_CACHE_DIR'], os.environ.get('FERMI_NODE_CACHE_DIR'))",
        1, env={"HERE": str(tmp_path), "FERMI_NODE_CACHE_DIR": str(tmp_path / "nlp")})  # fmt: skip
    log = strip_frames((tmp_path / "0.log").read_bytes()).decode()
    assert "compiled kernels are not kept on this node" in log
    assert f"{tmp_path}/.cache/triton None" in log

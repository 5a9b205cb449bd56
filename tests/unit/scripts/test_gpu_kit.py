"""`make gpu-kit` and the start of `make gpu-check`: what is carried, where it is unpacked, what is left behind."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import gpu_check, gpu_kit
from scripts.gpu_check import GpuCheckError, PythonInstallation

VERSION = "{}.{}".format(*sys.version_info)


def python(version: str, *packages: str) -> PythonInstallation:
    return PythonInstallation(f"/opt/python{version}", version, (), dict.fromkeys(packages, "1.0"))


def write_kit(folder: Path, version: str = VERSION) -> Path:
    """A kit of one module and one script, packed as a whole one is."""
    files = {f"lib/python{version}/site-packages/carried.py": "NAME = 'carried'\n",
             "bin/carried": "#!/built/elsewhere/python3\nimport carried\nprint(carried.NAME)\n"}  # fmt: skip
    for name, text in files.items():
        path = folder / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "tree/bin/carried").chmod(0o755)
    kit = folder / "kit"
    kit.mkdir()
    for name in (gpu_check.SITE, gpu_check.CONSOLE):
        gpu_kit.pack_archive(folder / "tree", kit / name)
    about = {"python": version, "packages": {}, "requirements": "",
             "archives": {path.name: {"sha256": gpu_check.hash_file(path)} for path in kit.iterdir()}}  # fmt: skip
    (kit / "kit.json").write_text(json.dumps(about))
    return kit


@pytest.mark.parametrize("version", gpu_check.PYTHONS)
def test_each_locked_package_is_included_or_excluded_with_a_reason(root: Path, version: str) -> None:
    lock = (root / "requirements.txt").read_text()
    carried, left_out = gpu_kit.choose_pins(lock, version)
    names = {name for name, *_ in gpu_kit.PIN.findall(lock)}
    assert carried.keys() | left_out.keys() == names
    assert not carried.keys() & left_out.keys()
    assert all(left_out.values())
    assert {"django", "celery", "httpx", "nvidia-ml-py", "deepspeed", "jupyterlab"} <= carried.keys()
    assert {"numpy", "jax", "jaxlib", "scipy", "sympy", "pywinpty"} <= left_out.keys()
    assert all("--hash=sha256:" in lines for _, lines in carried.values())
    # Debian 12's 3.11.2 needs it, though the Python that makes the kit may not.
    assert ("async-timeout" in carried) == (version == "3.11")


def test_of_pytorchs_dependencies_only_the_driver_module_is_included() -> None:
    assert gpu_kit.reason_to_leave_out("nvidia-cublas-cu12")
    assert gpu_kit.reason_to_leave_out("torch")
    assert gpu_kit.reason_to_leave_out("nvidia-ml-py") == ""


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("django/conf/locale/zh_Hans/LC_MESSAGES/django.mo", True),
        ("django/conf/locale/en/formats.py", True),
        ("django/conf/locale/__init__.py", True),
        ("django/conf/locale/de/LC_MESSAGES/django.mo", False),
        ("django/conf/locale/zh_Hans/LC_MESSAGES/django.po", False),
        ("django/test/signals.py", True),
        ("babel/locale-data/zh_Hans.dat", True),
        ("babel/locale-data/root.dat", True),
        ("babel/locale-data/fr.dat", False),
        ("babel/global.dat", True),
        ("jedi/third_party/typeshed/stdlib/3/os/__init__.pyi", True),
        ("numpy/__init__.pyi", False),
        ("deepspeed/ops/csrc/adam/cpu_adam.cpp", True),
        ("debugpy/_vendored/pydevd/pydevd_cython.c", False),
        ("jsonschema/tests/test_cli.py", False),
        ("kubernetes/client/api/core_v1_api.py", True),
        ("kubernetes/aio/client/api/core_v1_api.py", False),
        ("celery-5.7.0.dist-info/METADATA", True),
        ("share/jupyter/lab/static/main.js.map", False),
        ("share/jupyter/kernels/python3/kernel.json", True),
    ],
)
def test_excluded_files_follow_a_rule(path: str, kept: bool) -> None:
    assert (gpu_kit.find_rule(path) is None) == kept


def test_stripped_files_are_counted_by_reason(tmp_path: Path) -> None:
    for name in ("package/code.py", "package/code.js.map", "package/tests/test_code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("12345")
    assert list(gpu_kit.delete_excluded(tmp_path).values()) == [5, 5]
    assert gpu_kit.list_files(tmp_path) == [tmp_path / "package/code.py"]


def test_a_too_large_kit_is_refused_with_its_sizes() -> None:
    gpu_kit.check_size(45 * 2**20, 15 * 2**20)
    with pytest.raises(gpu_kit.KitError, match=r"45\.0 MiB.*16\.0 MiB.*61\.0 MiB.*60\.0 MiB"):
        gpu_kit.check_size(45 * 2**20, 16 * 2**20)


def test_equal_files_give_equal_archives(tmp_path: Path) -> None:
    first, second = (write_kit(tmp_path / name) for name in ("first", "second"))
    assert (first / gpu_check.SITE).read_bytes() == (second / gpu_check.SITE).read_bytes()


def test_a_kit_for_an_unknown_python_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_kit.main(["3.9"]) == 2
    assert "3.12 or 3.11, not for 3.9" in capsys.readouterr().out


def test_without_a_kit_the_command_that_makes_one_is_shown(root: Path, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(root / "scripts/gpu_check.py", tmp_path / "scripts")
    command = [sys.executable, "-ISs", tmp_path / "scripts/gpu_check.py"]  # sees the standard library alone
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"There is no kit in {tmp_path}/build/gpu-kit. Run `make gpu-kit`" in done.stdout


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    kit = write_kit(tmp_path)
    gpu_check.read_kit(kit)
    with (kit / gpu_check.SITE).open("ab") as file:
        file.write(b"more")
    with pytest.raises(GpuCheckError, match=r"site\.tar\.xz has SHA-256"):
        gpu_check.read_kit(kit)
    (kit / gpu_check.SITE).unlink()
    with pytest.raises(GpuCheckError, match=r"site\.tar\.xz: No such file"):
        gpu_check.read_kit(kit)
    (kit / "kit.json").write_text("[]")
    with pytest.raises(GpuCheckError, match="is not what `make gpu-kit` writes"):
        gpu_check.read_kit(kit)


def test_the_python_of_the_kits_version_with_pytorch_is_chosen() -> None:
    other, bare, right = python("3.13", "torch", "numpy"), python("3.12", "numpy"), python("3.12", "torch", "numpy")
    assert gpu_check.choose_python([other, bare, right], "3.12") is right
    assert gpu_check.choose_python([other, bare], "3.12") is bare


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([python("3.11", "torch", "numpy")], "PyTorch is here for Python 3.11.*make gpu-kit PYTHON=3.11"),
        ([python("3.13", "torch", "numpy")], "PyTorch is here for Python 3.13.*Install Python 3.12"),
        ([python("3.12")], "has neither PyTorch nor NumPy"),
        ([python("3.14")], r"no such Python is here; found: /opt/python3.14 \(3.14\)"),
        ([], "no such Python is here; found: none"),
    ],
)  # fmt: skip
def test_missing_requirements_of_the_kit_are_named(found: list[PythonInstallation], said: str) -> None:
    with pytest.raises(GpuCheckError, match=f"The kit is for Python 3.12.*{said}"):
        gpu_check.choose_python(found, "3.12")


def test_a_program_that_is_not_python_is_skipped() -> None:
    assert gpu_check.probe_python("/bin/true") is None
    assert gpu_check.probe_python("/no/such/python") is None


def test_the_environment_has_packages_of_kit_and_python(root: Path, tmp_path: Path) -> None:
    kit = write_kit(tmp_path)
    this = gpu_check.probe_python(sys.executable)
    assert this is not None
    assert this.version == VERSION
    folder = tmp_path / "a folder with spaces" / "env"
    program = gpu_check.make_environment(kit, this, folder)
    seen = subprocess.run([folder / "bin/carried"], capture_output=True, text=True)
    assert seen.stdout == "carried\n", seen.stderr
    code = "import carried, httpx, fermi.runner, sysconfig; print(carried.__file__, sysconfig.get_path('purelib'))"
    told = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    place = folder / "lib" / f"python{VERSION}" / "site-packages"  # ranks may read an interpreter's own packages
    assert told == f"{place}/carried.py {place}"
    assert list((place / "__pycache__").glob("carried.*.pyc"))

    made = program.lstat().st_ctime_ns
    assert gpu_check.make_environment(kit, this, folder) == program
    assert program.lstat().st_ctime_ns == made  # the one that is there


def test_results_are_kept(tmp_path: Path) -> None:
    for name in ("env/bin/python", "data/fermi.sqlite3", "logs/one.log", "gpu-check.json", "gpu-check.md", "data.out"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    gpu_check.delete_leftovers(tmp_path, keep=["env"])
    assert {path.name for path in tmp_path.iterdir()} == {"env", "gpu-check.json", "gpu-check.md", "logs"}
    gpu_check.delete_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"gpu-check.json", "gpu-check.md", "logs"}
    gpu_check.delete_leftovers(tmp_path / "there is none")


def test_leftover_processes_of_the_checks_are_ended(root: Path) -> None:
    """Also a process whose parent is gone and that has a session of its own."""
    code = (
        "import os, sys\n"
        "from scripts import gpu_check\n"
        "code = gpu_check.run_command(['/bin/sh', '-c', 'setsid sleep 600 > /dev/null & exit 3'], dict(os.environ))\n"
        "print(code, gpu_check.kill_descendants(), gpu_check.list_descendants(os.getpid()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.stdout == "3 1 []\n", done.stderr

"""What is installed: pinned files with hashes, how they are made and looked after, and how setup installs from them."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from scripts import lock, setup
from scripts.lock import LOCKS, LockFile
from scripts.sbom import PIN

PATHS = [one.path for one in LOCKS]
PYTHONS = ("3.11.0", "3.11.2", "3.11.7", "3.12.0", "3.13.0", "3.14.0")
MACHINES = ("x86_64", "aarch64")


class Metadata(NamedTuple):
    """What an installed package says of itself."""

    version: str
    python: SpecifierSet
    needs: list[Requirement]


@cache
def installed() -> dict[str, Metadata]:
    found = {}
    for one in distributions():
        about = one.metadata
        needs = [Requirement(line) for line in about.get_all("Requires-Dist") or ()]
        python = SpecifierSet(about.get("Requires-Python") or "")
        found[canonicalize_name(about["Name"])] = Metadata(about["Version"], python, needs)
    return found


@cache
def holds(marker: str, python: str, machine: str) -> bool:
    return Marker(marker).evaluate(environment(python, machine))


def environment(python: str, machine: str) -> dict[str, str]:
    return {
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def pinned(root: Path, path: str, python: str, machine: str = "x86_64") -> dict[str, str]:
    """The version of each package that pip installs from the file with this Python."""
    found = PIN.findall((root / path).read_text())
    return {
        canonicalize_name(name): version
        for name, version, marker, _ in found
        if not marker or holds(marker, python, machine)
    }


@pytest.mark.parametrize("path", PATHS)
def test_every_pin_has_its_hashes_and_nothing_depends_on_the_machine(root: Path, path: str) -> None:
    text = (root / path).read_text()
    pins = PIN.findall(text)
    assert len(pins) == len(re.findall(r"^[^#\s]", text, re.MULTILINE)) > 0
    assert [name for name, _, _, hashes in pins if "--hash=sha256:" not in hashes] == []
    assert [name for name, version, *_ in pins if lock.MACHINE_PACKAGES.match(f"{name}=={version}")] == []


def test_only_pytorch_is_installed_by_version(root: Path) -> None:
    lines = [line for line in (root / lock.TORCH).read_text().splitlines() if line[0] != "#"]
    assert [re.fullmatch(r"torch==[\d.]+", line) is not None for line in lines] == [True]


@pytest.mark.parametrize("path", PATHS)
def test_pins_for_a_python_support_it(root: Path, path: str) -> None:
    refused = {
        f"{name} {version} on {python}"
        for python in PYTHONS
        for name, version in pinned(root, path, python).items()
        if (about := installed().get(name)) and about.version == version
        if not about.python.contains(python)
    }
    assert refused == set()


def interpreters() -> set[str]:
    """Every Python of this machine that README promises to run on: those on the PATH, and those that pyenv keeps."""
    folders = [*os.environ["PATH"].split(os.pathsep), *Path(os.path.expanduser("~/.pyenv/versions")).glob("*/bin")]
    named = {Path(folder, f"python3.{minor}").resolve() for folder in folders for minor in range(11, 15)}
    ask = ["-IS", "-c", "import sys; print(sys.executable)"]
    answers = [
        subprocess.run([program, *ask], check=False, capture_output=True, text=True).stdout.strip()
        for program in named
        if os.access(program, os.X_OK)  # a version manager's own program answers only for what it has chosen
    ]
    return {program for program in answers if program}


def refused_by(python: list[str], *pins: str | Path) -> str:
    """Asks the package index, without installing anything, whether the files can be installed with this Python; returns
    what uv objects to. Skips the test where no index answers."""
    ask = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--no-deps", "--no-build-isolation"]
    ask += ["--system-certs", "--no-python-downloads", *python, *(f"--requirement={path}" for path in pins)]
    env = {**lock._get_index(), **os.environ, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*ask, f"--target={folder}"], cwd=lock.ROOT, env=env, capture_output=True, text=True)
    if done.returncode and ("No solution found" not in done.stderr or "network was disabled" in done.stderr):
        pytest.skip(f"the package index does not answer: {done.stderr.strip()[:200]}")
    return done.stderr if done.returncode else ""


def test_all_pins_can_be_installed_with_every_python() -> None:
    """Also those that are not installed here: pins for another Python, and Node's wheel."""
    asked = [[f"--python-version={version}"] for version in ("3.11.0", "3.14.0")]
    asked += [["--python", program] for program in sorted(interpreters())]
    refused = {" ".join(python): refused_by([*python, "--require-hashes"], *PATHS) for python in asked}
    assert {python: why for python, why in refused.items() if why} == {}


@pytest.mark.usefixtures("index")
def test_a_pin_that_needs_a_newer_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toy.txt").write_text("newtime==1.0\n")
    refused = refused_by(["--python-version=3.11.2"], tmp_path / "toy.txt")
    assert "newtime==1.0" in refused  # uv words it by whether this is the interpreter's own version
    assert ">=3.11.5" in refused
    assert refused_by(["--python-version=3.11.5"], tmp_path / "toy.txt") == ""


@pytest.mark.parametrize("path", PATHS)
def test_a_lock_has_all_dependencies_of_its_packages(root: Path, path: str) -> None:
    """pip looks for nothing beyond it (`--no-deps`)."""
    elsewhere = {"torch", *(name for one in LOCKS if one.path == path for name in one.without)}
    missing = set()
    for python, machine in product(PYTHONS, MACHINES):
        pins = pinned(root, path, python, machine)
        for name, version in pins.items():
            about = installed().get(name)
            for needed in about.needs if about and about.version == version else ():
                key = canonicalize_name(needed.name)
                if key in elsewhere or (needed.marker and not holds(str(needed.marker), python, machine)):
                    continue
                if key not in pins or not needed.specifier.contains(pins[key], prereleases=True):
                    missing.add(f"{name} needs {needed}, and {pins.get(key)} is pinned for {python} on {machine}")
    assert missing == set()


@pytest.mark.parametrize("one", LOCKS, ids=PATHS)
def test_a_lock_satisfies_pyproject(root: Path, one: LockFile) -> None:
    pins = pinned(root, one.path, "3.11.0")
    for asked in map(Requirement, one.requirements):
        name = canonicalize_name(asked.name)
        if name not in one.without and name != "torch":
            assert asked.specifier.contains(pins[name], prereleases=True), asked


def test_image_and_tests_have_the_platforms_versions(root: Path) -> None:
    known = pinned(root, "requirements-dev.txt", "3.11.7")
    known |= pinned(root, "requirements.txt", "3.11.7")
    for path in PATHS[1:]:
        if path != "requirements-node.txt":
            assert pinned(root, path, "3.11.7").items() <= known.items(), path


# Making them ----------------------------------------------------------------------------------------------------------


def test_locks_are_what_make_lock_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main(["--check"]) == 0, capsys.readouterr().out


@pytest.fixture
def clone(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the locks are made of, which the module takes for the project."""
    for path in ("pyproject.toml", *PATHS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, tmp_path / path)
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "old", "new", "behind"),
    [
        ("pyproject.toml", '"uvicorn>=0.54"', '"uvicorn>=0.55"', "requirements.txt, deploy/docker/requirements.txt"),
        ("pyproject.toml", "setuptools>=77", "setuptools>=78", "requirements-build.txt"),
        ("requirements-node.txt", "sha256:1", "sha256:2", "requirements-node.txt"),
        ("requirements-dev.txt", "uv==", "uv==9", "requirements-dev.txt, deploy/docker/requirements.txt"),
    ],
)
def test_an_outdated_or_edited_lock_is_named(
    clone: Path, path: str, old: str, new: str, behind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (clone / path).read_text()
    assert old in text
    (clone / path).write_text(text.replace(old, new))
    assert lock.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith(f"{behind}: not what `make lock` makes")


def test_make_lock_and_make_check_run_the_generator(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("install_packages", "install_dev_packages", "install_frontend_packages"):
        monkeypatch.setattr(setup, name, lambda: None)
    assert setup.prepare_target("lock") == [setup.PYTHON, root / "scripts" / "lock.py"]
    assert '"scripts/lock.py", "--check"' in (root / "scripts" / "check.py").read_text()


def wheel(
    folder: Path, name: str, version: str, tag: str = "py3-none-any", needs: tuple[str, ...] = (), python: str = ""
) -> Path:
    path = folder / f"{name}-{version}-{tag}.whl"
    about = [
        ("Metadata-Version", "2.1"),
        ("Name", name),
        ("Version", version),
        *(("Requires-Dist", one) for one in needs),
        *([("Requires-Python", python)] if python else []),
    ]
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{name}.py", f"TAG = {tag!r}\n")
        made.writestr(f"{info}/METADATA", "".join(f"{key}: {value}\n" for key, value in about))
        made.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        made.writestr(f"{info}/RECORD", "")
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package index that pip is configured with: pages of links, as PEP 503 has them, with each file's SHA-256."""
    folder = tmp_path / "index"
    for name, needs in (("torch", ('nvidia-cublas; sys_platform == "linux"', "toymaths")), ("nvidia_cublas", ())):
        (folder / name.replace("_", "-")).mkdir(parents=True)
        wheel(folder / name.replace("_", "-"), name, "2.0", needs=needs)
    (folder / "toymaths").mkdir()
    for tag in ("cp311-cp311-manylinux_2_28_x86_64", "cp314-cp314-manylinux_2_28_aarch64"):
        wheel(folder / "toymaths", "toymaths", "1.5", tag, ('toytime; python_full_version < "3.11.3"',))
    (folder / "toytime").mkdir()
    wheel(folder / "toytime", "toytime", "1.0")
    (folder / "newtime").mkdir()
    wheel(folder / "newtime", "newtime", "1.0", python=">=3.11.5")
    for package in folder.iterdir():
        python = ' data-requires-python="&gt;=3.11.5"' if package.name == "newtime" else ""
        links = [
            f'<a href="{path.name}#sha256={sha256(path)}"{python}>{path.name}</a>' for path in sorted(package.iterdir())
        ]
        (package / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("index")
def test_a_lock_has_all_files_of_a_version_from_the_configured_index(
    clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LockFile, "requirements", ["torch>=2"])
    lock.compile_lock(LockFile("toy.txt", ("train",)))
    text = (clone / "toy.txt").read_text()
    both, one = [
        sorted(sha256(path) for path in (tmp_path / "index" / name).glob("*.whl")) for name in ("toymaths", "toytime")
    ]
    assert len(both) == 2
    assert PIN.findall(text) == [
        ("toymaths", "1.5", "", "".join(f"\n    --hash=sha256:{digest} \\" for digest in both)[:-2]),
        ("toytime", "1.0", "python_full_version < '3.11.3'", f"\n    --hash=sha256:{one[0]}"),
    ]
    assert "127.0.0.1" not in text
    assert (clone / lock.TORCH).read_text().splitlines()[1:] == ["torch==2.0"]
    assert LockFile("toy.txt", ("train",)).holds()


@pytest.mark.usefixtures("index")
def test_a_conflict_leaves_the_lock_unchanged(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LockFile, "requirements", ["torch>=3"])
    before = (clone / PATHS[0]).read_bytes()
    assert lock.main([]) == 1
    assert capsys.readouterr().out.startswith("requirements.txt: not compiled")
    assert (clone / PATHS[0]).read_bytes() == before


# Installing -----------------------------------------------------------------------------------------------------------


def test_setup_installs_by_hash_and_pytorch_last(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setattr(setup, "make_virtual_environment", lambda: "3.11")
    monkeypatch.setattr(setup, "run_command", lambda *command, **_: ran.append([str(word) for word in command]))
    monkeypatch.setattr(setup, "run_step", lambda _name, _title, _reads, _made, action: action())
    setup.install_packages()
    setup.install_dev_packages()
    files = [Path(command[-1]).name for command in ran]
    assert files == ["requirements-build.txt", "requirements.txt", lock.TORCH, root.name, "requirements-dev.txt"]
    unhashed = [file for file, command in zip(files, ran, strict=True) if "--require-hashes" not in command]
    assert unhashed == [lock.TORCH, root.name]  # the clone itself
    assert "--no-build-isolation" in ran[1]
    assert "--no-build-isolation" in ran[3]


@pytest.mark.parametrize("changed", [False, True])
def test_a_file_with_another_hash_is_not_installed(tmp_path: Path, changed: bool) -> None:
    made = wheel(tmp_path, "toymaths", "1.5", needs=("never-to-be-found",))
    digest = "0" * 64 if changed else sha256(made)
    (tmp_path / "toy.txt").write_text(f"toymaths==1.5 \\\n    --hash=sha256:{digest}\n")
    more = [
        "--no-index",
        "--find-links",
        tmp_path,
        "--target",
        tmp_path / "target",
        "--requirement",
        tmp_path / "toy.txt",
    ]
    done = subprocess.run([sys.executable, *setup.PIP_LOCKED[1:], *more], capture_output=True, text=True)
    assert (done.returncode != 0) == changed, done.stderr
    assert (tmp_path / "target" / "toymaths.py").exists() != changed
    assert ("DO NOT MATCH THE HASHES" in done.stderr) == changed


def test_every_npm_package_has_its_hash(root: Path) -> None:
    packages = json.loads((root / "frontend" / "package-lock.json").read_text())["packages"]
    for path, about in packages.items():
        if path and not about.get("link"):
            assert len(base64.b64decode(about["integrity"].removeprefix("sha512-"))) == 64, path

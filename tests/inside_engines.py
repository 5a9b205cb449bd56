"""Dev environments that are folders of this machine: with a home, a PATH and interpreters of their own, entered as an
engine enters one."""

import importlib.util
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from fermi.engines.inside.bundle import build_command
from fermi.engines.inside.session import InsideSession


class Inside:
    """`variables`: what its processes are started with."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.variables = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **more}
        self.begun: list[subprocess.Popen[bytes]] = []

    def enter(self, python: str = sys.executable) -> InsideSession:
        ours, theirs = socket.socketpair()
        with theirs:
            self.begun.append(
                subprocess.Popen(
                    build_command(python),
                    stdin=theirs, stdout=theirs, env=self.variables, cwd=self.home,
                )
            )  # fmt: skip
        return InsideSession(ours).greet()

    def end_container(self) -> None:
        for process in self.begun:
            process.kill()
            process.wait()


def make_venv(folder: Path, *, pip: bool = False, python: str = sys.executable) -> str:
    """Returns its interpreter. `pip`: it has that of the tests, which takes no ten seconds to install."""
    ours = importlib.util.find_spec("pip") if pip else None
    own = [] if pip and ours is None else ["--without-pip"]
    subprocess.run([os.path.realpath(python), "-m", "venv", *own, str(folder)], check=True, timeout=300)
    made = str(folder / "bin/python")
    if ours and ours.origin:
        (folder / "tools").mkdir(exist_ok=True)
        (folder / "tools/pip").symlink_to(Path(ours.origin).parent)
        install_files(made, {"tools.pth": f"{folder}/tools\n"})
    return made


def site_packages(python: str) -> Path:
    said = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return Path(said.stdout.strip())


def metadata(name: str, version: str, *modules: str, **more: str) -> dict[str, str]:
    """Files of a distribution, by their path: what pip writes, and a module for each name."""
    about = f"{name.replace('-', '_')}-{version}.dist-info"
    listed = "".join(f"{one}/__init__.py,,\n" for one in modules)
    return {
        **{f"{one}/__init__.py": f"VERSION = {version!r}\n" for one in modules},
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": f"{listed}{about}/METADATA,,\n",
        **{f"{about}/{path}": text for path, text in more.items()},
    }


def install_files(python: str, files: Mapping[str, str]) -> None:
    """Into its site-packages, as installed."""
    folder = site_packages(python)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def make_wheel(folder: Path, name: str, version: str, *modules: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for place, text in metadata(name, version, *modules).items():
            wheel.writestr(place, text)
    return path

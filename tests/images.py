"""Images for tests, made of this machine's own files: no registry is needed. An image has this interpreter as
`python3`, its standard library, the shared libraries that these need, and a shell."""

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

LEFT_OUT = {"test", "idlelib", "tkinter", "lib2to3", "ensurepip", "site-packages", "dist-packages", "__pycache__"}
TOOLS = ("/bin/sh", "/bin/sleep", "/bin/cat", "/bin/ls")
PACKAGES = Path("/opt/packages")


def make(archive: Path, distributions: Iterable[str] = (), *, python: bool = True) -> Path:
    """A root file system as `podman import` takes it. `distributions`: with all that they require, on the path of
    python3."""
    with tarfile.open(archive, "w") as tar:
        for folder, mode in (("tmp", 0o1777), ("etc", 0o755), ("root", 0o700)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        seen: set[str] = set()
        programs = [tool for tool in TOOLS if os.path.exists(tool)]
        if python:
            binary, library = os.path.realpath(sys.executable), Path(sysconfig.get_paths()["stdlib"])
            tar.add(library, str(library), filter=_kept)
            _link(tar, "usr/bin/python3", binary)
            programs += [binary, *map(str, library.glob("lib-dynload/*.so"))]
            for path, name in _files(distributions):
                tar.add(path, name)
                programs += [str(path)] if path.suffix == ".so" else []
            words = f"import sys; sys.path.append('{PACKAGES}')\n"
            _write(tar, str(library / "site-packages" / "packages.pth"), words)
        for path in _with_libraries(programs):
            if path not in seen:
                seen.add(path)
                tar.add(os.path.realpath(path), path)
    return archive


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT & set(entry.name.split("/")) or entry.name.endswith(".a") else entry


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _write(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size = len(text.encode())
    tar.addfile(entry, io.BytesIO(text.encode()))


def _with_libraries(programs: Iterable[str]) -> Iterator[str]:
    for program in programs:
        if not program.endswith(".so"):
            yield program
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        yield from re.findall(r"(/\S+\.so\S*)", done.stdout)


def _files(distributions: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Of distributions and what they require here, and where they are in the image."""
    wanted, known = list(distributions), set()
    while wanted:
        name = re.split(r"[\s\[<>=!~;(]", wanted.pop())[0]
        key = re.sub(r"[-_.]+", "-", name).lower()
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if key in known:
            continue
        known.add(key)
        wanted += [one for one in found.requires or () if "extra ==" not in one]
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if not path.is_file() or "__pycache__" in file.parts:
                continue
            if ".." not in file.parts:
                yield path, str(PACKAGES / file)
            elif (inside := os.path.relpath(path.resolve(), sys.prefix)).startswith("share"):
                yield path, os.path.join(sys.base_prefix, inside)

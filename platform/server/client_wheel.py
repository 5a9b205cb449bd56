"""The `fermi` command and the Python client as a wheel that the platform itself serves: another machine installs it
with pip, in the version that matches this platform.

The wheel (PEP 427, "Binary distribution format" of the packaging user guide) is written with the standard library: the
image has neither pip nor setuptools. Equal sources give equal bytes.
"""

import base64
import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from server.paths import ROOT

FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every file in the archive: the earliest that ZIP can hold."""


class ClientWheel(NamedTuple):
    """A wheel's file name and content."""

    name: str
    """The file's name. pip reads the distribution and its version from the last part of the URL, so no shorter URL can
    be installed (pip's src/pip/_internal/models/wheel.py)."""
    content: bytes


@cache
def build_wheel() -> ClientWheel:
    """Return the wheel of what pyproject.toml packages. Raise OSError where a file of it cannot be read."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, setuptools = asked["project"], asked["tool"]["setuptools"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    about = {
        "METADATA": render_metadata(project),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: fermi\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\n"
        + "".join(f"{name} = {where}\n" for name, where in project["scripts"].items()),
    }
    files = {path.relative_to(ROOT / "platform").as_posix(): path.read_bytes() for path in list_sources(setuptools)}
    files |= {f"{stem}.dist-info/{name}": text.encode() for name, text in about.items()}
    record = "".join(f"{name},sha256={hash_content(content)},{len(content)}\n" for name, content in files.items())
    files[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n".encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, FILE_TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return ClientWheel(f"{stem}-py3-none-any.whl", written.getvalue())


def list_sources(setuptools: dict[str, Any]) -> Iterator[Path]:
    """Yield the files that `pip install .` would install, too: modules, and data by the patterns of pyproject.toml."""
    patterns = ("*.py", *setuptools["package-data"]["*"])
    for package in setuptools["packages"]["find"]["include"]:
        for path in sorted((ROOT / "platform").glob(f"{package}/**/*")):
            if path.is_file() and any(path.match(pattern) for pattern in patterns):
                yield path


def render_metadata(project: dict[str, Any]) -> str:
    """Return METADATA, made from pyproject.toml's section `project` as setuptools makes it."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {needed}" for needed in project["dependencies"]),
    ]
    for extra, group in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {needed}; extra == "{extra}"' for needed in group]
    return "".join(f"{line}\n" for line in lines)


def hash_content(content: bytes) -> str:
    """Return the SHA-256 as RECORD has it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

"""Our modules as one archive, for environments that have nothing of ours installed: `fermi.inside`, the node runner,
the probe, and the trainers. See `fermi.inside.bootstrap`."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import fermi
from fermi.engines import bundle

DIGEST_DIGITS = 32
"""Length of the archive's hash."""
INTERPRETER_NAMES = ("python3", "python", "/opt/conda/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3")
"""Names and paths of interpreters in images, for those that are not on the PATH of an executed process."""
READ_PROGRAM = "import sys; come = sys.stdin.buffer; exec(come.read(int(come.readline())))"
FIND_INTERPRETER = """for python in "$FERMI_PYTHON" {interpreters}; do
  if [ -n "$python" ] && command -v "$python" >/dev/null 2>&1; then exec "$python" -u -c "$@"; fi
done
echo "fermi: no python"
"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Archive of our modules. `digest`: its hash; `data`: a gzipped tar file."""

    digest: str
    data: bytes


@cache
def build_bundle() -> Bundle:
    """Return the archive; the same bytes for the same modules."""
    trainers = sorted(path.stem for path in (Path(fermi.__file__).parent / "train").glob("*.py"))
    modules = bundle.collect_modules(
        bundle.INSIDE_MODULES, (f"fermi.train.{name}" for name in trainers if name != "__init__")
    )
    data = gzip.compress(_build_archive(modules), mtime=0)
    return Bundle(hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS], data)


@cache
def read_bootstrap() -> str:
    """Return the text of the program that unpacks the archive."""
    return (resources.files("fermi.inside") / "bootstrap.py").read_text("utf-8")


def build_preamble() -> bytes:
    """Return the first bytes of a stream: the bootstrap program, which is not part of a command line."""
    text = read_bootstrap().encode()
    return b"%d\n" % len(text) + text


def build_command(python: str = "", *module: str) -> list[str]:
    """Return the command to execute in an environment: a module with its arguments (by default `fermi.inside`), with
    this interpreter, or the first that is found there. `build_preamble` is to be sent to it."""
    rest = [READ_PROGRAM, build_bundle().digest, *(module or ("fermi.inside",))]
    if python:
        return [python, "-u", "-c", *rest]
    return ["sh", "-c", FIND_INTERPRETER.format(interpreters=" ".join(INTERPRETER_NAMES)), "fermi", *rest]


def _build_archive(modules: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in sorted(modules.items()):
            content = text.encode()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()

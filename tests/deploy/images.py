"""The images that our files begin from. Where no registry can be reached, stand-ins under the same names are made from
Debian's packages (and PyPI's wheel of Node, which Debian has too old)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy.engine import Engine

BASE = "python:3.11-slim"
NEEDED = (BASE, "node:20-slim", "postgres:16", "redis:7")
HERE = Path(__file__).with_name("images")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Missing(Exception):
    """What cannot be had on this machine."""


def provide(engine: Engine, scratch: Path) -> None:
    """Raises Missing where a base image is not there, cannot be pulled and cannot be stood in for."""
    for image in NEEDED:
        if not engine.has(image) and engine.run("docker", "pull", "--quiet", image, check=False).returncode:
            _stand_in(engine, image, scratch)


def _stand_in(engine: Engine, image: str, scratch: Path) -> None:
    if image == BASE:
        _debian(engine, scratch)
        return
    name = image.partition(":")[0]
    context = scratch / name
    shutil.copytree(HERE, context)
    if name == "node":
        _wheel(context)
    engine.docker(
        "build", "--network", "host", "--tag", image, "--file", f"{context}/{name}.Containerfile", str(context)
    )


def _debian(engine: Engine, scratch: Path) -> None:
    if not shutil.which("mmdebstrap"):
        raise Missing(f"the image {BASE} (no registry can be reached, and mmdebstrap is not installed)")
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines() if "=" in line
    )
    packages = "ca-certificates,python3,python3-venv,python-is-python3"
    layer, archive = scratch / "layer", scratch / "base.tar"
    for path, content in _registries().items():
        (layer / path).parent.mkdir(parents=True, exist_ok=True)
        (layer / path).write_bytes(content)
    options = ["--variant=minbase", f"--include={packages}", f"--customize-hook=sync-in {layer} /"]
    engine.run("mmdebstrap", *options, release["VERSION_CODENAME"], str(archive))
    engine.docker("import", str(archive), BASE)
    archive.unlink()


def _registries() -> dict[str, bytes]:
    """Files of an image that reaches the package registries the way this machine does: certificates, pip's and npm's
    settings."""
    lines = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    wanted = ("index-url", "proxy", "timeout", "default-timeout", "trusted-host")
    found = {
        name.rpartition(".")[2]: value.strip("'") for name, _, value in (x.partition("=") for x in lines.split("\n"))
    }
    pip = [f"{name} = {found[name]}" for name in wanted if name in found]
    if not CERTIFICATES.exists():
        return {"etc/pip.conf": "\n".join(["[global]", *pip, ""]).encode()}
    return {
        str(CERTIFICATES.relative_to("/")): CERTIFICATES.read_bytes(),
        "etc/pip.conf": "\n".join(["[global]", f"cert = {CERTIFICATES}", *pip, ""]).encode(),
        "root/.npmrc": f"cafile={CERTIFICATES}\n".encode(),
    }


def _wheel(context: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pins = HERE.parents[2] / "requirements-node.txt"
    command = [*pip, "install", "--no-deps", "--require-hashes", "--target", str(context), "--requirement", str(pins)]
    subprocess.run(command, check=True, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"})

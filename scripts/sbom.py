"""Write the platform's dependencies as a CycloneDX document (`make sbom`). Standard library only.

    python scripts/sbom.py [--output build/sbom.json] [LOCK …]

A LOCK is a pinned file of pip or a package-lock.json of npm; without any: all of the clone. What is used only for
checks, tests and builds has the scope `excluded`. The document has packages, versions, hashes and npm's licences. It
does not say which package needs which, nor what a base image or PyTorch's build contains. The same locks give the same
bytes.

The format: https://cyclonedx.org/docs/1.6/json/. Package URLs: purl-spec's PURL-TYPES.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.txt", "requirements-torch.txt", "frontend/package-lock.json")
EXCLUDED = ("requirements-build.txt", "requirements-node.txt", "requirements-dev.txt")
PIN = re.compile(r"^([\w.-]+)==(\S+)(?: ; (.*?))?(?: \\)?$((?:\n {4}--hash=.*)*)", re.MULTILINE)


def list_python_components(text: str, scope: str) -> Iterator[dict[str, Any]]:
    """Return a component for each pin of a pinned file; the hashes are those of all files of that version."""
    for name, version, marker, hashes in PIN.findall(text):
        found = [{"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:(\w+)", hashes)]
        properties = [{"name": "fermi:marker", "value": marker}] if marker else []
        yield make_component(
            f"pkg:pypi/{name}@{quote(version)}", name, version, scope, hashes=found, properties=properties
        )


def list_npm_components(text: str, scope: str) -> Iterator[dict[str, Any]]:
    """Return a component for each package of a package-lock.json of version 2 or 3."""
    for path, about in json.loads(text)["packages"].items():
        if not path or about.get("link"):
            continue
        group, _, name = path.rpartition("node_modules/")[2].rpartition("/")
        algorithm, _, digest = about["integrity"].partition("-")
        content = base64.b64decode(digest).hex()
        yield make_component(
            f"pkg:npm/{quote(f'{group}/') if group else ''}{name}@{quote(about['version'])}",
            name,
            about["version"],
            "excluded" if about.get("dev") else scope,
            group=group,
            hashes=[{"alg": f"SHA-{algorithm.removeprefix('sha')}", "content": content}],
            licenses=[{"expression": about["license"]}] if about.get("license") else [],
        )


def make_component(purl: str, name: str, version: str, scope: str, **more: Any) -> dict[str, Any]:
    about = {"type": "library", "bom-ref": purl, "name": name, "version": version, "scope": scope, "purl": purl}
    return about | {key: value for key, value in more.items() if value}


def make_document(locks: list[tuple[Path, str]]) -> dict[str, Any]:
    """Return the document for (lock, scope) pairs; of two pins of one version, the first one is used."""
    found: dict[str, dict[str, Any]] = {}
    for path, scope in locks:
        read = list_npm_components if path.suffix == ".json" else list_python_components
        for one in read(path.read_text("utf-8"), scope):
            known = found.setdefault(one["purl"], one)
            if one["scope"] == "required":
                known["scope"] = "required"
    components = [found[purl] for purl in sorted(found)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    content = hashlib.sha256(json.dumps(components).encode()).digest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=content[:16], version=4)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": project["name"], "version": project["version"]}},
        "components": components,
    }


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Writes what the platform is made of, in CycloneDX's format.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "sbom.json")
    parser.add_argument("locks", nargs="*", type=Path, metavar="LOCK")
    asked = parser.parse_args(words)
    locks = [(path, "required") for path in asked.locks or [ROOT / name for name in LOCKS]]
    if not asked.locks:
        locks += [(ROOT / name, "excluded") for name in EXCLUDED]
    document = make_document(locks)
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{asked.output}: {len(document['components'])} packages")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Report packages with known vulnerabilities, and images that are named by tag only (`make check-deps`).

Advisories come from the registries, through pip-audit and `npm audit`. Where they cannot be reached, a check prints
`skipped` and the reason; it also names packages that the registries do not know. The exit code is 1 where a
vulnerability is known.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
MAX_SECONDS = 300  # of one check, all its requests together
MAX_SECONDS_PER_REQUEST = 10
PINS = [f"requirements{part}.txt" for part in ("", "-torch", "-build", "-node", "-dev")] + [
    "deploy/docker/requirements.txt"
]
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
IMAGE_DEFAULT = re.compile(r"\$\{\w+:-(.*)\}$")  # of a variable in docker-compose.yml


class SkippedError(Exception):
    """A check could not be done; the message says why."""


def list_python_weaknesses() -> list[str]:
    """Return the known vulnerabilities of the pinned Python packages, one per line. Raise SkippedError."""
    # Without their hashes: pip-audit asks by name and version, and takes no list in which only some have one.
    texts = [(ROOT / path).read_text("utf-8") for path in PINS]
    pins = {line.removesuffix(" \\") for text in texts for line in text.splitlines() if re.match(r"[\w.-]+==", line)}
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as listed:
        listed.write("".join(f"{pin}\n" for pin in sorted(pins)))
        listed.flush()
        said = _run_json(
            *(sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json"),
            *("--progress-spinner", "off", "--timeout", str(MAX_SECONDS_PER_REQUEST), "--requirement", listed.name),
        )
    packages = said.get("dependencies")
    if packages is None:
        raise SkippedError("pip-audit gave no list of packages")
    unknown = sorted({one["name"] for one in packages if "skip_reason" in one})
    if unknown and len(unknown) == len({one["name"] for one in packages}):
        raise SkippedError(f"the advisories know none of the {len(unknown)} packages, as where they cannot be reached")
    if unknown:
        print(f"Python packages: skipped {', '.join(unknown)}, which the advisories do not know")
    found = {
        f"{one['name']} {one['version']}: {flaw['id']}, repaired in {', '.join(flaw['fix_versions']) or 'no version'}"
        for one in packages
        for flaw in one.get("vulns", ())
    }
    return sorted(found)


def list_npm_weaknesses() -> list[str]:
    """Return the known vulnerabilities of the console's packages and of its build tools, one per line. Raise
    SkippedError."""
    limits = (f"--fetch-timeout={MAX_SECONDS_PER_REQUEST * 1000}", "--fetch-retries=0")
    said = _run_json("npm", "audit", "--json", *limits, cwd=ROOT / "frontend")
    if "vulnerabilities" not in said:
        error = said.get("error")
        why = said.get("message") or (error.get("summary") if isinstance(error, dict) else error)
        raise SkippedError(f"npm audit: {why or 'it gave no list of packages'}")
    return [
        f"{name} {one['range']}: {one['severity']}, {'repaired' if one['fixAvailable'] else 'not repaired yet'}"
        for name, one in sorted(said["vulnerabilities"].items())
    ]


def _run_json(*command: str, cwd: Path = ROOT) -> dict[str, Any]:
    """Return the JSON object that the command printed. Raise SkippedError where it printed none or took too long."""
    name = "npm audit" if command[0] == "npm" else "pip-audit"
    try:
        done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, timeout=MAX_SECONDS)
        said = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise SkippedError(f"{name}: no answer within {MAX_SECONDS} s") from error
    except OSError as error:
        raise SkippedError(f"{name}: {error.strerror}") from error
    except ValueError as error:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise SkippedError(f"{name}: {''.join(last)[:200] or f'exit code {done.returncode}'}") from error
    if not isinstance(said, dict):
        raise SkippedError(f"{name}: it gave no JSON object")
    return said


def list_images(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Return (file, reference) of each image that the Dockerfile, docker-compose.yml and the chart name by default,
    without the platform's own."""
    dockerfile = "deploy/docker/Dockerfile"
    for reference in re.findall(r"^ARG \w+_IMAGE=(\S+)", (root / dockerfile).read_text("utf-8"), re.MULTILINE):
        yield dockerfile, reference
    services = yaml.safe_load((root / "docker-compose.yml").read_text("utf-8"))["services"]
    for service in services.values():
        if "build" not in service:
            yield "docker-compose.yml", IMAGE_DEFAULT.sub(r"\1", service["image"])
    values = yaml.safe_load((root / "deploy/helm/fermi/values.yaml").read_text("utf-8"))
    for bundled in ("postgresql", "redis"):
        yield "deploy/helm/fermi/values.yaml", values[bundled]["image"]


def find_tags(root: Path = ROOT) -> list[str]:
    return [f"{reference} ({path})" for path, reference in list_images(root) if not DIGEST.search(reference)]


def print_report(name: str, find: Callable[[], list[str]]) -> bool:
    """Print the result of one check and return whether a vulnerability is known."""
    try:
        found = find()
    except SkippedError as reason:
        print(f"{name}: skipped, {reason}")
        return False
    print(f"{name}: {len(found)} known weakness{'' if len(found) == 1 else 'es'}")
    for line in found:
        print(f"  {line}")
    return bool(found)


def main() -> int:
    known = [print_report("Python packages", list_python_weaknesses), print_report("npm packages", list_npm_weaknesses)]
    tags = find_tags()
    print(f"images: {len(tags)} named by tag only; give each a digest where you deploy (docs/deploying.md)")
    for line in tags:
        print(f"  {line}")
    return 1 if any(known) else 0


if __name__ == "__main__":
    sys.exit(main())

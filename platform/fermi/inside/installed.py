"""Reports what an interpreter has installed. That interpreter runs the text of this module:

    python -c <this text> < {"imports": ["torch", …]}

Prints one line of JSON, the last of its output. Standard library only, Python 3.9 or later; it must not import anything
of ours. The user's own site folder and PYTHONPATH count, because ranks and kernels use them too (`python -I` would hide
both).
"""

from __future__ import annotations

import glob
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from typing import Any

MAX_DISTRIBUTIONS = 2000
MAX_IMPORTS = 500
MAX_TEXT_LENGTH = 200
MAX_RECORD_BYTES = 8 << 20
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib",
    "/usr/local/cuda/lib64",
)  # fmt: skip
"""Where NVIDIA's packages for Debian and Red Hat, and its container images, have `libnccl.so.2`."""
_VERSION_LINE = re.compile(r"^(__version__|cuda|hip)\b[^=\n]*=\s*['\"]([^'\"\n]{1,80})['\"]", re.MULTILINE)


def describe_packages(imports: list[str]) -> dict[str, Any]:
    """Return `distributions` (by name: `version`, and `origin` if it did not come from an index), `torch`, and
    `imports`: for each top-level module `found`, and the `distribution` that has it."""
    found, names = list_distributions()
    wanted = [name for name in imports[:MAX_IMPORTS] if name.isidentifier() and len(name) <= MAX_TEXT_LENGTH]
    there = {name: spec for name in wanted if (spec := find_module_spec(name))}
    owners = find_owners(set(there) - set(getattr(sys, "stdlib_module_names", ())), names)
    return {
        "version": ".".join(map(str, sys.version_info[:3])),
        "prefix": sys.prefix,
        "distributions": found,
        "torch": describe_torch(found),
        "imports": {name: {"found": name in there, "distribution": owners.get(name, "")} for name in wanted},
    }


def list_distributions() -> tuple[dict[str, dict[str, str]], list[tuple[str, Any]]]:
    """Return the distributions by name, and each with its name: of two with the same name the first is the one that is
    imported."""
    found = dict[str, dict[str, str]]()
    seen, listed = set[str](), list[tuple[str, Any]]()
    for one in importlib.metadata.distributions():
        if len(listed) >= MAX_DISTRIBUTIONS:
            break
        try:
            metadata = one.metadata
            name, version = metadata["Name"], metadata["Version"]
        except Exception:  # half of it may have been removed
            continue
        if not name or not version or normalize_name(name) in seen:
            continue
        seen.add(normalize_name(name))
        listed.append((name[:MAX_TEXT_LENGTH], one))
        found[name[:MAX_TEXT_LENGTH]] = {"version": str(version)[:MAX_TEXT_LENGTH], **read_origin(one)}
    return found, listed


def normalize_name(name: str) -> str:
    """Return the name as PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_origin(distribution: Any) -> dict[str, str]:
    """Return where a distribution came from, if not from an index: `editable`, `vcs` or `file` (PEP 610)."""
    try:
        text = distribution.read_text("direct_url.json")
        said = json.loads(text) if text else None
    except Exception:
        return {}
    if not isinstance(said, dict):
        return {}
    if (said.get("dir_info") or {}).get("editable"):
        return {"origin": "editable"}
    return {"origin": "vcs" if "vcs_info" in said else "file"}


def find_module_spec(name: str) -> Any:
    """Return the spec of a module, or None. That of a top-level module is found without importing anything."""
    try:
        return importlib.util.find_spec(name)
    except Exception:  # finders of installed packages may raise anything
        return None


def find_owners(names: set[str], listed: list[tuple[str, Any]]) -> dict[str, str]:
    """Return which distribution has a top-level module, as `importlib.metadata.packages_distributions` (3.10) finds
    it."""
    found = dict[str, str]()
    for distribution, one in listed if names else ():
        left = names - found.keys()
        if not left:
            break
        try:
            text = one.read_text("top_level.txt")
            tops = set(text.split()) if text else list_top_modules(one.read_text("RECORD") or "")
        except Exception:
            continue
        for name in left & tops:
            found[name] = distribution
    return found


def list_top_modules(record: str) -> set[str]:
    """Return the top-level modules that a RECORD lists."""
    found = set()
    for line in record[:MAX_RECORD_BYTES].splitlines():
        first, slash, _ = line.partition("/")
        if slash:
            found.add(first)
        else:
            path = first.partition(",")[0]
            for suffix in importlib.machinery.all_suffixes():
                if path.endswith(suffix):
                    found.add(path[: -len(suffix)])
                    break
    return found


def describe_torch(distributions: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return `version`, `cuda` or `hip`, and `nccl`, without importing it; nothing if it is not installed."""
    spec = find_module_spec("torch")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8", errors="replace") as file:
            stated = dict(_VERSION_LINE.findall(file.read(1 << 16)))
    except OSError:
        return {}
    told = {"version": stated.get("__version__", ""), "cuda": stated.get("cuda", ""), "hip": stated.get("hip", "")}
    told["nccl"] = find_nccl_version(distributions, folder) if told["cuda"] else ""
    return {name: value for name, value in told.items() if value}


def find_nccl_version(found: dict[str, dict[str, str]], torch: str) -> str:
    """Return the version of the NCCL library that comes with torch's wheels, or that it is linked with; "" if it is
    part of torch itself, which does not report it."""
    for name, one in sorted(found.items()):
        if re.fullmatch(r"nvidia-nccl-cu\d+", normalize_name(name)):
            return one["version"]
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), os.path.join(torch, "lib"), *LIBRARY_FOLDERS]
    for folder in filter(None, folders):
        for path in sorted(glob.glob(f"{glob.escape(folder)}/libnccl.so.2")):
            number = re.search(r"libnccl\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(path))
            if number:
                return number[1]
    return ""


def main() -> None:
    """Print the report."""
    if sys.path and not sys.path[0]:
        del sys.path[0]  # the working folder, which `python -c` puts there
    request = json.loads(sys.stdin.read() or "{}")
    print("\n" + json.dumps(describe_packages(list(request.get("imports") or ()))))


if __name__ == "__main__":
    main()

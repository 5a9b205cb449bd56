"""VS Code in the browser: `code-server` or `openvscode-server` from PATH, or code-server from npm, installed once.

    python -m fermi.envd.editor TOOLS [NODE …]

prints lines of JSON as `packages.py` does; `{"folder": …}` is where it was installed. npm runs none of the packages'
own scripts: code-server's (postinstall.sh) builds all native parts or fails, and Kerberos, which an editor behind the
console's sign-in does not need, requires headers that few machines have. So its work is done here: its two inner
folders are installed, and only the modules that the editor and its terminal need are built.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERSIONS = {"20": "4.100.3", "22": "4.114.1", "24": "4.139.1"}
"""By Node's major version: the newest release that runs on it (`engines` of each, on npm)."""
SOCKET_NAME = "editor.sock"
READY_NAME = "ready.json"
BUILD_TOOLS = {
    "a C++ compiler (g++)": ("c++", "g++", "clang++"),
    "make": ("make", "gmake"),
    "Python": ("python3", "python"),
}
"""Tools that node-gyp builds with, and the names of their programs."""
MAX_OUTPUT_LINES = 12
NATIVE_MODULES = ("@vscode/spdlog", "native-watchdog", "node-pty")
ENTRY = Path("node_modules/code-server/out/node/entry.js")
COMMAND_TIMEOUT_SECONDS, FETCH_TIMEOUT_SECONDS = 1800, 60


class EditorMissingError(Exception):
    """The editor cannot be installed. `why`: the reason."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def find_on_path(path: str | None) -> str | None:
    """Return the editor's program on this PATH, or None."""
    return next(
        (found for name in ("code-server", "openvscode-server") if (found := shutil.which(name, path=path))), None
    )


def build_command(tools: str, path: str | None, socket: str, workspace: str, home: str) -> list[str] | None:
    """Return the editor's command, or None if it is not installed yet. Only the daemon can reach the socket (see
    `service.py`), so there is no sign-in."""
    data = os.path.join(home, ".local", "share", "code-server")
    if (found := find_on_path(path)) and os.path.basename(found) == "openvscode-server":
        return [found, "--socket-path", socket, "--without-connection-token", "--telemetry-level", "off",
                "--server-data-dir", data, "--default-folder", workspace]  # fmt: skip
    if not found and not (entry := find_installed(tools)):
        return None
    words = [found] if found else [shutil.which("node", path=path) or "node", str(entry)]
    return [*words, "--socket", socket, "--socket-mode", "600", "--auth", "none", "--disable-telemetry",
            "--disable-update-check", "--disable-workspace-trust", "--disable-getting-started-override",
            "--config", os.path.join(home, ".config", "code-server", "config.yaml"), "--user-data-dir", data,
            "--extensions-dir", os.path.join(data, "extensions"), workspace]  # fmt: skip


def find_installed(tools: str) -> Path | None:
    """Return the entry script of the installed editor, or None."""
    folder = Path(tools) / "code-server"
    return folder / ENTRY if (folder / READY_NAME).exists() else None


def install_editor(tools: Path, report: Any) -> Path:
    """Install the editor once, even if several processes do it, and return its folder; an incomplete folder is
    replaced. Raises EditorMissingError."""
    tools.mkdir(parents=True, exist_ok=True)
    folder = tools / "code-server"
    with open(tools / "code-server.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / READY_NAME).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _install(folder, choose_version(), report)
            (folder / READY_NAME).write_text("{}", encoding="utf-8")
    return folder


def choose_version() -> str:
    """Return the release that would be installed here. Raises EditorMissingError."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise EditorMissingError("there is no Node.js with npm on this machine")
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    number = said.lstrip("v").partition(".")[0]
    if number not in VERSIONS:
        raise EditorMissingError(
            f"there is no release of code-server for Node.js {said} (for {', '.join(VERSIONS)} there are)"
        )
    absent = [what for what, names in BUILD_TOOLS.items() if not any(map(shutil.which, names))]
    if absent:
        raise EditorMissingError(f"its native parts cannot be built without {', '.join(absent)}")
    return VERSIONS[number]


def _install(folder: Path, version: str, report: Any) -> None:
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "editor", "private": true}\n', encoding="utf-8")
    quiet = ["--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"]
    report(f"code-server {version}")
    _run_command(["npm", "install", *quiet, f"code-server@{version}"], folder)
    inner = folder / "node_modules" / "code-server" / "lib" / "vscode"
    for place, words in ((inner, "the editor's own packages"), (inner / "extensions", "its extensions' packages")):
        report(words)
        _run_command(["npm", "install", *quiet], place)
    for name in NATIVE_MODULES:
        report(f"building {name}")
        _build_module(inner / "node_modules" / name)
    _install_ripgrep(inner / "node_modules" / "@vscode" / "ripgrep", report)
    report("building argon2")
    _build_module(
        next(
            path for path in (folder / "node_modules/argon2", inner.parents[1] / "node_modules/argon2") if path.is_dir()
        )
    )


def _install_ripgrep(folder: Path, report: Any) -> None:
    """Install ripgrep, which searches in files: this machine's, or the one that the package fetches from GitHub. The
    editor works without it, too."""
    report("ripgrep")
    if found := shutil.which("rg"):
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / "rg").symlink_to(found)
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            ["node", "lib/postinstall.js"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=FETCH_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip


def _build_module(folder: Path) -> None:
    """Build a module with node-gyp, which comes with npm. Node's headers are fetched if they are not on the machine."""
    if list(folder.glob("prebuilds/linux-*")) and folder.name == "argon2":
        return
    npm = Path(os.path.realpath(shutil.which("npm") or "npm")).parents[1]
    gyp = npm / "node_modules/node-gyp/bin/node-gyp.js"
    if not gyp.exists():
        raise EditorMissingError(f"npm has no node-gyp in {npm}")
    headers = ["--nodedir=/usr"] if Path("/usr/include/node/node.h").exists() else []
    more = _build_argon2_options(folder) if folder.name == "argon2" else []
    _run_command(["node", str(gyp), "rebuild", *headers, *more], folder)


def _build_argon2_options(folder: Path) -> list[str]:
    """Return options for releases of argon2 before 0.40, which are built for node-pre-gyp; it names the result's
    path."""
    told = json.loads((folder / "package.json").read_text("utf-8")).get("binary")
    if not told:
        return []
    number = told["napi_versions"][-1]
    place = folder / told["module_path"].replace("{napi_build_version}", str(number))
    return [f"--module={place / 'argon2.node'}", "--module_name=argon2", f"--module_path={place}",
            f"--napi_version={number}", f"--napi_build_version={number}"]  # fmt: skip


def _run_command(words: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace", timeout=COMMAND_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise EditorMissingError(str(error)) from error
    if done.returncode:
        raise EditorMissingError("\n".join(done.stdout.strip().splitlines()[-MAX_OUTPUT_LINES:]))


def main(tools: str) -> int:
    """Install the editor and return the exit code."""

    def say(report: Mapping[str, Any]) -> None:
        print(json.dumps(report), flush=True)

    try:
        folder = install_editor(Path(tools), lambda words: say({"say": words}))
    except (EditorMissingError, OSError, StopIteration) as error:
        say({"code": "VSCODE_MISSING", "params": {"why": str(error)[-1500:]}})
        return 1
    say({"folder": str(folder)})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

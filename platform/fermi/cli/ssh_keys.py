"""Host keys of environments, stored on the user's machine, and the entries of ~/.ssh/config that use them."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncssh

from fermi.client import config

BLOCK_BEGIN = "# >>> fermi ssh-config: written anew by each `fermi ssh-config --write`"
BLOCK_END = "# <<< fermi ssh-config"
KEY_TYPE = "ssh-ed25519"


def get_key_folder() -> Path:
    return config.get_config_path().parent / "ssh"


@dataclass(frozen=True, slots=True)
class SshHost:
    """An environment of a platform as an SSH host."""

    platform: str
    id: str

    @property
    def alias(self) -> str:
        """Host key alias, unique over all platforms."""
        place = urlsplit(self.platform)
        port = f"-{place.port}" if place.port else ""
        return f"{self.id}.{re.sub('[^A-Za-z0-9.-]', '-', place.hostname or '')}{port}"

    @property
    def known_hosts(self) -> Path:
        return get_key_folder() / f"{self.alias}.known_hosts"

    def key(self) -> asyncssh.SSHKey:
        """Return the host key, created where there is none; two processes that create it at once get the same one."""
        file = get_key_folder() / f"{self.alias}.key"
        if not file.exists():
            get_key_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            made = asyncssh.generate_private_key(KEY_TYPE, comment=self.alias)
            _write_private(file, made.export_private_key(), over=False)
        key = asyncssh.read_private_key(file)
        line = f"{self.alias} ".encode() + key.export_public_key().strip() + b"\n"
        if not self.known_hosts.exists() or self.known_hosts.read_bytes() != line:
            _write_private(self.known_hosts, line)
        return key


def _write_private(file: Path, content: bytes, *, over: bool = True) -> None:
    """Write the file atomically, readable by its owner only. `over` False: keep an existing one."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
    if over:
        draft.replace(file)
        return
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def render_host_entries(platform: str, environments: Iterable[Mapping[str, str]]) -> str:
    """Return a `Host` entry of ssh_config for each environment; two of one name are distinguished by their ids."""
    known = list(environments)
    names = [_sanitize_name(one["name"]) for one in known]
    parts = []
    for one, name in zip(known, names, strict=True):
        host = SshHost(platform, one["id"])
        host.key()
        own = f"fermi-{name}" if names.count(name) == 1 and name else f"fermi-{name}-{one['id']}"
        aliases = dict.fromkeys([own, f"fermi-{one['id']}"])
        lines = [
            f"Host {' '.join(aliases)}",
            f"  HostName {one['id']}",
            "  User fermi",
            f"  ProxyCommand {_build_proxy_command(platform, one['id'])}",
            f"  HostKeyAlias {host.alias}",
            f"  UserKnownHostsFile {_quote(str(host.known_hosts))}",
            "  StrictHostKeyChecking yes",
            "  PubkeyAuthentication no",
            "  ServerAliveInterval 0",
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _sanitize_name(name: str) -> str:
    """Return the name without what `ssh` would take for a pattern, a list or two words."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def _build_proxy_command(platform: str, environment: str) -> str:
    """Return the ProxyCommand, which works in any folder: a platform of this machine is identified by its data
    directory."""
    local = config.find_local_endpoint()
    data = os.path.abspath(os.environ.get("FERMI_DATA") or "var")
    words = ["env", f"FERMI_DATA={data}"] if local.url == platform and local.token else []
    program = [sys.executable, "-m", "fermi.cli"]
    beside = Path(sys.executable).with_name("fermi")
    if beside.exists():
        program = [str(beside)]
    return shlex.join([*words, *program, "--url", platform, "proxy", environment]).replace("%", "%%")


def _quote(path: str) -> str:
    return f'"{path}"' if " " in path else path


def update_ssh_config(block: str, file: Path) -> bool:
    """Replace the block in the file, or put it first, as of `ssh`'s settings the first one counts; what follows it
    applies to all hosts again. Return whether anything changed."""
    target = file.resolve()  # people keep it elsewhere and link to it
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = target.read_text("utf-8") if target.exists() else ""
    whole = f"{BLOCK_BEGIN}\n{block}\n\nMatch all\n{BLOCK_END}\n" if block else ""
    pattern = re.compile(f"{re.escape(BLOCK_BEGIN)}\n.*?{re.escape(BLOCK_END)}\n", re.DOTALL)
    if pattern.search(before):
        after = pattern.sub(lambda _: whole, before, count=1)
    else:
        after = whole + ("\n" if whole and before else "") + before
    if after == before:
        return False
    _write_private(target, after.encode())
    return True

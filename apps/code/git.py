"""Fetches one revision of a Git repository as files, without submodules and LFS; no hooks or filters run.

FERMI_GIT_HOSTS says which hosts are allowed (any public host by default). The host's address is resolved and checked
here, and git connects to this address only, without redirects, so that a later DNS answer changes nothing.
"""

import ipaddress
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from apps.code.errors import FetchError
from apps.notices.sender.egress_policy import AllowedHosts
from fermi.jobs.spec import Problem

TIMEOUT_SECONDS = 300
DEFAULT_PORTS = {"https": 443, "ssh": 22}
ASKPASS_SCRIPT = """#!/bin/sh
case "$1" in User*) echo x-access-token;; *) echo "$FERMI_GIT_TOKEN";; esac
"""
"""Program that git calls for credentials (GIT_ASKPASS)."""
_SCP = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>[\w.-]+):(?P<path>[^/].*)")
_REVISION = re.compile(r"(?!-)[\w./@^~{}+-]{1,200}")
_COMMIT, _COMMIT_PREFIX = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{7,39}")
_NAME = re.compile(r"[\w./+-]+")


@dataclass(frozen=True, slots=True)
class GitCheckout:
    """A fetched revision. `folder`: a work tree without `.git`."""

    folder: Path
    commit: str
    branch: str


def check_request(url: str, revision: str, field: str = "code.git") -> list[Problem]:
    """Return what is wrong with the URL and the revision, without connecting."""
    found = []
    parts = parse_url(url)
    if parts is None:
        found.append(Problem(f"{field}.url", "GIT_URL_REFUSED", {"url": redact_url(url)}))
    elif not read_allowed_hosts().name(parts.hostname or ""):
        found.append(Problem(f"{field}.url", "GIT_HOST_REFUSED", {"host": parts.hostname}))
    if not _REVISION.fullmatch(revision) or ".." in revision:
        found.append(Problem(f"{field}.revision", "GIT_REVISION_REFUSED", {"revision": revision}))
    return found


def parse_url(url: str) -> SplitResult | None:
    """Return the parts of https://host/…, ssh://user@host/… or user@host:path; None for any other URL, or one with a
    password."""
    if "://" not in url and (match := _SCP.fullmatch(url)):
        url = f"ssh://{match['user'] or 'git'}@{match['host']}/{match['path']}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    strange = parts.password or (parts.scheme == "https" and parts.username) or parts.query or parts.fragment
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or strange or port == 0 or len(parts.path) < 2:
        return None
    return None if any(ord(letter) <= 32 for letter in url) or parts.netloc.startswith("-") else parts


def redact_url(url: str) -> str:
    """Return the URL without what may be a password."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)[:300]


def read_allowed_hosts() -> AllowedHosts:
    """Return the hosts that code may be fetched from."""
    return AllowedHosts(settings.GIT_HOSTS)


@contextmanager
def fetch_revision(url: str, revision: str, secret: str) -> Iterator[GitCheckout]:
    """Fetch the revision into a temporary folder and yield it; the folder is deleted when the block ends. Raises
    FetchError."""
    parts = parse_url(url)
    if parts is None or check_request(url, revision):
        raise FetchError("GIT_URL_REFUSED", url=redact_url(url))
    address = _resolve_address(parts)
    with tempfile.TemporaryDirectory(prefix="fermi-git-") as scratch:
        git = _GitCommand(Path(scratch), parts, address, secret)
        yield git.fetch(revision)


def find_commit(url: str, revision: str, secret: str, seconds: float) -> str | None:
    """Return the commit that the revision names in the repository now, without fetching it; None if only a fetch can
    tell, as for `main~2` or the beginning of a commit. Raises FetchError."""
    if _COMMIT.fullmatch(revision):
        return revision
    parts = parse_url(url)
    if parts is None or check_request(url, revision):
        raise FetchError("GIT_URL_REFUSED", url=redact_url(url))
    if not _NAME.fullmatch(revision):
        return None
    address = _resolve_address(parts)
    with tempfile.TemporaryDirectory(prefix="fermi-git-") as scratch:
        return _GitCommand(Path(scratch), parts, address, secret, seconds).find(revision)


def _resolve_address(parts: SplitResult) -> str:
    """Return an address of the host that is allowed. Raises FetchError."""
    host, rules = parts.hostname or "", read_allowed_hosts()
    try:
        found = socket.getaddrinfo(host, parts.port or DEFAULT_PORTS[parts.scheme], type=socket.SOCK_STREAM)
    except OSError as error:
        raise FetchError("GIT_HOST_UNKNOWN", retry=True, host=host, why=error.strerror or str(error)) from error
    addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    named = not _is_address(host)
    usable = [one for one in addresses if rules.address(one, named=named)]
    if not usable:
        raise FetchError("GIT_HOST_REFUSED", host=f"{host} ({addresses[0]})" if named else host)
    return str(usable[0])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _GitCommand:
    """Runs git with an environment of its own, for one repository."""

    def __init__(
        self, scratch: Path, parts: SplitResult, address: str, secret: str, seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.scratch, self.parts, self.repository = scratch, parts, scratch / "repository"
        self.seconds = seconds  # of each command
        self.options = [
            "-c", "core.hooksPath=/dev/null", "-c", "credential.helper=", "-c", "protocol.allow=never",
            "-c", f"protocol.{parts.scheme}.allow=always", "-c", "http.followRedirects=false",
            "-c", "core.symlinks=true", "-c", "core.fsmonitor=false", "-c", "filter.lfs.required=false",
        ]  # fmt: skip
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": str(scratch), "LANG": "C", "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }  # fmt: skip
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        if parts.scheme == "https":
            self._https(address, secret)
        else:
            self._ssh(address, secret)

    def _https(self, address: str, secret: str) -> None:
        """Set the address and the credentials. The token reaches git through a program that prints it, so that it is in
        no argument and no file."""
        port = self.parts.port or DEFAULT_PORTS["https"]
        literal = f"[{address}]" if ":" in address else address
        self.options += ["-c", f"http.curloptResolve={self.parts.hostname}:{port}:{literal}"]
        if secret:
            script = self.scratch / "ask"
            script.write_text(ASKPASS_SCRIPT)
            script.chmod(0o700)
            self.env |= {"GIT_ASKPASS": str(script), "FERMI_GIT_TOKEN": secret}

    def _ssh(self, address: str, secret: str) -> None:
        known = settings.DATA_DIR / "code" / "known_hosts"
        known.parent.mkdir(parents=True, exist_ok=True)
        words = [
            "ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new",
            "-o", f"UserKnownHostsFile={known}", "-o", f"HostName={address}",
            "-o", f"HostKeyAlias={self.parts.hostname}", "-o", "ConnectTimeout=20", "-o", "IdentitiesOnly=yes",
        ]  # fmt: skip
        if secret:
            key = self.scratch / "key"
            key.touch(0o600)
            key.write_text(secret.rstrip("\n") + "\n")
            words += ["-i", str(key)]
        self.env["GIT_SSH_COMMAND"] = " ".join(f"'{word}'" for word in words)

    def fetch(self, revision: str) -> GitCheckout:
        """Fetch the revision alone if the server serves it by name; else fetch all refs and find the revision among
        them."""
        url = self.parts.geturl()
        self._run("init", "--quiet", str(self.repository))
        asked = "HEAD" if revision == "HEAD" else revision
        try:
            self._in("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", url, asked)
            commit = self._in("rev-parse", "--verify", "FETCH_HEAD^{commit}")
        except FetchError as error:
            if error.code != "GIT_REVISION_UNKNOWN" and not _COMMIT.match(revision):
                raise
            refs = "+refs/*:refs/remotes/origin/*"
            self._in("fetch", "--quiet", "--no-recurse-submodules", url, refs)
            commit = self._known(revision)
        folder = self.scratch / "tree"
        folder.mkdir()
        attributes = self.repository / ".git" / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -filter -text -ident -export-subst -working-tree-encoding\n")
        self._in("--work-tree", str(folder), "checkout", "--quiet", "--force", commit, "--", ".")
        branch = "" if _COMMIT.fullmatch(revision) or revision == "HEAD" else revision
        return GitCheckout(folder, commit, branch)

    def find(self, revision: str) -> str | None:
        """Return the commit that the server lists for the revision. A tag precedes a branch of the same name, as in a
        fetch (gitrevisions(7), "refname"); for an annotated tag it is the commit that it names. None: it may be the
        beginning of a commit, which servers do not look up."""
        if revision == "HEAD":
            names = ["HEAD"]
        else:
            names = [f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}", f"refs/heads/{revision}", revision]
        said = self._run("ls-remote", self.parts.geturl(), *names)
        found = {name: commit for commit, _tab, name in (line.partition("\t") for line in said.splitlines())}
        commit = next((found[name] for name in names if name in found), None)
        if commit is None and not _COMMIT_PREFIX.fullmatch(revision):
            raise FetchError("GIT_REVISION_UNKNOWN", url=redact_url(self.parts.geturl()), why=revision)
        return commit

    def _known(self, revision: str) -> str:
        for name in (f"refs/remotes/origin/heads/{revision}", f"refs/remotes/origin/tags/{revision}", revision):
            try:
                return self._in("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            except FetchError:
                continue
        raise FetchError("GIT_REVISION_UNKNOWN", url=redact_url(self.parts.geturl()), why=revision)

    def _in(self, *words: str) -> str:
        return self._run("-C", str(self.repository), *words)

    def _run(self, *words: str) -> str:
        if shutil.which("git") is None:
            raise FetchError("GIT_MISSING")
        try:
            done = subprocess.run(
                ["git", *self.options, *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                encoding="utf-8", errors="replace", timeout=self.seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            params = {"seconds": round(self.seconds), "url": redact_url(self.parts.geturl())}
            raise FetchError("GIT_TIMEOUT", retry=True, **params) from None
        if done.returncode:
            raise self._error(done.stderr)
        return done.stdout.strip()

    def _error(self, stderr: str) -> FetchError:
        """Return the error that git's English messages mean (LANG=C: fetch-pack.c, remote-curl.c, http.c, and those of
        ssh)."""
        url, last = redact_url(self.parts.geturl()), " ".join(stderr.split())[-300:]
        low = stderr.lower()
        if "couldn't find remote ref" in low or "not our ref" in low or "unadvertised object" in low:
            return FetchError("GIT_REVISION_UNKNOWN", url=url, why=last)
        refused = ("authentication failed", "permission denied", "could not read username", "terminal prompts disabled")
        if any(words in low for words in refused) or "403" in low:
            return FetchError("GIT_FORBIDDEN", url=url, why=last)
        if "not found" in low or "does not exist" in low or "does not appear to be a git repository" in low:
            return FetchError("GIT_REPOSITORY_UNKNOWN", url=url, why=last)
        return FetchError("GIT_FAILED", retry=True, url=url, why=last)

"""Resolves a task's own code: from what its request names to the snapshot that every attempt gets."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from apps.accounts import secrets
from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment
from apps.code import fetch, from_environment, git, retention, selectors, store
from apps.code.models import Fetch, FetchStatus
from apps.common.errors import ProblemsError
from apps.training.models import Task
from apps.training.states import FINAL_STATES
from fermi.diagnosis.facts import SentCode
from fermi.jobs import code
from fermi.jobs.snapshot import SnapshotFile
from fermi.jobs.spec import Code, Entrypoint, JobSpec, Problem
from fermi.planning import entry, imports
from fermi.planning.imports import Imports
from fermi.planning.request import CodeRequest

FIELD = "code"


def resolve_code(
    project: Project | None, request: CodeRequest | None, master: DevEnvironment | None
) -> tuple[Code | None, list[Problem]]:
    """Return the code that a request's `code` means in its project, with the problems found. `master`: the environment
    that code may be taken from; None while it is not known."""
    if request is None or project is None:
        return None, []
    sources = [name for name in ("git", "environment") if getattr(request, name)]
    if len(sources) > 1 or not (sources or request.snapshot):
        return None, [Problem(FIELD, "CODE_ONE_SOURCE", {"found": ", ".join(sources) or "–"})]
    brought = Code(requirements=request.requirements, source=_build_source(request, master))
    if request.snapshot:
        found = selectors.find_in_project(project.pk, request.snapshot)
        if found is None:
            return None, [Problem(f"{FIELD}.snapshot", "SNAPSHOT_UNKNOWN", {"snapshot": request.snapshot[:12]})]
        return attach_snapshot(brought, found.digest, found.origin), []
    if request.git:
        wrong = git.check_request(request.git.url, request.git.revision)
        named = {"code.git.secret": request.git.secret} if request.git.secret else {}
        wrong += [replace(one, field="code.git.secret") for one in secrets.find_unknown_secrets(project.pk, named)]
        return brought, wrong
    if master is None:
        return None, [Problem(f"{FIELD}.environment", "CODE_ENVIRONMENT_NOT_YET")]
    return brought, from_environment.check_environment(project, master, f"{FIELD}.environment")


def _build_source(request: CodeRequest, master: DevEnvironment | None) -> dict[str, Any]:
    """Return the source as `Fetch.source` stores it; empty for a snapshot."""
    if request.git:
        return {"git": {"url": request.git.url, "revision": request.git.revision, "secret": request.git.secret or ""}}
    if request.environment and master:
        return {"environment": master.pk, "name": master.name, "path": request.path}
    return {}


def attach_snapshot(code: Code, digest: str, origin: Mapping[str, Any]) -> Code:
    """Return the code with its snapshot, the folder of the snapshot and its origin."""
    return replace(code, snapshot=digest, folder=str(store.get_archive_folder(digest)), origin=dict(origin))


@dataclass(frozen=True, slots=True)
class CodeInspection:
    """Result of inspecting the code that a job brings. `problems`: files that the job names and that are missing;
    `entry_text`: the beginning of its script or module, at most `entry.MAX_TEXT` bytes. Empty while the code has not
    been fetched."""

    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    entry_text: bytes = b""


def inspect_code(job: JobSpec) -> CodeInspection:
    """Return what was found in the manifest of the job's snapshot and in the script or module that is to run."""
    if job.code is None or not job.code.snapshot:
        return CodeInspection()
    files = store.list_files(job.code.snapshot)
    text = _read_entry_text(job, files)
    found = code.find_problems(job, files) + entry.find_text_problems(job.entrypoint, text)
    return CodeInspection(found, code.find_warnings(job, files), text)


def read_entry_text(job: JobSpec) -> bytes:
    """Return the beginning of the job's script or module in its snapshot; empty if it is not there."""
    if job.code is None or not job.code.snapshot:
        return b""
    return _read_entry_text(job, store.list_files(job.code.snapshot))


def _read_entry_text(job: JobSpec, files: Iterable[SnapshotFile]) -> bytes:
    """Return the first `entry.MAX_TEXT` bytes of the job's script or module; empty if it is not in the snapshot or
    cannot be read."""
    named = job.entrypoint
    if named is None or not job.brings(named.script):
        return b""
    found = next((one for one in files if one.path in named.paths and one.sha256), None)
    if found is None:
        return b""
    try:
        with store.get_blob_path(found.sha256).open("rb") as file:
            return file.read(entry.MAX_SCRIPT_BYTES)
    except OSError:
        return b""


def find_imports(job: JobSpec, entry_text: bytes = b"") -> Imports:
    """Return which modules the job's own code imports. `entry_text`: the beginning of its script, where that is a file
    on its nodes. Empty for code whose requirements are installed on every node: these bring what is needed."""
    if job.entrypoint is None:
        return imports.NO_IMPORTS
    if not job.brings(job.entrypoint.script):
        return (
            imports.find_script_imports(entry_text, job.entrypoint.script)
            if len(entry_text) < entry.MAX_SCRIPT_BYTES
            else imports.NO_IMPORTS
        )
    if job.code is None or not job.code.snapshot:
        return imports.NO_IMPORTS
    try:
        return _find_snapshot_imports(job.code.snapshot, job.code.requirements, job.entrypoint)
    except OSError:
        return imports.NO_IMPORTS


@lru_cache(maxsize=256)
def _find_snapshot_imports(snapshot: str, requirements: str, entrypoint: Entrypoint) -> Imports:
    """Return the imports of a snapshot's entry point. Cached, as a snapshot never changes."""
    files = {one.path: one for one in store.list_files(snapshot)}
    if code.has_requirements(requirements, files):
        return imports.NO_IMPORTS
    return imports.find_code_imports(entrypoint, files, store.read_blob)


def describe_sent_code(job: JobSpec) -> SentCode | None:
    """Return what every node received of the job's code; None if it brings none, or its manifest is gone."""
    if job.code is None or not job.code.snapshot:
        return None
    with suppress(OSError):
        return SentCode.from_snapshot(job.code.snapshot, store.list_files(job.code.snapshot), store.read_blob)
    return None


def request_code(job: JobSpec, user: User) -> JobSpec:
    """Return the job with a fetch requested for code that is not stored yet; marks a stored snapshot as used. Call it
    in the transaction that stores the task. Raises ProblemsError if the snapshot is gone."""
    if job.code and job.code.snapshot and not retention.record_use(job.project, job.code.snapshot):
        raise ProblemsError([Problem(f"{FIELD}.snapshot", "SNAPSHOT_UNKNOWN", {"snapshot": job.code.snapshot[:12]})])
    if job.code is None or job.code.snapshot or "fetch" in job.code.source:
        return job
    project = Project.objects.get(pk=job.project)
    asked = fetch.create_fetch(user, project, dict(job.code.source))
    return replace(job, code=replace(job.code, source={**job.code.source, "fetch": asked.pk}))


def resolve_fetch(job: JobSpec) -> tuple[JobSpec | None, Fetch | None]:
    """Return the job with its snapshot, and the fetch that brought it. The job is None while the code is being fetched,
    or if that failed (see the fetch)."""
    if job.code is None or job.code.snapshot:
        return job, None
    found = Fetch.objects.select_related("snapshot").filter(pk=job.code.source.get("fetch")).first()
    if found is None or found.status != FetchStatus.READY or found.snapshot is None:
        return None, found
    return replace(job, code=attach_snapshot(job.code, found.snapshot.digest, found.snapshot.origin)), found


def delete_unused_snapshots() -> None:
    """Delete snapshots that no task refers to; see `apps.code.retention`."""
    of = Task.objects.exclude(spec__code__snapshot=None).values_list("project_id", "spec__code__snapshot", "state")
    rows = list(of)
    retention.delete_expired(
        {(project, digest) for project, digest, _ in rows},
        {digest for _, digest, state in rows if state not in FINAL_STATES},
    )


def build_archive(job: JobSpec) -> None:
    """Build the archive of the job's snapshot at the path that the plan names. Raises an error of `apps.code.store` if
    its content is missing, and OSError."""
    if job.code and job.code.snapshot:
        store.ensure_archive(job.code.snapshot)


def rebuild_request(request: Mapping[str, Any], spec: Mapping[str, Any], snapshot: str | None = None) -> dict[str, Any]:
    """Return the task's request with its code filled in, ready to be submitted again.

    `snapshot`: the snapshot to run, by default the task's own; "": none, so that the code is fetched again. The source
    is always included, so that a later retry can fetch it again.
    """
    found = spec.get("code") or {}
    if not (snapshot or found.get("snapshot")):
        return dict(request)
    chosen = found["snapshot"] if snapshot is None else snapshot
    named = {"snapshot": chosen} if chosen else {}
    return {
        **request,
        "code": {
            **named,
            **_build_source_fields(found.get("source") or {}),
            "requirements": found.get("requirements", "auto"),
        },
    }


def _build_source_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request fields that name this source."""
    if git_source := source.get("git"):
        return {"git": {name: value for name, value in git_source.items() if value}}
    return {"environment": "master", "path": source["path"]} if "environment" in source else {}

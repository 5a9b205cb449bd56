"""A task's own code: from what its request names to the snapshot that every attempt gets."""

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
from apps.training.states import FINAL
from fermi.diagnosis.facts import Sent
from fermi.jobs import code
from fermi.jobs.snapshot import File
from fermi.jobs.spec import Code, Entrypoint, JobSpec, Problem
from fermi.planning import entry, imports
from fermi.planning.imports import Imports
from fermi.planning.request import CodeRequest

FIELD = "code"


def named(
    project: Project | None, asked: CodeRequest | None, master: DevEnvironment | None
) -> tuple[Code | None, list[Problem]]:
    """What a request's `code` means in its project, and what is wrong with it. `master`: None where it is not known
    yet."""
    if asked is None or project is None:
        return None, []
    sources = [name for name in ("git", "environment") if getattr(asked, name)]
    if len(sources) > 1 or not (sources or asked.snapshot):
        return None, [Problem(FIELD, "CODE_ONE_SOURCE", {"found": ", ".join(sources) or "–"})]
    brought = Code(requirements=asked.requirements, source=_source(asked, master))
    if asked.snapshot:
        found = selectors.in_project(project.pk, asked.snapshot)
        if found is None:
            return None, [Problem(f"{FIELD}.snapshot", "SNAPSHOT_UNKNOWN", {"snapshot": asked.snapshot[:12]})]
        return ready(brought, found.digest, found.origin), []
    if asked.git:
        wrong = git.problems(asked.git.url, asked.git.revision)
        named = {"code.git.secret": asked.git.secret} if asked.git.secret else {}
        wrong += [replace(one, field="code.git.secret") for one in secrets.unknown(project.pk, named)]
        return brought, wrong
    if master is None:
        return None, [Problem(f"{FIELD}.environment", "CODE_ENVIRONMENT_NOT_YET")]
    return brought, from_environment.problems(project, master, f"{FIELD}.environment")


def _source(asked: CodeRequest, master: DevEnvironment | None) -> dict[str, Any]:
    """As `Fetch.source` has it."""
    if asked.git:
        return {"git": {"url": asked.git.url, "revision": asked.git.revision, "secret": asked.git.secret or ""}}
    if asked.environment and master:
        return {"environment": master.pk, "name": master.name, "path": asked.path}
    return {}


def ready(asked: Code, digest: str, origin: Mapping[str, Any]) -> Code:
    return replace(asked, snapshot=digest, folder=str(store.folder_of(digest)), origin=dict(origin))


@dataclass(frozen=True, slots=True)
class Inspection:
    """Of the code that a job brings. `problems`: what the job names and does not find there; `entry_text`: the
    beginning of its script or module, at most `entry.MAX_TEXT` bytes. Empty of code that is yet to come."""

    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    entry_text: bytes = b""


def inspect(job: JobSpec) -> Inspection:
    """Reads the manifest of the job's snapshot once, and the script or module that is to run."""
    if job.code is None or not job.code.snapshot:
        return Inspection()
    files = store.files(job.code.snapshot)
    text = _entry_text(job, files)
    found = code.problems(job, files) + entry.text_problems(job.entrypoint, text)
    return Inspection(found, code.warnings(job, files), text)


def _entry_text(job: JobSpec, files: Iterable[File]) -> bytes:
    named = job.entrypoint
    if named is None or not job.brings(named.script):
        return b""
    found = next((one for one in files if one.path in named.paths and one.sha256), None)
    if found is None:
        return b""
    try:
        with store.blob(found.sha256).open("rb") as file:
            return file.read(entry.MAX_TEXT)
    except OSError:
        return b""


def imported(job: JobSpec, outside: bytes = b"") -> Imports:
    """Returns which modules the job's own code needs. `outside`: the beginning of its script, where that is a file of
    its node. Nothing of code whose requirements every node installs: they bring what is needed."""
    if job.entrypoint is None:
        return imports.NOTHING
    if not job.brings(job.entrypoint.script):
        return imports.of_text(outside, job.entrypoint.script) if len(outside) < entry.MAX_TEXT else imports.NOTHING
    if job.code is None or not job.code.snapshot:
        return imports.NOTHING
    try:
        return _imported(job.code.snapshot, job.code.requirements, job.entrypoint)
    except OSError:
        return imports.NOTHING


@lru_cache(maxsize=256)
def _imported(snapshot: str, requirements: str, entrypoint: Entrypoint) -> Imports:
    """A snapshot never changes."""
    files = {one.path: one for one in store.files(snapshot)}
    if code.has_requirements(requirements, files):
        return imports.NOTHING
    return imports.of_code(entrypoint, files, store.read_blob)


def sent(job: JobSpec) -> Sent | None:
    """Returns what every node got of the job's code; None where it brings none, or its manifest is gone."""
    if job.code is None or not job.code.snapshot:
        return None
    with suppress(OSError):
        return Sent.of(job.code.snapshot, store.files(job.code.snapshot), store.read_blob)
    return None


def begin(job: JobSpec, user: User) -> JobSpec:
    """In the transaction that stores its task: what is yet to be fetched is asked for."""
    if job.code and job.code.snapshot and not retention.use(job.project, job.code.snapshot):
        raise ProblemsError([Problem(f"{FIELD}.snapshot", "SNAPSHOT_UNKNOWN", {"snapshot": job.code.snapshot[:12]})])
    if job.code is None or job.code.snapshot or "fetch" in job.code.source:
        return job
    project = Project.objects.get(pk=job.project)
    asked = fetch.ask(user, project, dict(job.code.source))
    return replace(job, code=replace(job.code, source={**job.code.source, "fetch": asked.pk}))


def fetched(job: JobSpec) -> tuple[JobSpec | None, Fetch | None]:
    """The job with its snapshot; None while it is being fetched, or where that failed (see the fetch)."""
    if job.code is None or job.code.snapshot:
        return job, None
    found = Fetch.objects.select_related("snapshot").filter(pk=job.code.source.get("fetch")).first()
    if found is None or found.status != FetchStatus.READY or found.snapshot is None:
        return None, found
    return replace(job, code=ready(job.code, found.snapshot.digest, found.snapshot.origin)), found


def forget() -> None:
    """Snapshots that no task refers to; see `apps.code.retention`."""
    of = Task.objects.exclude(spec__code__snapshot=None).values_list("project_id", "spec__code__snapshot", "state")
    rows = list(of)
    retention.forget(
        {(project, digest) for project, digest, _ in rows},
        {digest for _, digest, state in rows if state not in FINAL},
    )


def lay_ready(job: JobSpec) -> None:
    """Has the archive where the plan says. Raises store.Lost and OSError."""
    if job.code and job.code.snapshot:
        store.archive(job.code.snapshot)


def again(request: Mapping[str, Any], spec: Mapping[str, Any], snapshot: str | None = None) -> dict[str, Any]:
    """The task's request, made once more. `snapshot`: the one to run, by default the task's own; "": none, so that the
    code is taken anew. It always says where the code came from, too, so that a later retry can take it anew."""
    found = spec.get("code") or {}
    if not (snapshot or found.get("snapshot")):
        return dict(request)
    chosen = found["snapshot"] if snapshot is None else snapshot
    named = {"snapshot": chosen} if chosen else {}
    return {
        **request,
        "code": {**named, **_named_again(found.get("source") or {}), "requirements": found.get("requirements", "auto")},
    }


def _named_again(source: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that name this source."""
    if git_source := source.get("git"):
        return {"git": {name: value for name, value in git_source.items() if value}}
    return {"environment": "master", "path": source["path"]} if "environment" in source else {}

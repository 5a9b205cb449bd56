"""Commands for files of a project and outputs of tasks: list, upload, download, move, remove."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import click
from rich.console import RenderableType

from fermi.characters import escape_name
from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.files import ProgressCallback
from fermi.client.types import FileItem, LibraryCache
from fermi.schema import humanize

MAX_PARALLEL = 4
"""Files at once."""
STDIO = "-"


@command("files", _("MORE_FILES"))
@click.argument("action", type=click.Choice(["ls", "put", "get", "rm", "mv", "mkdir", "use"]), default="ls")
@click.argument("paths", nargs=-1)
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
@click.option("-r", "--recursive", is_flag=True, help=_("OPTION_FILES_RECURSIVE"))
@click.option("--replace", is_flag=True, help=_("OPTION_FILES_REPLACE"))
def files(
    session: Session, action: str, paths: tuple[str, ...], project: str | None, recursive: bool, replace: bool
) -> None:
    api, where = session.fermi.files, NameResolver(session.fermi).project(project)
    wanted = {"ls": (0, 1), "put": (1, 2), "get": (1, 2), "rm": (1, 1), "mv": (2, 2), "mkdir": (1, 1), "use": (0, 0)}
    low, high = wanted[action]
    if not low <= len(paths) <= high:
        raise click.UsageError(_("FILES_TAKE", action=action, low=low, high=high))
    first, second = (*paths, "", "")[:2]
    if action in ("ls", "get"):
        first = _to_project_path(first)
    match action:
        case "ls":
            items = list(api.list(where, first))
            output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_files(items))
        case "put":
            _upload(session, where, first, second, replace)
        case "get":
            one = next((item for item in api.list(where, _get_parent(first)) if item["path"] == first.strip("/")), None)
            _download(
                first, second, one, lambda path: api.tree(where, path), lambda path: api.read(where, path),
                lambda item, into, tell: api.get(where, item, into, progress=tell),
            )  # fmt: skip
        case "rm":
            api.delete(where, first, recursive=recursive)
            output.print_message(_("DELETED", id=escape_name(first)))
        case "mv":
            api.move(where, first, second)
        case "mkdir":
            api.make_folder(where, first)
        case "use":
            use = api.use(where)
            output.print_result(
                use, session.form, lambda: [output.make_pairs([(name, cast(Any, v)) for name, v in use.items()])]
            )


@command("outputs", _("MORE_OUTPUTS"))
@click.argument("task")
@click.argument("action", type=click.Choice(["ls", "get"]), default="ls")
@click.argument("paths", nargs=-1)
def outputs(session: Session, task: str, action: str, paths: tuple[str, ...]) -> None:
    api = session.fermi.outputs
    if len(paths) > (1 if action == "ls" else 2):
        raise click.UsageError(_("FILES_TAKE", action=action, low=0, high=1 if action == "ls" else 2))
    first, second = (*paths, "", "")[:2]
    first = _to_project_path(first)
    if action == "ls":
        items = list(api.list(task, first))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_files(items))
        return
    one = next((item for item in api.list(task, _get_parent(first)) if item["path"] == first.strip("/")), None)
    _download(
        first, second or ("" if first else f"{task}-outputs"), one, lambda path: api.tree(task, path),
        lambda path: api.read(task, path), lambda item, into, tell: api.get(task, item, into, progress=tell),
    )  # fmt: skip


@command("cache", _("MORE_CACHE"))
@click.argument("action", type=click.Choice(["show", "clean"]), default="show")
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
@click.option("--keep", type=click.FloatRange(0, 1 << 20), default=0.0, help=_("OPTION_CACHE_KEEP"))
def cache(session: Session, action: str, project: str | None, keep: float) -> None:
    api, where = session.fermi.files, NameResolver(session.fermi).project(project)
    is_cleaned = action == "clean"
    found = api.clean_cache(where, int(keep * 2**30)) if is_cleaned else api.cache(where)
    output.print_result(found, session.form, lambda: _render_cache(found))
    if is_cleaned:
        output.print_message(_("CACHE_WILL_BE_CLEANED"))


def _render_cache(found: LibraryCache) -> Iterator[RenderableType]:
    if found["measuredAt"] is None:
        yield _("CACHE_NOT_MEASURED")
        return
    most, size = found["maxBytes"], humanize.format_bytes(found["sizeBytes"])
    excess = humanize.format_bytes(found["excessBytes"]) if found["excessBytes"] else None
    cleaned = f"{humanize.format_bytes(found['freedBytes'])}, {format_time(found['cleanedAt'])}"
    yield output.make_pairs([
        (_("CACHE_SIZE"), size if found["complete"] else f"≥ {size}"),
        (_("CACHE_LIMIT"), None if most is None else humanize.format_bytes(most)), (_("CACHE_ABOVE_LIMIT"), excess),
        (_("CACHE_UNITS"), found["units"]), (_("CACHE_FREED"), cleaned if found["cleanedAt"] else None),
        ("", escape_name(found["error"])),
    ])  # fmt: skip
    rows: list[list[output.Cell]] = [
        [escape_name(unit["path"]), humanize.format_bytes(unit["sizeBytes"]), format_time(unit["usedAt"])]
        for unit in found["largest"]
    ]
    if rows:
        yield output.make_table([_("PATH"), _("CACHE_SIZE"), _("CACHE_USED_AT")], rows)


def _upload(session: Session, where: str, source: str, target: str, replace: bool) -> None:
    api = session.fermi.files
    if source == STDIO:
        if not target:
            raise click.UsageError(_("FILES_NAME_TARGET"))
        with tempfile.TemporaryFile() as held:  # its size and hash come first
            while piece := sys.stdin.buffer.read(1 << 20):
                held.write(piece)
            api.put(where, target, cast(BinaryIO, held), replace=replace)
        return
    path = Path(source)
    if not path.exists():
        raise click.UsageError(_("NO_SUCH_FILE", path=escape_name(source)))
    top = (target or path.resolve().name).strip("/")
    if path.is_dir():
        sent = [
            (one, f"{top}/{one.relative_to(path).as_posix()}") for one in sorted(path.rglob("*")) if _is_regular(one)
        ]
    else:
        sent = [(path, f"{top}/{path.name}" if target.endswith("/") else top)]
    with _open_progress_bar(sum(one.stat().st_size for one, _to in sent)) as tell:
        done = _run_parallel(lambda pair: api.put(where, pair[1], pair[0], replace=replace, progress=tell), sent)
    output.print_message(_("FILES_SENT", sent=sum(done), same=len(done) - sum(done)))


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _download(
    path: str,
    target: str,
    one: FileItem | None,
    tree: Callable[[str], Iterator[FileItem]],
    read: Callable[[str], Iterator[bytes]],
    get: Callable[[FileItem, Path, ProgressCallback], bool],
) -> None:
    """Download a file, or a folder with everything in it."""
    path = path.strip("/")
    if target == STDIO:
        for piece in read(path):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if one and one["kind"] == "file":
        into = Path(target or one["name"])
        wanted = [(one, into / one["name"] if into.is_dir() or target.endswith("/") else into)]
    else:
        folder = Path(target or path.rpartition("/")[2] or ".")
        items = list(tree(path))
        wanted = [(item, _resolve_inside(folder, item["path"][len(path) :].lstrip("/"))) for item in items]
    with _open_progress_bar(sum(item["sizeBytes"] or 0 for item, _into in wanted)) as tell:
        done = _run_parallel(lambda pair: get(pair[0], pair[1], tell), wanted)
    output.print_message(_("FILES_FETCHED", fetched=sum(done), same=len(done) - sum(done)))


def _resolve_inside(folder: Path, name: str) -> Path:
    """Return a path below `folder`, whatever name the server sends. Raise where it would lead outside."""
    into = folder / name
    if not into.resolve().is_relative_to(folder.resolve()):
        raise click.ClickException(_("NO_SUCH_FILE", path=escape_name(name)))
    return into


def _run_parallel(act: Callable[[Any], bool], things: Sequence[Any]) -> list[bool]:
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        try:
            return list(pool.map(act, things))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _open_progress_bar(size: int) -> Iterator[ProgressCallback]:
    """Return a progress bar on a terminal; one that prints nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    with click.progressbar(length=size, file=sys.stderr, show_eta=True) as bar:
        yield bar.update


def _to_project_path(path: str) -> str:
    """Return a path as the API takes it from what people type: "." is the whole project. The API refuses what leads out
    of it."""
    return "" if path == "." else path.removeprefix("./")


def _get_parent(path: str) -> str:
    return path.strip("/").rpartition("/")[0]


def _render_files(items: Iterable[FileItem]) -> Iterator[RenderableType]:
    rows = [
        [
            f"{escape_name(one['name'])}{'/' * (one['kind'] == 'folder')}",
            one["sizeBytes"],
            format_time(one["modifiedAt"]),
            one["by"],
        ]
        for one in items
    ]
    yield output.make_table([_("NAME"), _("BYTES"), _("CHANGED"), _("BY")], rows)

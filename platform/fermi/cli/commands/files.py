"""Files of a project, and what tasks have written: listed, sent, fetched, moved and removed."""

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
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import clock
from fermi.client.files import Progress
from fermi.client.types import FileItem

ABREAST = 4
"""Files at once."""
STANDARD = "-"


@command("files", _("MORE_FILES"))
@click.argument("action", type=click.Choice(["ls", "put", "get", "rm", "mv", "mkdir", "use"]), default="ls")
@click.argument("paths", nargs=-1)
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
@click.option("-r", "--recursive", is_flag=True, help=_("OPTION_FILES_RECURSIVE"))
@click.option("--replace", is_flag=True, help=_("OPTION_FILES_REPLACE"))
def files(
    session: Session, action: str, paths: tuple[str, ...], project: str | None, recursive: bool, replace: bool
) -> None:
    api, where = session.fermi.files, Names(session.fermi).project(project)
    wanted = {"ls": (0, 1), "put": (1, 2), "get": (1, 2), "rm": (1, 1), "mv": (2, 2), "mkdir": (1, 1), "use": (0, 0)}
    low, high = wanted[action]
    if not low <= len(paths) <= high:
        raise click.UsageError(_("FILES_TAKE", action=action, low=low, high=high))
    first, second = (*paths, "", "")[:2]
    if action in ("ls", "get"):
        first = _there(first)
    match action:
        case "ls":
            items = list(api.list(where, first))
            output.show({"items": items, "total": len(items)}, session.form, lambda: _table(items))
        case "put":
            _put(session, where, first, second, replace)
        case "get":
            one = next((item for item in api.list(where, _parent(first)) if item["path"] == first.strip("/")), None)
            _get(
                first, second, one, lambda path: api.tree(where, path), lambda path: api.read(where, path),
                lambda item, into, tell: api.get(where, item, into, progress=tell),
            )  # fmt: skip
        case "rm":
            api.delete(where, first, recursive=recursive)
            output.say(_("DELETED", id=escape_name(first)))
        case "mv":
            api.move(where, first, second)
        case "mkdir":
            api.make_folder(where, first)
        case "use":
            use = api.use(where)
            output.show(use, session.form, lambda: [output.pairs([(name, cast(Any, v)) for name, v in use.items()])])


@command("outputs", _("MORE_OUTPUTS"))
@click.argument("task")
@click.argument("action", type=click.Choice(["ls", "get"]), default="ls")
@click.argument("paths", nargs=-1)
def outputs(session: Session, task: str, action: str, paths: tuple[str, ...]) -> None:
    api = session.fermi.outputs
    if len(paths) > (1 if action == "ls" else 2):
        raise click.UsageError(_("FILES_TAKE", action=action, low=0, high=1 if action == "ls" else 2))
    first, second = (*paths, "", "")[:2]
    first = _there(first)
    if action == "ls":
        items = list(api.list(task, first))
        output.show({"items": items, "total": len(items)}, session.form, lambda: _table(items))
        return
    one = next((item for item in api.list(task, _parent(first)) if item["path"] == first.strip("/")), None)
    _get(
        first, second or ("" if first else f"{task}-outputs"), one, lambda path: api.tree(task, path),
        lambda path: api.read(task, path), lambda item, into, tell: api.get(task, item, into, progress=tell),
    )  # fmt: skip


def _put(session: Session, where: str, source: str, target: str, replace: bool) -> None:
    api = session.fermi.files
    if source == STANDARD:
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
        sent = [(one, f"{top}/{one.relative_to(path).as_posix()}") for one in sorted(path.rglob("*")) if _plain(one)]
    else:
        sent = [(path, f"{top}/{path.name}" if target.endswith("/") else top)]
    with _bar(sum(one.stat().st_size for one, _to in sent)) as tell:
        done = _abreast(lambda pair: api.put(where, pair[1], pair[0], replace=replace, progress=tell), sent)
    output.say(_("FILES_SENT", sent=sum(done), same=len(done) - sum(done)))


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _get(
    path: str,
    target: str,
    one: FileItem | None,
    tree: Callable[[str], Iterator[FileItem]],
    read: Callable[[str], Iterator[bytes]],
    get: Callable[[FileItem, Path, Progress], bool],
) -> None:
    """A file, or a folder with all below."""
    path = path.strip("/")
    if target == STANDARD:
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
        wanted = [(item, _inside(folder, item["path"][len(path) :].lstrip("/"))) for item in items]
    with _bar(sum(item["sizeBytes"] or 0 for item, _into in wanted)) as tell:
        done = _abreast(lambda pair: get(pair[0], pair[1], tell), wanted)
    output.say(_("FILES_FETCHED", fetched=sum(done), same=len(done) - sum(done)))


def _inside(folder: Path, name: str) -> Path:
    """Whatever the other side says, nothing is written outside of `folder`."""
    into = folder / name
    if not into.resolve().is_relative_to(folder.resolve()):
        raise click.ClickException(_("NO_SUCH_FILE", path=escape_name(name)))
    return into


def _abreast(act: Callable[[Any], bool], things: Sequence[Any]) -> list[bool]:
    with ThreadPoolExecutor(ABREAST) as pool:
        try:
            return list(pool.map(act, things))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _bar(size: int) -> Iterator[Progress]:
    """For people; scripts see none."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    with click.progressbar(length=size, file=sys.stderr, show_eta=True) as bar:
        yield bar.update


def _there(path: str) -> str:
    """As people name folders: "." is all of them. Whatever leads out of there is the API's to refuse."""
    return "" if path == "." else path.removeprefix("./")


def _parent(path: str) -> str:
    return path.strip("/").rpartition("/")[0]


def _table(items: Iterable[FileItem]) -> Iterator[RenderableType]:
    rows = [
        [
            f"{escape_name(one['name'])}{'/' * (one['kind'] == 'folder')}",
            one["sizeBytes"],
            clock(one["modifiedAt"]),
            one["by"],
        ]
        for one in items
    ]
    yield output.table([_("NAME"), _("BYTES"), _("CHANGED"), _("BY")], rows)

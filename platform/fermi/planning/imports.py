"""Finds which installed modules a task's own code needs: what its script imports, and the modules of the sent code that
it reaches by that. Pure.

Conditional imports are left out: behind `try … except ImportError`, `if TYPE_CHECKING`, and inside functions of other
files than the script. So are relative imports, and modules that the code itself has.
"""

import ast
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fermi.jobs.snapshot import SnapshotFile
from fermi.jobs.spec import Entrypoint

MAX_FILES = 300
"""Files of the sent code that are read."""
MAX_FILE_BYTES = 512 << 10
MAX_MODULES = 200
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
ReadContent = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Imports:
    """`needed`: by the name of a top-level module, where it is imported first (`train.py:3`). `local`: names of modules
    anywhere in the sent code, which an import may mean."""

    needed: Mapping[str, str]
    local: Collection[str] = frozenset()


NO_IMPORTS = Imports({})


def find_script_imports(text: bytes, path: str) -> Imports:
    """Return the imports of a script of which no other file is known: each name may mean one of those files."""
    needed = dict(_list_modules(_parse_module(text), path, with_functions=True, package=())[0])
    return Imports(needed, frozenset(needed))


def find_code_imports(entry: Entrypoint, files: Mapping[str, SnapshotFile], read: ReadContent) -> Imports:
    """Return the imports that the entry reaches within a snapshot. `files`: by path; `read` returns the content with
    that SHA-256, and raises OSError. A file that cannot be read is passed over."""
    start = next((path for path in entry.paths if path in files), None)
    if start is None:
        return NO_IMPORTS
    # `python train.py` looks beside the script first, `python -m` in the folder in which ranks start
    root = "" if entry.module else _get_folder(start)
    own = _list_top_modules(root, files)
    needed, seen, waiting = dict[str, str](), {start}, [start]
    while waiting:
        path = waiting.pop(0)
        one = files[path]
        if not one.sha256 or one.size > MAX_FILE_BYTES:
            continue
        try:
            tree = _parse_module(read(one.sha256))
        except OSError:
            continue
        package = tuple(PurePosixPath(path).parent.parts)
        tops, modules = _list_modules(tree, path, with_functions=path == start, package=package)
        for name, place in tops:
            if len(needed) < MAX_MODULES and name not in own:
                needed.setdefault(name, place)
        for words, relative in modules:
            for found in _list_reached_files(words, "" if relative else root, files):
                if found not in seen and len(seen) < MAX_FILES:
                    seen.add(found)
                    waiting.append(found)
    return Imports(needed, frozenset(_list_names(files)))


def _list_names(files: Mapping[str, SnapshotFile]) -> Iterator[str]:
    for path in files:
        if path.endswith(".py"):
            parts = PurePosixPath(path).parts
            yield from parts[:-1]
            yield parts[-1].removesuffix(".py")


def _get_folder(path: str) -> str:
    folder = str(PurePosixPath(path).parent)
    return "" if folder == "." else folder


def _parse_module(text: bytes) -> ast.Module:
    """Return the parsed module; an empty one for what is not Python, or newer than this platform's Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


ModuleName = tuple[str, ...]


def _list_modules(
    tree: ast.Module, path: str, *, with_functions: bool, package: ModuleName
) -> tuple[list[tuple[str, str]], list[tuple[ModuleName, bool]]]:
    """Return top-level modules with their places, and all modules that are named, each with whether it was relative.
    `with_functions`: also what is imported inside of functions."""
    tops, modules = dict[str, str](), list[tuple[ModuleName, bool]]()
    for node in _list_imports(tree, with_functions=with_functions):
        if isinstance(node, ast.Import):
            for one in node.names:
                words = tuple(one.name.split("."))
                tops.setdefault(words[0], f"{path}:{node.lineno}")
                modules.append((words, False))
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            words = (*above, *(node.module.split(".") if node.module else ()))
            if not node.level:
                tops.setdefault(words[0], f"{path}:{node.lineno}")
            modules += [((*words, one.name), bool(node.level)) for one in node.names]
    known = sys.stdlib_module_names
    return [(name, place) for name, place in tops.items() if name not in known], modules


def _list_imports(tree: ast.AST, *, with_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that are certainly executed, in their order."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not with_functions:
            continue
        elif isinstance(node, ast.Try) and any(map(_catches_import_error, node.handlers)):
            waiting += [*node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and _is_never(node.test, with_functions=with_functions):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds)


def _is_never(test: ast.expr, *, with_functions: bool) -> bool:
    """Return whether the condition is false at run time: `TYPE_CHECKING`, another system than Linux, and `__name__ ==
    "__main__"` of a file that is imported."""
    text = ast.unparse(test)
    return (
        text.endswith("TYPE_CHECKING")
        or "win32" in text
        or "darwin" in text
        or (not with_functions and "__main__" in text)
    )


def _list_reached_files(words: ModuleName, root: str, files: Mapping[str, SnapshotFile]) -> Iterator[str]:
    """Yield the files of the code that importing `a.b.c` runs: of each package on the way, and of the module."""
    for length in range(1, len(words) + 1):
        path = "/".join([*filter(None, [root]), *words[:length]])
        yield from (one for one in (f"{path}.py", f"{path}/__init__.py") if one in files)


def _list_top_modules(root: str, files: Mapping[str, SnapshotFile]) -> set[str]:
    """Return the modules and packages directly in a folder; a package needs no `__init__.py`."""
    inside = f"{root}/" if root else ""
    below = (path[len(inside) :] for path in files if path.startswith(inside) and path.endswith(".py"))
    return {path.partition("/")[0].removesuffix(".py") for path in below}

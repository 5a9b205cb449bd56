"""Normalisation of file paths from users: relative, with `/` between folders, and the same however they were typed."""

import unicodedata

from apps.common.errors import ApiError

MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 600
"""Bytes in UTF-8: of a name on common file systems, and of what a PostgreSQL index holds with room to spare."""


def normalize_path(path: str, field: str = "path", *, root: bool = False) -> str:
    """Return the path as it is stored. `root`: an empty path, or `/`, is the whole project. Raises ApiError 400."""
    path = unicodedata.normalize("NFC", path)
    bare = path.strip("/") if root else path
    if not bare and root:
        return ""
    names = (bare.removesuffix("/") if root else bare).split("/")
    why = _find_fault(names) or ("PATH_TOO_LONG" if len(bare.encode("utf-8", "replace")) > MAX_PATH_BYTES else "")
    if why:
        raise ApiError(400, "FILE_PATH_INVALID", field, path=path[:200], why=why, high=MAX_PATH_BYTES)
    return "/".join(names)


def is_normalized(path: str) -> bool:
    """Return True if the path can be stored just as it is."""
    try:
        return normalize_path(path) == path
    except ApiError:
        return False


def _find_fault(names: list[str]) -> str:
    """Return the code of the fault, or an empty text."""
    for name in names:
        if name in ("", ".", ".."):
            return "PATH_NOT_BELOW"
        if len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            return "PATH_TOO_LONG"
        if (
            name != name.strip()
            or "\\" in name
            or any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in name)
        ):
            return "PATH_CHARACTERS"
    return ""


_FORBIDDEN_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories: control characters, surrogates, and line breaks."""


def split_path(path: str) -> tuple[str, str]:
    """Return the parent folder and the name."""
    parent, _, name = path.rpartition("/")
    return parent, name


def join_path(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name


def list_parents(path: str) -> list[str]:
    """Return all folders that the path is within, the outermost first."""
    names = path.split("/")[:-1]
    return ["/".join(names[: length + 1]) for length in range(len(names))]

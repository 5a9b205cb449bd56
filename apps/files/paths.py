"""Normalisation of file paths from users: relative, with `/` between folders, and the same however they were typed."""

import unicodedata

from apps.common.errors import ApiError

LONGEST_NAME, LONGEST_PATH = 255, 600
"""Bytes in UTF-8: of a name on common file systems, and of what a PostgreSQL index holds with room to spare."""


def clean(path: str, field: str = "path", *, root: bool = False) -> str:
    """Return the path as it is stored. `root`: an empty path, or `/`, is the whole project. Raises ApiError 400."""
    path = unicodedata.normalize("NFC", path)
    bare = path.strip("/") if root else path
    if not bare and root:
        return ""
    names = (bare.removesuffix("/") if root else bare).split("/")
    why = _wrong(names) or ("PATH_TOO_LONG" if len(bare.encode("utf-8", "replace")) > LONGEST_PATH else "")
    if why:
        raise ApiError(400, "FILE_PATH_INVALID", field, path=path[:200], why=why, high=LONGEST_PATH)
    return "/".join(names)


def is_clean(path: str) -> bool:
    """Return True if the path can be stored just as it is."""
    try:
        return clean(path) == path
    except ApiError:
        return False


def _wrong(names: list[str]) -> str:
    """Return the code of the fault, or an empty text."""
    for name in names:
        if name in ("", ".", ".."):
            return "PATH_NOT_BELOW"
        if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
            return "PATH_TOO_LONG"
        if name != name.strip() or "\\" in name or any(unicodedata.category(char) in _UNFIT for char in name):
            return "PATH_CHARACTERS"
    return ""


_UNFIT = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories: control characters, surrogates, and line breaks."""


def split(path: str) -> tuple[str, str]:
    """Return the parent folder and the name."""
    parent, _, name = path.rpartition("/")
    return parent, name


def join(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name


def folders(path: str) -> list[str]:
    """Return all folders that the path is within, the outermost first."""
    names = path.split("/")[:-1]
    return ["/".join(names[: length + 1]) for length in range(len(names))]

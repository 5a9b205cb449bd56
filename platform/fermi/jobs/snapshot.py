"""A snapshot of code, for those who do not run on nodes: see `fermi.runner.code`."""

from fermi.runner.code import (  # noqa: F401 (for others)
    ARCHIVE,
    EXECUTABLE,
    MADE_BESIDE,
    MANIFEST,
    PLAIN,
    Broken,
    File,
    Wrong,
    dump,
    extract,
    identity,
    load,
    write_archive,
)

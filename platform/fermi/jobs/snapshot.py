"""Snapshots of code, for programs that do not run on nodes: the names of `fermi.runner.code`."""

from fermi.runner.code import (
    ARCHIVE_NAME,
    EXECUTABLE_MODE,
    GENERATED_FOLDERS,
    MANIFEST_NAME,
    PLAIN_MODE,
    CodeDeliveryError,
    ManifestError,
    SnapshotFile,
    compute_snapshot_id,
    extract_archive,
    parse_manifest,
    serialize_manifest,
    write_archive,
)

__all__ = [
    "ARCHIVE_NAME",
    "EXECUTABLE_MODE",
    "GENERATED_FOLDERS",
    "MANIFEST_NAME",
    "PLAIN_MODE",
    "CodeDeliveryError",
    "ManifestError",
    "SnapshotFile",
    "compute_snapshot_id",
    "extract_archive",
    "parse_manifest",
    "serialize_manifest",
    "write_archive",
]

"""Reads scalars from TensorBoard's event files. Standard library only, Python 3.9 or later.

A file is a row of records (TFRecord, `tensorflow/core/lib/io/record_writer.h`): eight bytes of length, four of its
masked CRC-32C, the data, four of the data's. The data is an `Event` in the wire format of protocol buffers
(protobuf.dev/programming-guides/encoding). The numbers of the fields are those of TensorFlow's `event.proto`,
`summary.proto` and `tensor.proto`:

    Event           wall_time 1 (double), step 2 (varint), summary 5
    Summary         value 1
    Summary.Value   tag 1, simple_value 2 (float), tensor 8, metadata 9
    SummaryMetadata plugin_data 1; of that plugin_name 1
    TensorProto     dtype 1, tensor_shape 2, tensor_content 4, float_val 5, double_val 6, int_val 7, int64_val 10
    TensorShapeProto dim 2; of that size 1
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

FRAME_BYTES = 16
"""Bytes of a record beside its data."""
MAX_EVENT_BYTES = 256 << 10
"""Events with more are images, graphs and the like: they are passed over."""
SCALAR_PLUGINS = ("", "scalars")
"""`plugin_name` of scalars (tensorboard/plugins/scalar/metadata.py); only the first value of a tag has to have it."""
LIGHTNINGS_PLACEHOLDER = ("hp_metric", -1.0)
"""Lightning's logger writes it for a table of hyperparameters (lightning/pytorch/loggers/tensorboard.py)."""
_FORMATS = {1: ("f", 4), 2: ("d", 8), 3: ("i", 4), 9: ("q", 8), 4: ("B", 1), 6: ("b", 1), 5: ("h", 2), 10: ("?", 1)}
"""By `DataType` (types.proto): the format of a number in `tensor_content`, and its bytes."""


class Scalar(NamedTuple):
    """A number of an event. `time`: unix seconds."""

    tag: str
    step: int
    value: float
    time: float


class EventFormatError(Exception):
    """Raised where a file has something else than records: it is not read on."""


class EventReader:
    """Reads one file from where it was read. Feed it the bytes in order; of what it passes over it says how many need
    not be read."""

    def __init__(self) -> None:
        self._plugins: dict[str, str] = {}

    def split_records(self, data: bytes) -> tuple[list[bytes], int, int]:
        """Return the data of the whole records that `data` begins with, how many bytes they have, and how many bytes
        behind these belong to a record that is passed over. Raises EventFormatError."""
        found: list[bytes] = []
        at = 0
        while len(data) - at >= 12:
            length, check = struct.unpack_from("<QI", data, at)
            if mask_crc(compute_crc32c(data[at : at + 8])) != check:
                raise EventFormatError
            if length > MAX_EVENT_BYTES:
                return found, at, int(length) + FRAME_BYTES
            if len(data) - at < length + FRAME_BYTES:
                break
            found.append(data[at + 12 : at + 12 + length])
            at += length + FRAME_BYTES
        return found, at, 0

    def read_scalars(self, event: bytes) -> list[Scalar]:
        """Return the scalars of an event. Raises EventFormatError."""
        time, step, values = 0.0, 0, []
        for number, value in iterate_fields(event):
            if number == 1 and isinstance(value, bytes) and len(value) == 8:
                time = struct.unpack("<d", value)[0]
            elif number == 2 and isinstance(value, int):
                step = value if value < 1 << 63 else 0
            elif number == 5 and isinstance(value, bytes):
                values += [item for key, item in iterate_fields(value) if key == 1 and isinstance(item, bytes)]
        found = []
        for one in values:
            named = self._read_value(one)
            if named and named != LIGHTNINGS_PLACEHOLDER and math.isfinite(time):
                found.append(Scalar(named[0], step, named[1], time))
        return found

    def _read_value(self, value: bytes) -> tuple[str, float] | None:
        tag, number, tensor, plugin = "", None, None, None
        for key, item in iterate_fields(value):
            if key == 1 and isinstance(item, bytes):
                tag = item.decode(errors="replace")
            elif key == 2 and isinstance(item, bytes) and len(item) == 4:
                number = shorten_float32(struct.unpack("<f", item)[0])
            elif key == 8 and isinstance(item, bytes):
                tensor = item
            elif key == 9 and isinstance(item, bytes):
                plugin = _read_plugin(item)
        if plugin is not None and len(self._plugins) < 4096:
            self._plugins[tag] = plugin
        if number is None and tensor is not None and self._plugins.get(tag, "") in SCALAR_PLUGINS:
            number = _read_tensor(tensor)
        return (tag, number) if tag and number is not None else None


def iterate_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and value of each field: an integer for a varint, bytes for the rest. Raises
    EventFormatError."""
    at, end = 0, len(message)
    while at < end:
        key, at = _read_varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _read_varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:  # groups are not in use
            raise EventFormatError
        if size > end - at:
            raise EventFormatError
        yield number, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise EventFormatError


def _read_plugin(metadata: bytes) -> str:
    for number, value in iterate_fields(metadata):
        if number == 1 and isinstance(value, bytes):
            return next(
                (v.decode(errors="replace") for n, v in iterate_fields(value) if n == 1 and isinstance(v, bytes)), ""
            )
    return ""


def _read_tensor(tensor: bytes) -> float | None:
    """Return the number of a tensor that has one; else None."""
    kind, content, values = 0, b"", []
    for number, value in iterate_fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes) and _count_elements(value) != 1:
            return None
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6) and isinstance(value, bytes):  # packed or not, the bytes are the same
            code, size = ("f", 4) if number == 5 else ("d", 8)
            values += [one[0] for one in struct.iter_unpack(f"<{code}", value[: len(value) // size * size])]
        elif number in (7, 10):
            values.append(_read_signed(value if isinstance(value, int) else _read_varint(value, 0)[0]))
    form = _FORMATS.get(kind)
    if content and form and len(content) == form[1]:
        values = [struct.unpack(f"<{form[0]}", content)[0]]
    if len(values) != 1 or not form:
        return None
    return shorten_float32(values[0]) if form[0] == "f" else float(values[0])


def shorten_float32(value: float) -> float:
    """Return the number with the fewest digits that is the same one in four bytes: 0.1, not 0.10000000149."""
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if _narrow(short) == value:
            return short
    return value


def _narrow(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf


def _read_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _count_elements(shape: bytes) -> int:
    count = 1
    for number, value in iterate_fields(shape):
        if number == 2 and isinstance(value, bytes):
            count *= next((size for key, size in iterate_fields(value) if key == 1 and isinstance(size, int)), 0)
    return count


def _build_crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _build_crc_table()


def compute_crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of a few bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def mask_crc(crc: int) -> int:
    """Return the CRC as records have it (`crc32c::Mask`, tensorflow/core/lib/hash/crc32c.h)."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF

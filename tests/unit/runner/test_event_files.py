"""Reading TensorBoard's event files, compared with TensorBoard's own reader."""

import struct
from pathlib import Path
from typing import Any

import pytest

from fermi.runner.event_files import EventFormatError, EventReader, Scalar, iterate_fields
from tests.lazy import lazy_import

torch, tensorboard = lazy_import("torch"), lazy_import("torch.utils.tensorboard")
accumulator = lazy_import("tensorboard.backend.event_processing.event_accumulator")
tensor_util = lazy_import("tensorboard.util.tensor_util")
event_proto = lazy_import("tensorboard.compat.proto.event_pb2")
summary_proto = lazy_import("tensorboard.compat.proto.summary_pb2")
tensor_proto = lazy_import("tensorboard.compat.proto.tensor_pb2")
FLOAT, DOUBLE, INT32, STRING, INT64 = 1, 2, 3, 7, 9
"""Of DataType."""


def read(data: bytes) -> list[Scalar]:
    reader, found = EventReader(), []
    at = 0
    while True:
        events, used, passed = reader.split_records(data[at:])
        found += [one for event in events for one in reader.read_scalars(event)]
        at += used + passed
        if not used and not passed:
            return found


def test_the_same_scalars_are_read_as_by_tensorboard(tmp_path: Path) -> None:
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        for step in range(0, 3000, 7):
            writer.add_scalar("loss/train", 1 / (step + 1), step, walltime=1763703000.25 + step)
            writer.add_scalar("accuracy", step * 1e-3, step, new_style=True, walltime=1763703000.25 + step)
            writer.add_scalar("tiny", 1e-30 * step, step, double_precision=True)
        writer.add_histogram("weights", torch.randn(100), 3)
        writer.add_image("large", torch.rand(3, 600, 600), 4)
        writer.add_text("note", "text", 5)
        writer.add_scalar("last", -1.5, 1 << 40)
    path = next(tmp_path.iterdir())
    ours = read(path.read_bytes())
    theirs = accumulator.EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    expected = {}
    for tag in theirs.Tags()["scalars"]:
        expected[tag] = [(one.step, one.value, one.wall_time) for one in theirs.Scalars(tag)]
    for tag in theirs.Tags()["tensors"]:
        if theirs.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            tensors = theirs.Tensors(tag)
            expected[tag] = [
                (one.step, float(tensor_util.make_ndarray(one.tensor_proto)), one.wall_time) for one in tensors
            ]
    found: dict[str, list[tuple[int, float, float]]] = {}
    for one in ours:
        found.setdefault(one.tag, []).append((one.step, one.value, one.time))
    assert found.keys() == expected.keys()
    for tag, points in expected.items():
        assert [(step, at) for step, _, at in found[tag]] == [(step, at) for step, _, at in points]
        assert [value for _, value, _ in found[tag]] == pytest.approx([value for _, value, _ in points], rel=1e-7)


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        (FLOAT, {"float_val": [0.1]}, 0.1),
        (DOUBLE, {"double_val": [0.1]}, 0.1),
        (INT64, {"int64_val": [-3]}, -3.0),
        (INT32, {"tensor_content": struct.pack("<i", -7)}, -7.0),
        (FLOAT, {"float_val": [0.1, 0.2]}, None),
        (STRING, {"string_val": [b"text"]}, None),
    ],
)
def test_tensors_with_one_number_are_scalars(kind: int, content: dict[str, Any], expected: float | None) -> None:
    tensor = tensor_proto.TensorProto(dtype=kind, **content)
    value = summary_proto.Summary.Value(tag="x", tensor=tensor)
    event = event_proto.Event(step=3, wall_time=5.0, summary=summary_proto.Summary(value=[value]))
    found = EventReader().read_scalars(event.SerializeToString())
    assert [one.value for one in found] == ([] if expected is None else [expected])


def test_tensors_of_other_plugins_are_no_scalars_also_without_their_metadata() -> None:
    plugin = summary_proto.SummaryMetadata(plugin_data={"plugin_name": "histograms"})
    tensor = tensor_proto.TensorProto(dtype=FLOAT, float_val=[1.0])
    reader = EventReader()
    for metadata in (plugin, None):
        value = summary_proto.Summary.Value(tag="x", tensor=tensor, metadata=metadata)
        event = event_proto.Event(summary=summary_proto.Summary(value=[value]))
        assert reader.read_scalars(event.SerializeToString()) == []


def test_a_record_that_is_not_whole_waits_for_its_rest(tmp_path: Path) -> None:
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 1)
    data = next(tmp_path.iterdir()).read_bytes()
    for cut in range(1, 40):
        assert len(read(data[:-cut])) <= 1
    assert [one.tag for one in read(data)] == ["loss"]


def test_what_is_no_event_file_is_refused() -> None:
    with pytest.raises(EventFormatError):
        EventReader().split_records(b"no event file, but long enough")
    for message in (b"\x0a\xff", b"\x0b", b"\xff" * 11, b"\x09\x00"):
        with pytest.raises(EventFormatError):
            list(iterate_fields(message))

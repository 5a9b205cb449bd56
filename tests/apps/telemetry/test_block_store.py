"""Series: what was put in comes out, at every grain, whoever wrote it and whatever died meanwhile."""

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from django.db import DatabaseError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.telemetry import block_store, reader, resolutions, rollups
from apps.telemetry import writer as series_writer
from apps.telemetry.block_codec import ColumnBlock, downsample_block, pack_block, unpack_block
from apps.telemetry.models import Block
from apps.telemetry.resolutions import COARSE, FINE, RESOLUTIONS
from apps.telemetry.writer import TelemetryWriter
from fermi.telemetry.metrics import METRICS
from tests.sampling import examples

pytestmark = [pytest.mark.database, pytest.mark.django_db]
BEGAN = 1_795_400_000 // FINE.block * FINE.block
PRECISION = 2.0**-12


class Clock:
    def __init__(self) -> None:
        self.at = float(BEGAN)

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The store's."""
    clock = Clock()
    moment = mock.Mock(side_effect=lambda: mock.Mock(timestamp=clock))
    for module in (reader, rollups):
        monkeypatch.setattr(module, "now", moment)
    return clock


def run(
    clock: Clock, writer: TelemetryWriter, until: float, values: Any, subject: str = "env:a", every: float = 15.0
) -> None:
    """Puts `values(moment)` every so often, and flushes and folds as the platform does."""
    while clock.at < until:
        writer.put(subject, clock.at, values(clock.at))
        writer.flush()
        clock.at += every
    rollups.fold_blocks()


def known(column: Any) -> list[float]:
    return [float(value) for value in column if not math.isnan(value)]


def test_a_sample_is_read_at_its_time(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    run(clock, writer, BEGAN + 600, lambda at: {"cpu": (at - BEGAN) / 15, "gpu:0": 50.0, "memory_total": 8e9})
    clock.at += 60
    writer.flush()
    table = reader.read_series(["env:a"], ["cpu", "memory_total"], BEGAN, BEGAN + 600, 40)
    assert (table.begins, table.step, table.count) == (BEGAN, 15, 40)
    assert table.columns.keys() == {("env:a", "cpu"), ("env:a", "memory_total")}
    assert table.columns["env:a", "cpu"].values.tolist() == list(range(40))
    assert table.columns["env:a", "memory_total"].values == pytest.approx([8e9] * 40, rel=PRECISION)


def test_fewer_points_are_means_with_maxima(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    run(clock, writer, BEGAN + 600, lambda at: {"cpu": (at - BEGAN) / 15, "ecc:0": 1.0, "throttled:0": 1 + at % 2})
    clock.at += 60
    writer.flush()
    table = reader.read_series(["env:a"], ["cpu", "ecc", "throttled"], BEGAN, BEGAN + 600, 4)
    cpu = table.columns["env:a", "cpu"]
    assert (table.step, table.count) == (180, 4)  # a multiple of the grain's that four points suffice for
    assert cpu.values.tolist()[:3] == [5.5, 17.5, 29.5]
    assert cpu.most is not None
    assert cpu.most.tolist()[:3] == [11, 23, 35]
    assert table.columns["env:a", "ecc:0"].values.tolist()[:3] == [12, 12, 12]
    assert table.columns["env:a", "throttled:0"].values.tolist()[:3] == [3, 3, 3]


SAMPLES = st.lists(
    st.tuples(
        st.integers(1, 4 * 60 * 60 // 15),  # quarter minutes until the next one: each in its own
        st.dictionaries(st.sampled_from(["cpu", "gpu:0", "gpu:1", "power:0", "ecc:0", "throttled:1", "xid:0"]),
                        st.integers(0, 900), min_size=1),
        st.sampled_from(["", "", "restart", "other", "fold", "flush"]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(SAMPLES)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_series_equal_a_plain_dictionary_of_samples(clock: Clock, samples: Any) -> None:
    """Writers begin anew, two write at once, folding comes at any time: nothing that was written changes by it."""
    Block.objects.all().delete()
    clock.at = float(BEGAN)
    writers = [TelemetryWriter(clock), TelemetryWriter(clock)]
    told: dict[tuple[str, int], float] = {}
    for pause, values, what in samples:
        clock.at += 15 * pause
        slot = int(clock.at - BEGAN) // 15
        writer = writers[what == "other"]
        writer.put("task:x", clock.at, values)
        told.update({(key, slot): value for key, value in values.items()})
        if what in ("restart", "flush", "fold"):
            clock.at += 61
            for one in writers:
                one.flush()
        if what == "restart":
            writers[0] = TelemetryWriter(clock)
        if what == "fold":
            rollups.fold_blocks()
    for _ in range(3):
        clock.at += 2400
        for one in writers:
            one.flush()
        rollups.fold_blocks()
    last = max(slot for _, slot in told)
    for grain in RESOLUTIONS:
        factor = grain.seconds // 15
        count = last // factor + 1
        table = reader.read_series(["task:x"], list(METRICS), BEGAN, BEGAN + count * grain.seconds, count)
        assert table.step == grain.seconds or count == 1
        for key in {key for key, _ in told}:
            rows = [[told.get((key, slot * factor + n), math.nan) for n in range(factor)] for slot in range(count)]
            expected = downsample_block(ColumnBlock(count * factor, {key: np.array(rows, np.float32).ravel()}), factor)
            if table.step == grain.seconds:
                got = table.columns["task:x", key].values
                np.testing.assert_allclose(got, expected.columns[key], rtol=3 * PRECISION, equal_nan=True)


def test_a_killed_process_loses_only_unwritten_samples(clock: Clock) -> None:
    run(clock, TelemetryWriter(clock), BEGAN + 300, lambda at: {"cpu": 1.0})
    run(clock, TelemetryWriter(clock), BEGAN + 600, lambda at: {"cpu": 2.0})
    writer = TelemetryWriter(clock)
    run(clock, writer, BEGAN + 700, lambda at: {"cpu": 3.0})
    clock.at += 60
    writer.flush()
    values = known(reader.read_series(["env:a"], ["cpu"], BEGAN, BEGAN + 720, 48).columns["env:a", "cpu"].values)
    assert 3 * 19 > len(values) >= 47 - 2 * 2  # each death: two quarter minutes at most
    assert values == sorted(values)


def test_unwritten_samples_are_written_at_shutdown(clock: Clock) -> None:
    writer, ending = TelemetryWriter(clock), threading.Event()
    for subject in ("env:a", "task:x"):
        writer.put(subject, clock.at, {"cpu": 3.0})
    ending.set()
    with mock.patch.object(series_writer.connection, "close"):  # the test's, here
        series_writer.run_writer(writer, ending)
    assert reader.read_newest(["env:a", "task:x"]).keys() == {"env:a", "task:x"}


def test_samples_of_many_nodes_share_a_quarter_minute(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    for second in range(3):
        for rank in range(40):
            writer.put("task:x", clock.at + second * 5, {f"rank_cpu:{rank}": rank + second, "ecc:0": 1.0})
    writer.flush(all_of_it=True)
    columns = reader.read_series(["task:x"], ["rank_cpu", "ecc"], BEGAN, BEGAN + 15, 10).columns
    means = [columns["task:x", f"rank_cpu:{rank}"].values[0] for rank in range(40)]
    assert means == [rank + 1 for rank in range(40)]
    assert columns["task:x", "ecc:0"].values[0] == 120
    assert reader.read_newest(["task:x"])["task:x"].values == {f"rank_cpu:{rank}": rank + 1 for rank in range(40)} | {
        "ecc:0": 120
    }


class Dies(Exception):
    pass


@pytest.mark.parametrize("step", range(4))
def test_an_interrupted_rollup_is_repeated_without_duplicates(clock: Clock, step: int) -> None:
    writer = TelemetryWriter(clock)
    run(clock, writer, BEGAN + FINE.block, lambda at: {"cpu": at % 100, "ecc:0": 1.0})
    clock.at += 60
    writer.flush()
    clock.at += 3600
    whole = [row.values.columns["cpu"].tolist() for row in block_store.load_blocks(FINE, ["env:a"], BEGAN, BEGAN + 1)]
    calls = 0
    save = block_store.save_block

    def dies(*args: Any, **more: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == step:
            raise Dies
        version = save(*args, **more)
        if calls == step + 2:
            raise Dies
        return version

    with mock.patch.object(block_store, "save_block", dies), contextlib.suppress(Dies):
        rollups.fold_blocks()
    assert not Block.objects.filter(sealed=True).exclude(grain=FINE.seconds).exists()
    for _ in range(2):
        rollups.fold_blocks()
    assert [
        row.values.columns["cpu"].tolist() for row in block_store.load_blocks(FINE, ["env:a"], BEGAN, BEGAN + 1)
    ] == whole
    for grain in COARSE:
        stored = block_store.load_block(grain, "env:a", grain.find_block_start(BEGAN))
        assert stored is not None
        assert known(stored.values.columns["ecc:0"]) == [grain.seconds / 15] * (FINE.block // grain.seconds)
    assert Block.objects.get(grain=FINE.seconds).sealed


def test_samples_survive_a_database_outage(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    writer.put("env:a", clock.at, {"cpu": 7.0})
    clock.at += 60
    with mock.patch.object(block_store, "save_block", side_effect=DatabaseError), pytest.raises(DatabaseError):
        writer.flush()
    clock.at += 60
    assert writer.flush() == 1
    assert known(reader.read_series(["env:a"], ["cpu"], BEGAN, BEGAN + 60, 4).columns["env:a", "cpu"].values) == [7.0]


def test_late_early_and_invalid_samples_are_dropped(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    clock.at += 3600
    for at in (clock.at - resolutions.MAX_LATE_SECONDS - 1, clock.at + resolutions.MAX_EARLY_SECONDS + 1, -1.0, 1e12):
        writer.put("env:a", at, {"cpu": 1.0})
    writer.put("env:a", clock.at, {"cpu": math.nan, "load": math.inf, "memory": 1e300, "power:0": 5.0})
    clock.at += 60
    assert writer.flush() == 1
    assert [key for _, key in reader.read_series(["env:a"], list(METRICS), BEGAN, clock.at, 100).columns] == ["power:0"]


def test_the_newest_values_are_read_without_series(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    writer.put("task:x", clock.at, {"rank_cpu:0": 10.0}, emulated=True)
    writer.put("task:x", clock.at + 1, {"rank_cpu:1": 20.0})  # by another node
    writer.put("env:old", clock.at, {"cpu": 1.0})
    clock.at += 60
    writer.flush()
    clock.at += 40
    writer.put("task:x", clock.at, {"rank_cpu:0": 30.0})
    clock.at += 15
    writer.flush()
    found = reader.read_newest(["task:x", "env:old", "env:none"])
    assert found.keys() == {"task:x"}
    assert found["task:x"].values == {"rank_cpu:0": 30.0}
    assert found["task:x"].emulated


@pytest.mark.parametrize("hours", [0, 3])
def test_hourly_counts_are_read_without_other_series(clock: Clock, hours: int) -> None:
    """At the beginning, in the middle, and never; whether it was folded meanwhile or not."""
    writer, errors = TelemetryWriter(clock), {BEGAN + hours * 3600 + 60: 3.0, BEGAN + hours * 3600 + 1980: 4.0}
    values = lambda at: {"ecc:0": errors.get(at, 0.0), "ecc:1": 0.0, "gpu:0": 50.0}  # noqa: E731
    run(clock, writer, BEGAN + hours * 3600 + 2400, values)
    writer.put("env:b", clock.at, {"ecc:0": 0.0})
    writer.flush(all_of_it=True)
    assert reader.sum_recent_counters(["env:a", "env:b"], "ecc", 3600) == {"env:a": {"ecc:0": 7.0}}
    assert reader.sum_recent_counters(["env:a"], "ecc", 600) == {"env:a": {"ecc:0": 4.0}}
    clock.at += 1800
    rollups.fold_blocks()
    assert reader.sum_recent_counters(["env:a"], "ecc", 3600) == {"env:a": {"ecc:0": 4.0}}
    clock.at += 3600
    assert reader.sum_recent_counters(["env:a"], "ecc", 3600) == {}


def test_storage_per_subject_is_bounded(clock: Clock) -> None:
    for grain in RESOLUTIONS:
        at = grain.find_block_start(clock.at) - grain.kept * 2
        while at <= clock.at:
            Block.objects.create(subject="env:a", grain=grain.seconds, begins=at, data=pack_block(ColumnBlock(1)))
            at += grain.block
    while rollups.delete_expired():
        pass
    for grain in RESOLUTIONS:
        assert Block.objects.filter(grain=grain.seconds).count() <= resolutions.count_max_blocks(grain)
    assert sum(map(resolutions.count_max_blocks, RESOLUTIONS)) == 98 + 86 + 185


def test_a_competing_writer_does_not_starve_others(clock: Clock) -> None:
    writer = TelemetryWriter(clock)
    writer.put("env:a", clock.at, {"cpu": 7.0})
    clock.at += 60
    with mock.patch.object(block_store, "save_block", side_effect=block_store.ConcurrentWriteError("env:a")):
        assert writer.flush() == 0
    clock.at += 60
    assert writer.flush() == 1


class Flushing:
    """Fails at first, and is told to end by its third turn."""

    def __init__(self, ending: threading.Event) -> None:
        self.ending, self.asked = ending, list[bool]()

    def flush(self, *, all_of_it: bool = False) -> int:
        self.asked.append(all_of_it)
        if len(self.asked) == 1:
            raise DatabaseError("away")
        if len(self.asked) == 3:
            self.ending.set()
        return 0


def test_writing_continues_after_a_failure_and_completes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_writer, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(series_writer, "RETRY_SECONDS", 0.0)
    ending = threading.Event()
    flushing = Flushing(ending)
    thread = threading.Thread(target=series_writer.run_writer, args=(flushing, ending))
    thread.start()
    thread.join(30)
    assert flushing.asked == [False, False, False, True]


def test_disk_usage_needs_both_numbers() -> None:
    values = {
        "disk_used:/": 90.0, "disk_total:/": 100.0, "disk_used:/a:b": 1.0, "disk_total:/a:b": 4.0, "disk_used:/c": 5.0,
        "disk_total:/d": 5.0, "disk_used:/e": 0.0, "disk_total:/e": 0.0, "memory": 1.0,
    }  # fmt: skip
    assert dict(reader.NewestValues(0.0, values).disks()) == {"/": 0.9, "/a:b": 0.25}


@given(st.lists(st.floats(width=32, allow_infinity=False), min_size=4, max_size=4), st.booleans())
def test_packed_values_are_accurate_to_one_part_in_4000(values: list[float], emulated: bool) -> None:
    column = np.array(values, np.float32)
    given = ColumnBlock(4, {"gpu:0": column, "gpu:1": column[::-1].copy(), "cpu": column}, emulated=emulated)
    found = unpack_block(pack_block(given))
    assert (found.count, found.emulated, found.columns.keys()) == (4, emulated, given.columns.keys())
    for key, column in given.columns.items():
        ordinary = np.abs(column) < 1e38
        np.testing.assert_allclose(found.columns[key][ordinary], column[ordinary], rtol=PRECISION, atol=1e-37)
    assert unpack_block(pack_block(given), ["cpu"]).columns.keys() == {"cpu"}


@pytest.fixture(autouse=True)
def _rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield

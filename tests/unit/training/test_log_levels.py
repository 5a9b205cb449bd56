"""Levels and times of lines, as programs around training really print them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.training.logs import first_error, levels
from apps.training.logs.levels import LevelContext, TimestampParser, parse_level

CLOCK = TimestampParser(lambda: datetime(2026, 11, 22, 12, tzinfo=UTC))
TEN = "2026-11-22T10:00:00"
MS = f"{TEN}.123"

LINES = [
    # Python's logging, as people set it up
    ("2026-11-22 10:00:00,123 - trainer - WARNING - no GPU", "warning", MS),
    ("2026-11-22 10:00:00,123 - WARNING - no GPU", "warning", MS),
    ("2026-11-22 10:00:00,123 INFO worker.py:123 -- started", "info", MS),
    ("2026-11-22 10:00:00,123\tINFO worker.py:123 -- started", "info", MS),
    ("2026-11-22 10:00:00,123 my.module ERROR lost", "error", MS),
    ("2026-11-22 10:00:00,123 trainer[812] DEBUG step", "debug", MS),
    ("WARNING:root:slow", "warning", None),
    ("CRITICAL:root:lost", "error", None),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 6", "error", None),
    ("WARNING:2026-11-22 10:00:00,123:jax._src.xla_bridge:967: no GPU found", "warning", MS),
    ("INFO 2026-11-22 10:00:00,123 Attempting to join next rendezvous", "info", MS),
    ("[INFO] 2026-11-22 10:00:00,123 launch: Running", "info", MS),
    ("11/22/2026 10:00:00 - INFO - __main__ - Training", "info", TEN),
    ("[11/22/26 10:00:00] INFO     Training", "info", TEN),
    # loguru, DeepSpeed, transformers, vLLM, NeMo, Megatron, TensorFlow, Ray
    ("2026-11-22 10:00:00.123 | SUCCESS  | train:main:12 - saved", "info", MS),
    ("2026-11-22 10:00:00.123 | CRITICAL | train:main:12 - lost", "error", MS),
    ("[2026-11-22 10:00:00,123] [WARNING] [runner.py:215:fetch_hostfile] Unable to find hostfile", "warning", MS),
    ("[INFO|trainer.py:1000] 2026-11-22 10:00:00,123 >> ***** Running training *****", "info", MS),
    ("WARNING 11-22 10:00:00 [config.py:123] slow", "warning", TEN),
    ("[NeMo W 2026-11-22 10:00:00 nemo_logging:349] deprecated", "warning", TEN),
    ("[2026-11-22 10:00:00] iteration 10/ 100 | lm loss: 2.3E+00 | skipped iterations: 0 |", None, TEN),
    ("2026-11-22 10:00:00.123000: W tensorflow/core/x.cc:12] slow", "warning", MS),
    ("(RayTrainWorker pid=123, ip=10.0.0.1) ERROR: lost", "error", None),
    # PyTorch, glog, absl: no year, and PyTorch's C++ writes the month without a zero
    ("[rank0]:[W1122 10:00:00.123000000 ProcessGroupNCCL.cpp:1168] Warning: WARNING: process group", "warning", MS),
    ("[rank3]:[E1122 10:00:00.123000000 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught", "error", MS),
    ("[E1122 10:00:00.123000000 socket.cpp:1011] [c10d] timed out", "error", MS),
    ("W1122 10:00:00.123000 140066961602368 torch/distributed/run.py:766] ****", "warning", MS),
    ("[rank0]:[W219 09:17:03.293812312 ProcessGroupNCCL.cpp:1168] Warning", "warning", "2027-02-19T09:17:03.293812"),
    ("I0101 00:00:00.000000 7 x.cc:1] a year later", "info", "2027-01-01T00:00:00"),
    # NCCL
    ("host:617:2799 [3] NCCL INFO Channel 03/0 : 47[7] -> 39[7]", "info", None),
    ("[155] crow-ib:5330:5330 [3] NCCL WARN Cuda failure", "warning", None),
    ("[2026-11-22 10:00:00] host:617:2799 [3] transport/net_ib.cc:2360 NCCL WARN NET/IB: status=12", "warning", TEN),
    # Python, the C library, tools
    ("Traceback (most recent call last):", "error", None),
    ("[rank3]: Traceback (most recent call last):", "error", None),
    ("[rank3]: torch.OutOfMemoryError: CUDA out of memory.", "error", None),
    ("subprocess.CalledProcessError: Command '['nvcc']' returned 1", "error", None),
    ("AssertionError", "error", None),
    ("KeyboardInterrupt", "error", None),
    ("Fatal Python error: Segmentation fault", "error", None),
    ("terminate called after throwing an instance of 'c10::Error'", "error", None),
    ("/opt/train.py:12: UserWarning: slow", "warning", None),
    ("srun: error: node1: task 0: Exited with exit code 1", "error", None),
    ("slurmstepd: error: *** STEP 4.0 ON node1 CANCELLED", "error", None),
    ("kernel.cu:3:4: warning: unused variable", "warning", None),
    ("Error: no such file", "error", None),
    ("error: no such file", "error", None),
    ("FATAL: password", "error", None),
    # JSON, logfmt
    ('{"level": "error", "timestamp": "2026-11-22T10:00:00Z", "msg": "lost"}', "error", TEN),
    ('{"severity": "WARNING", "time": "2026-11-22T18:00:00+08:00", "message": "slow"}', "warning", TEN),
    ('{"step": 10, "loss": 2.3, "time": 1795341600.5}', None, f"{TEN}.500"),
    ('{"step": 10, "ts": 1795341600500}', None, f"{TEN}.500"),
    ('time="2026-11-22T10:00:00Z" level=warning msg="slow"', "warning", TEN),
    ('{"step": 10, "time": 0.35}', None, None),
    # times alone
    ("2026-11-22T10:00:00.123Z stdout F ready", None, MS),
    ("2026-11-22T18:00:00.123+0800 ready", None, MS),
    ("2026/11/22 10:00:00 ready", None, TEN),
    ("10:00:00 INFO of an unknown day", "info", None),
    # none of all that
    ("epoch 1 loss 2.0", None, None),
    ("The ERROR rate is 0.1", None, None),
    ("Error in the data: none", None, None),
    ("Warning signs are here", None, None),
    ("2026-11-22 10:00:00 of all words one is called ERROR", None, TEN),
    ("2026-13-45 10:00:00 ERROR of no calendar", "error", None),
    ("I0230 10:00:00.000000 7 x.cc:1] nor this", "info", None),
    ("Training:  10%|█         | 10/100 [00:01<00:09,  9.5it/s]", None, None),
    ('{"level": "error"', None, None),
    ('{"level": 3, "time": true}', None, None),
    ("", None, None),
]


@pytest.mark.parametrize(("line", "level", "at"), LINES, ids=[line[:60] for line, _, _ in LINES])
def test_level_and_time_of_a_line_are_parsed(line: str, level: str | None, at: str | None) -> None:
    said = parse_level(line, CLOCK)
    assert said.level == level
    assert said.at == (at and datetime.fromisoformat(at).replace(tzinfo=UTC))


def test_times_without_a_zone_use_the_configured_zone() -> None:
    clock = TimestampParser(lambda: datetime(2026, 1, 1, tzinfo=UTC), ZoneInfo("Asia/Shanghai"))
    assert parse_level("2026-11-22 18:00:00 ready", clock).at == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert parse_level("2026-11-22 10:00:00Z ready", clock).at == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert parse_level("I1231 23:00:00.0 7 x] late", clock).at == datetime(2025, 12, 31, 15, tzinfo=UTC)


def test_the_year_is_inferred_only_where_a_time_has_none() -> None:
    def never() -> datetime:
        raise AssertionError

    for line in ("plain", "2026-11-22 10:00:00 INFO x", "WARNING:root:x", "Traceback (most recent call last):"):
        parse_level(line, TimestampParser(never))
    with pytest.raises(AssertionError):
        parse_level("I1122 10:00:00.0 7 x] y", TimestampParser(never))


@given(st.text(max_size=400) | st.from_regex(r"\A[\[({]?[0-9]{0,4}[-/:.0-9 TZ+]{0,30}[A-Z]{0,8}.*\Z"))
@example('{"level":' + "[" * 5000)
@example("9999-12-31 23:59:59-12:00 x")
@example("{" * 70_000)
@example('{"time": 1e308, "level": "info"}')
def test_no_line_raises(line: str) -> None:
    for zone in (UTC, ZoneInfo("Pacific/Kiritimati")):
        level, at, *_ = parse_level(line, TimestampParser(lambda: datetime(2026, 11, 22, tzinfo=UTC), zone))
        assert level is None or level in levels.LEVELS
        assert at is None or at.tzinfo is UTC


def taken(*lines: str) -> list[tuple[str | None, datetime | None]]:
    above, offset, found = LevelContext(CLOCK), 0, []
    for line in lines:
        found.append(above.classify_line(offset, line))
        offset += len(line) + 1
    return found


def levels_of(*lines: str) -> list[str | None]:
    return [level for level, _ in taken(*lines)]


def test_a_traceback_has_one_level_to_its_end() -> None:
    traceback = (
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "train.py", line 3, in <module>',
        "[rank0]:     main()",
        "[rank0]: RuntimeError: CUDA error: device-side assert triggered",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "",
    )
    assert levels_of("plain", *traceback) == [None, *["error"] * 6]
    assert levels_of(*traceback, "2026-11-22 10:00:00,1 - INFO - next", "x")[-2:] == ["info", None]


def test_independent_lines_do_not_inherit_a_level() -> None:
    for line in ('{"step": 1, "loss": 2.0}', " 10%|█  | 1/10", "2026-11-22 10:00:00 ready", "{'loss': 1.2}"):
        assert levels_of("ERROR: lost", line, "plain") == ["error", None, None]


@pytest.mark.parametrize(
    ("line", "level"), [("x.py:1: UserWarning: slow", "warning"), ("2026-11-22 10:00:00 ERROR refused", "error")]
)
def test_below_a_line_with_a_level_only_indented_lines_belong_to_it(line: str, level: str) -> None:
    assert levels_of(line, "  indented", "", "step 1", "  indented") == [level, level, level, None, None]


def test_what_a_script_prints_after_an_exception_that_it_handled_is_no_error() -> None:
    found = levels_of("Traceback (most recent call last):", "  f()", "ValueError: x", *["step 1: loss 2.3"] * 20)
    assert found == ["error"] * (3 + levels.MAX_MESSAGE_LINES) + [None] * (20 - levels.MAX_MESSAGE_LINES)


def test_a_time_applies_to_following_lines_without_one() -> None:
    at = datetime(2026, 11, 22, 10, tzinfo=UTC)
    later = at + timedelta(seconds=1)
    lines = ("plain", "2026-11-22 10:00:00 INFO x", "print", '{"step": 1}', "2026-11-22 10:00:01 y", "z")
    assert [time for _, time in taken(*lines)] == [None, at, at, at, later, later]


def test_level_and_time_reach_no_further_than_a_reader_looks_back() -> None:
    above = LevelContext(CLOCK)
    above.classify_line(0, "2026-11-22 10:00:00 ERROR x")
    assert above.classify_line(levels.MAX_REACH_BYTES, " y")[0] == "error"
    assert above.classify_line(levels.MAX_REACH_BYTES + 1, " z") == (None, None)


@given(st.lists(st.sampled_from([*(line for line, _, _ in LINES), "  indented", "x" * 5000]), max_size=60), st.data())
def test_skipped_lines_count_as_read(lines: list[str], data: st.DataObject) -> None:
    read_all, skipping, offset = LevelContext(CLOCK), LevelContext(CLOCK), 0
    for line in lines:
        taken_here = read_all.classify_line(offset, line)
        if data.draw(st.integers(0, 9)):
            skipping.skip(offset, line.encode())
        else:
            assert skipping.classify_line(offset, line) == taken_here
        offset += len(line.encode()) + 1


@pytest.mark.parametrize("line", [line for line, level, _ in LINES if level == "error"])
def test_every_error_line_is_considered_for_the_first_error(line: str) -> None:
    assert first_error._compile_hints().search(line.encode())

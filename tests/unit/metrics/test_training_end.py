"""When a training ends, and which bars show that."""

import pytest

from fermi.metrics.bars import Bar, BarFollower, find_bars
from fermi.metrics.pace import Pace
from fermi.metrics.training_end import MAX_AGE_SECONDS, TrainingEnd

TRAINER = "12%|█▏        | 510/4200 [01:02<07:10,  8.57it/s]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (TRAINER, Bar("", 510, 4200, 430.0)),
        ("Steps:  12%|#2        | 3/25 [00:01<1:02:03, 1.2s/it, loss=0.1]", Bar("Steps", 3, 25, 3723.0)),
        ("Epoch 1/3:   0%|          | 0/25 [00:00<?, ?it/s]", Bar("Epoch 1/3", 0, 25, None)),
        ("\x1b[A\x1b[31m50%|##| 5/10 [00:01<00:01, 5it/s]\x1b[0m", Bar("", 5, 10, 1.0)),
    ],
)
def test_a_bar_is_read_with_its_name_position_and_time_left(line: str, expected: Bar) -> None:
    assert find_bars(f"first\n{line}\n".encode()) == [expected]


@pytest.mark.parametrize(
    "line", ["12%| of all", "model.bin: 12%|# | 1.2G/4.9G [00:10<00:50, 90MB/s]", "12%|#| 5/10 done", "12%|" * 9]
)
def test_other_lines_and_bars_of_bytes_are_none(line: str) -> None:
    assert find_bars(f"{line}\n".encode()) == []


def test_of_many_states_the_newest_are_read() -> None:
    text = "".join(f"{at}%|#| {at}/100 [00:01<00:01, 5it/s]\n" for at in range(100)).encode()
    assert [bar.position for bar in find_bars(text)] == [99, 98, 97, 96, 95, 94, 93, 92]
    assert find_bars(b"%|" * 100_000) == []


def test_a_bar_called_steps_is_the_trainings_until_it_begins_anew() -> None:
    follower = BarFollower()
    follower.add([Bar("Steps", 5, 20, 3.0)], 1.0, None)
    assert follower.bar == Bar("Steps", 5, 20, 3.0)
    follower.add([Bar("Steps", 1, 20, 3.0)], 2.0, None)
    follower.add([Bar("Steps", 2, 20, 3.0)], 3.0, None)
    assert follower.bar is None


def test_a_resumed_bar_grows_with_the_optimizers_steps_from_another_number_on() -> None:
    follower = BarFollower()
    for step in range(0, 40, 4):
        follower.add([Bar("", 1000 + step, 2000, 60.0)], float(step), None)
        follower.compare_steps(step)
    assert follower.bar == Bar("", 1036, 2000, 60.0)


def test_the_pace_is_that_of_the_last_minutes() -> None:
    pace = Pace()
    pace.add(0.0, 0)
    assert pace.estimate_seconds_left(2.0, 10, 100) is None, "too short a time"
    assert pace.estimate_seconds_left(10.0, 10, 100) == 90.0
    for at in range(1, 100):
        pace.add(10.0 + at * 5, 10 + at * 50)
    assert pace.estimate_seconds_left(505.0, 4960, 5960) == 100.0
    pace.add(510.0, 20)
    assert pace.estimate_seconds_left(600.0, 20, 100) is None, "it has begun anew"


def test_what_a_bar_says_counts_while_it_is_new_and_then_the_pace() -> None:
    end = TrainingEnd()
    end.bars.add(find_bars(f"{TRAINER}\n".encode()), 1000.0, 4200)
    assert end.estimate(1001.0, 505, 4200) == 1430.0
    assert end.estimate(1001.0, 3000, 4200) is None, "too far away from the progress"
    end = TrainingEnd()
    end.bars.add(find_bars(f"{TRAINER}\n".encode()), 1000.0, 4200)
    end.estimate(1000.0, 500, 4200)
    assert end.estimate(1100.0, 520, 4200) == 1100.0 + 3680 * 5


def test_a_line_without_a_total_may_say_how_long_it_takes() -> None:
    end = TrainingEnd()
    end.add_line(60.0, 1000.0)
    assert end.estimate(1001.0, 5, 0) == 1060.0
    assert end.estimate(1001.0 + MAX_AGE_SECONDS, 6, 0) is None

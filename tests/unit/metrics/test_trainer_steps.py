"""Which step a line of Hugging Face's Trainer is of, by its epoch and where the Trainer is."""

from collections.abc import Callable

import pytest

from fermi.metrics.trainer_steps import TrainerPosition

ROUNDED: dict[str, Callable[[float], float]] = {
    "not at all": float,
    "to two decimals": lambda epoch: round(epoch, 2),  # transformers before 4.38
    "to four digits": lambda epoch: float(f"{epoch:.4g}"),  # transformers 5
}


def epoch_of(step: int, batches: int, accumulated: int = 1) -> float:
    """As the Trainer counts it: the last step of an epoch takes the batches that are left."""
    per_epoch = -(-batches // accumulated)
    epoch, inside = divmod(step, per_epoch)
    return epoch + min(inside * accumulated, batches) / batches


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize(
    ("batches", "accumulated", "every", "total"),
    [
        (73, 1, 10, 300),
        (10, 4, 1, 30),
        (10_000, 8, 50, 5000),
        (5, 1, 2, 40),
        (300, 1, 500, 3000),
        (100_000, 1, 500, 20_000),
    ],
)
def test_lines_at_regular_intervals_have_steps(
    rounded: str, batches: int, accumulated: int, every: int, total: int
) -> None:
    lines = list(range(every, total + 1, every))
    for known in (lines[0], lines[len(lines) // 2], total):  # where the Trainer was when it was last heard of
        trainer = TrainerPosition(known, total, epoch_of(known, batches, accumulated), every)
        found, before = [], 0
        for step in lines:
            before = trainer.step_of(ROUNDED[rounded](epoch_of(step, batches, accumulated)), before, trains=True)
            found.append(before)
        assert found == lines


def test_first_step_evaluation_and_last_line_have_steps() -> None:
    trainer = TrainerPosition(10, 146, 10 / 146, 10)

    def step_of(step: int, before: int, *, trains: bool) -> int:
        return trainer.step_of(float(f"{step / 146:.4g}"), before, trains=trains)

    assert step_of(1, 0, trains=True) == 1, "logging_first_step"
    assert step_of(10, 1, trains=True) == 10
    assert step_of(25, 20, trains=False) == 25, "an evaluation between two lines"
    assert step_of(50, 50, trains=False) == 50, "and one right after a line"
    assert step_of(146, 140, trains=False) == 146, "the summary at the end"


def test_a_trainer_is_recognized_once_it_has_made_a_step() -> None:
    begun = {"step": 0, "total": 30, "epoch": 0.0, "every": 10}
    goes = {**begun, "step": 3, "epoch": 0.1}
    assert TrainerPosition.from_reports([None, begun]) is None
    assert TrainerPosition.from_reports([None, begun, goes]) == TrainerPosition(3, 30, 0.1, 10)
    assert TrainerPosition.from_reports([{"step": 3, "epoch": None, "total": None, "every": None}]) is None

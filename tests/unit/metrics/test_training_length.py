"""Of how many steps and epochs a training is, by its arguments and parameters."""

import shlex

import pytest

from fermi.metrics.training_length import TrainingLength, find_in_arguments, find_in_parameters


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py config/train_shakespeare_char.py --max_iters=200 --lr_decay_iters=200", (200, 0, 0)),
        ("python makemore.py --max-steps 1101 -o out", (1101, 0, 0)),
        ("adder.py --trainer.max_iters=1201 --trainer.num_workers=0", (1201, 0, 0)),
        ("main.py data -a resnet18 --epochs 90 -b 8", (0, 90, 0)),
        ("run_clm.py --num_train_epochs 2 --max_steps -1 --do_train", (0, 2, 0)),
        ("run_clm.py --num_train_epochs 2.5", (0, 0, 0)),
        ("src/train.py trainer.max_epochs=3 +trainer.max_steps=30", (30, 3, 0)),
        ("yolo detect train data=fake.yaml epochs=3", (0, 3, 0)),
        ("ppo.py --total-timesteps 12000 --num-steps 128", (0, 0, 12000)),
        ("bash -c 'cd src && python main.py --epochs 3'", (0, 3, 0)),
        ("train.py --epochs --lr 3", (0, 0, 0)),
        ("train.py --max_steps", (0, 0, 0)),
        ("train.py --epochs 3 --num-epochs 4", (0, 0, 0)),
        ("train.py --eval_epochs 3 --save_steps=10 --warmup_steps 5 --seed 1", (0, 0, 0)),
        ("train.py --max_steps 1e400 --epochs nan", (0, 0, 0)),
    ],
)
def test_arguments_say_how_long_a_training_is(line: str, expected: tuple[int, int, int]) -> None:
    assert find_in_arguments(shlex.split(line)) == TrainingLength(*expected)


def test_parameters_say_it_by_the_last_part_of_their_name() -> None:
    parameters = {
        "trainer.max_steps": 300,
        "args.num_train_epochs": 3.0,
        "lr": 0.1,
        "model.steps": 5,
        "max_iters": True,
    }
    assert find_in_parameters(parameters) == TrainingLength(300, 3)
    assert find_in_parameters({"max_steps": 300, "trainer.max_steps": "300"}) == TrainingLength(300)
    assert find_in_parameters({"max_steps": 300, "other.max_steps": 200}) == TrainingLength()


def test_what_is_known_already_stays() -> None:
    assert TrainingLength(10).merge(TrainingLength(20, 3)) == TrainingLength(10, 3)

"""Which of several checkpoints is the best."""

import pytest

from fermi.metrics import ratings


def best(parameters: dict[str, object] | None = None, **checkpoints: dict[str, float | None]) -> tuple[str, str] | None:
    return ratings.find_best(checkpoints.items(), ratings.list_quantities(parameters or {}))


def test_the_lowest_loss_of_a_validation_is_best() -> None:
    assert best(b={"val/loss": 2.0, "train/loss": 1.0}, a={"val/loss": 1.5, "train/loss": 3.0}) == ("a", "val/loss")
    assert best(b={"eval_loss": float("nan")}, a={"eval_loss": None}) is None
    assert best(a={"loss": 1.0, "accuracy": 0.5}) is None, "of training"


@pytest.mark.parametrize(
    "name", ["val_acc", "eval/accuracy", "Valid Accuracy", "test_acc1", "val_f1", "eval/mean_reward"]
)
def test_without_a_loss_the_highest_score_is_best(name: str) -> None:
    assert best(b={name: 0.5}, a={name: 0.75}) == ("a", name)


def test_a_loss_comes_before_a_score_and_a_validation_before_a_test() -> None:
    assert best(b={"val_loss": 1.0, "val_acc": 0.5}, a={"val_loss": 2.0, "val_acc": 0.9}) == ("b", "val_loss")
    assert best(b={"test_loss": 9.0, "val_loss": 1.0}, a={"test_loss": 1.0, "val_loss": 2.0}) == ("b", "val_loss")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"metric_for_best_model": "accuracy"}, "a"),
        ({"metric_for_best_model": "eval_accuracy", "greater_is_better": "True"}, "a"),
        ({"metric_for_best_model": "accuracy", "greater_is_better": "False"}, "b"),
        ({"metric_for_best_model": "eval_loss"}, "b"),
        ({"metric_for_best_model": "None"}, "b"),
        ({"metric_for_best_model": "exact_match"}, "b"),
    ],
)
def test_what_the_script_compares_by_comes_first(parameters: dict[str, object], expected: str) -> None:
    found = best(
        parameters,
        b={"eval_loss": 1.0, "eval_accuracy": 0.5},
        a={"eval_loss": 2.0, "eval_accuracy": 0.9},
    )
    assert found
    assert found[0] == expected


def test_of_equal_ones_the_newest_is_best() -> None:
    assert best(newer={"val_acc": 0.5}, older={"val_acc": 0.5}) == ("newer", "val_acc")


@pytest.mark.parametrize(
    "name",
    [
        "val_acc", "evalAccuracy", "eval/f1", "test/macro_f1", "mAP", "map50-95", "metrics/mAP50(B)", "rougeL",
        "eval_rouge1", "sacrebleu", "top5", "val_top_1", "pass@1", "hit@10", "r2", "tokens_per_second", "samples/sec",
        "train_samples_per_second", "steps/s", "throughput", "tflops", "mfu", "rollout/ep_rew_mean", "episode_return",
        "cosine_similarity", "SSIM", "mean IoU", "tokens_per_second_per_gpu", "it_s",
    ],
)  # fmt: skip
def test_of_scores_and_rates_the_highest_is_best(name: str) -> None:
    assert ratings.is_more_better(name)


@pytest.mark.parametrize(
    "name",
    [
        "loss", "valLoss", "eval_loss", "train/cls_loss", "ppl", "perplexity", "rmse", "MAE", "word_error", "wer",
        "error_rate", "top1_error", "accuracy_loss", "step_time", "time_per_step", "seconds", "eval_runtime_seconds",
        "fid", "bits_per_byte", "kl", "gpu_mem", "grad_norm", "lr", "epoch", "something else", "",
    ],
)  # fmt: skip
def test_of_losses_errors_times_and_unknown_names_the_lowest_is_best(name: str) -> None:
    assert not ratings.is_more_better(name)


def test_the_direction_that_the_script_names_comes_first() -> None:
    chosen = {"metric_for_best_model": "eval_wer", "greater_is_better": "True"}
    assert ratings.is_more_better("eval/wer", chosen)
    assert not ratings.is_more_better("eval_loss", chosen)
    assert not ratings.is_more_better("f1", {"metric_for_best_model": "f1", "greater_is_better": "false"})
    assert ratings.is_more_better("exactness", {"metric_for_best_model": "exactness"})
    assert ratings.is_more_better("f1", {"lr": "0.1"})

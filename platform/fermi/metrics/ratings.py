"""Tells by which value checkpoints are compared, and which of two values is better, of checkpoints and of runs. Pure.

What the script itself compares by comes first (the Hugging Face Trainer's `metric_for_best_model`), then the loss of a
validation, then another value of one: an accuracy or a score, where more is better.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CHOICE_PARAMETER, DIRECTION_PARAMETER = "metric_for_best_model", "greater_is_better"
"""Of `transformers.TrainingArguments` (training_args.py); without the second a loss is to be small, and all else
large."""
SCORES = (
    "accuracy", "acc", "acc_1", "acc1", "top_1", "top1", "acc_top1", "f1", "macro_f1", "auc", "auroc", "map", "map50",
    "miou", "iou", "dice", "bleu", "rouge_l", "rougel", "psnr", "r2", "score", "mean_reward", "reward",
)  # fmt: skip
"""Values of which more is better, the more common ones first."""
_RATE = re.compile(
    r"(?:^|_)per_(?:s|sec|second|min|minute|h|hour|day|gpu|device|chip)(?:_|$)|(?:^|_)(?:it|its|steps|samples|tokens|img|images)_s$"
)
_LOW_WORDS = frozenset((
    "loss", "losses", "nll", "ce", "bce", "xent", "entropy", "perplexity", "ppl", "error", "errors", "err", "rmse",
    "mse", "mae", "mape", "smape", "wer", "cer", "ter", "fid", "kid", "lpips", "eer", "bpc", "bpb", "bpw", "kl",
    "brier", "regret", "cost", "penalty", "violations", "violation", "distance", "deviation", "divergence", "time",
    "times", "seconds", "sec", "secs", "ms", "latency", "duration", "memory", "mem", "overhead", "toxicity",
    "hallucination", "hallucinations", "fpr", "fnr", "failures", "misses",
))  # fmt: skip
"""Words of names of which less is better."""
_HIGH_WORDS = frozenset((
    "accuracy", "acc", "top", "f1", "precision", "recall", "sensitivity", "specificity", "auc", "auroc", "auprc",
    "roc", "ap", "ar", "map", "mar", "iou", "miou", "dice", "jaccard", "bleu", "sacrebleu", "rouge", "chrf",
    "meteor", "cider", "spice", "bertscore", "psnr", "ssim", "score", "scores", "reward", "rewards", "rew",
    "return", "returns", "r2", "ndcg", "mrr", "hit", "hits", "pass", "exact", "em", "correct", "success", "win",
    "wins", "winrate", "solved", "kappa", "mcc", "matthews", "correlation", "corr", "spearman", "spearmanr",
    "pearson", "pearsonr", "similarity", "cosine", "throughput", "speed", "fps", "qps", "tps", "tflops", "flops",
    "mfu", "hfu", "utilization", "utilisation", "efficiency", "goodput", "quality", "likelihood", "elbo",
    "inception", "agreement", "faithfulness", "helpfulness", "tpr", "tnr", "silhouette",
))  # fmt: skip
"""Words of names of which more is better."""
_VALIDATION = re.compile(r"(?:val|valid|validation|eval|test|dev)_(.+)")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Quantity(NamedTuple):
    """What checkpoints are compared by. `name`: in lower case with `_` between words, without `val_`."""

    name: str
    is_more_better: bool


LOSS = Quantity("loss", False)


def is_more_better(name: str, parameters: Mapping[str, object] | None = None) -> bool:
    """Return whether of the values of a metric the highest is the best, else the lowest.

    What the script compares by comes first, if `parameters`, those of the task by name, say so of this metric. Else the
    words of the name decide: rates such as `tokens_per_second` are to be high, then losses, errors and times low, and
    scores high. Of other names the lowest is the best, as for searches over parameters without a direction.
    """
    if parameters:
        chosen = list_quantities(parameters)[0]
        if str(parameters.get(CHOICE_PARAMETER) or "") and chosen.name == _strip(name):
            return chosen.is_more_better
    plain = _normalize(name)
    if _RATE.search(plain) or name.rstrip().endswith(("/s", "/sec")):
        return True
    words = {*plain.split("_"), *_normalize(_HUMP.sub("_", name)).split("_")}
    words |= {word.rstrip("0123456789") for word in words}
    return not words & _LOW_WORDS and bool(words & _HIGH_WORDS)


def list_quantities(parameters: Mapping[str, object]) -> list[Quantity]:
    """Return what checkpoints may be compared by, the first one first. `parameters`: those of the task, by name."""
    chosen = str(parameters.get(CHOICE_PARAMETER) or "")
    found = [LOSS, *(Quantity(name, True) for name in SCORES)]
    if not chosen or chosen == "None":
        return found
    name = _strip(chosen)
    said = str(parameters.get(DIRECTION_PARAMETER)).lower()
    is_more_better = said in ("true", "1", "1.0") if said in ("true", "false", "1", "0", "1.0", "0.0") else not (
        name.endswith("loss")
    )  # fmt: skip
    return [Quantity(name, is_more_better), *found]


def find_value(values: Mapping[str, float | None], quantity: Quantity) -> tuple[str, float] | None:
    """Return the name and the value that a validation has for the quantity, or else a test; None where neither has."""
    found = None
    for name, value in values.items():
        match = _VALIDATION.fullmatch(_normalize(name))
        if match and match[1] == quantity.name and value is not None and math.isfinite(value):
            if not name.lower().startswith("test"):
                return name, value
            found = name, value
    return found


def find_best(
    rated: Iterable[tuple[str, Mapping[str, float | None]]], quantities: Iterable[Quantity]
) -> tuple[str, str] | None:
    """Return the key that is best, and the name of the value that says so; None where nothing does. `rated`: keys with
    what was measured, the newest first, which wins where two are equal."""
    rows = list(rated)
    for quantity in quantities:
        sign = 1 if quantity.is_more_better else -1
        known = [(sign * found[1], key, found[0]) for key, values in rows if (found := find_value(values, quantity))]
        if known:
            _, key, name = max(known, key=lambda one: one[0])
            return key, name
    return None


def _normalize(name: str) -> str:
    return _SEPARATORS.sub("_", name.lower()).strip("_")


def _strip(name: str) -> str:
    """Return the name of a quantity without its `eval_`."""
    plain = _normalize(name)
    match = _VALIDATION.fullmatch(plain)
    return match[1] if match else plain

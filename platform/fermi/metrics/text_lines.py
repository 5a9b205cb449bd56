"""Parses one printed line into the numbers it names: `iter 10: loss 4.2310, time 12.30ms` has the counter `iter` and
the measures `loss` and `time` (ms). Pure, and linear in the line's length: no expression nests quantifiers, and every
repeated piece that may be followed by another is bounded.

A line's **shape** is the line without what differs from print to print: logging prefixes (dates, levels, ranks, places
in the source), colours, drawn bars, numbers, the width of spaces. Lines of one shape have the same counters and
measures, so shapes are interpreted once and cached. Which lines become curves is decided in `text_patterns`.

Formats that were looked at: `tqdm/std.py` (`format_meter`), Keras 3 `utils/progbar.py`, torchvision's and
pytorch/examples' `ProgressMeter`, Megatron-LM `training.py` (`training_log`), torchtitan `components/metrics.py`,
mmengine `hooks/logger_hook.py`, fairseq `logging/progress_bar.py`, ESPnet2 `train/reporter.py`.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

MAX_LINE_LENGTH = 4096
"""A longer line is no metrics."""
MAX_TOKENS = 64
MAX_NAME_LENGTH = 60
MAX_PREFIXES = 12
_BAR = "\x02"
"""Stands before a bar's position, where the drawn bar was."""

EPISODE, STEP, ITERATION, BATCH, EPOCH, POSITION = 7, 6, 5, 3, 1, 0
"""Kinds of counters, the preferred one first. EPISODE stands before STEP because lines of episodes also say how many
steps an episode took. POSITION: a number without a name at the beginning, or a position in something that has another
name."""

SPLITS: Final = {
    "train": "train", "training": "train", "val": "val", "valid": "valid", "validation": "val", "eval": "eval",
    "evaluation": "eval", "test": "test", "testing": "test", "dev": "dev", "训练": "train", "验证": "val",
    "测试": "test", "评估": "eval",
}  # fmt: skip
_COUNTERS: Final = {
    **dict.fromkeys(("episode", "回合", "回合数"), EPISODE),
    **dict.fromkeys(("step", "steps", "timestep", "timesteps", "步", "步数", "步骤", "全局步"), STEP),
    **dict.fromkeys(
        (
            "iter",
            "iters",
            "iteration",
            "iterations",
            "it",
            "itr",
            "update",
            "updates",
            "round",
            "generation",
            "迭代",
            "迭代次数",
        ),
        ITERATION,
    ),
    **dict.fromkeys(("batch", "batches", "minibatch", "minibatches", "批次", "批"), BATCH),
    **dict.fromkeys(("epoch", "epochs", "ep", "轮次", "轮", "轮数", "周期"), EPOCH),
}
_COUNTER_NAMES: Final = {
    EPISODE: "episode", STEP: "step", ITERATION: "iter", BATCH: "batch", EPOCH: "epoch", POSITION: "position",
}  # fmt: skip
_LISTED: Final = ((" [ ", " ]  "), ("", " :  "))
_PLURALS: Final = frozenset(("steps", "epochs", "iterations", "iters", "batches", "updates"))
_MEASURES: Final = frozenset(
    (
        "loss", "losses", "acc", "accuracy", "ppl", "perplexity", "lr", "reward", "rewards", "rew", "return",
        "returns", "err", "error", "mae", "mse", "rmse", "auc", "auroc", "iou", "miou", "map", "bleu", "rouge",
        "wer", "cer", "score", "precision", "prec", "recall", "kl", "entropy", "psnr", "ssim", "fid", "mfu",
        "hfu", "tflops", "tps", "wps", "ups", "grad", "gnorm", "norm", "nll", "elbo", "bpc", "bpb", "bpd",
        "dice", "objective", "objf", "f1", "损失", "准确率", "精度", "学习率", "奖励", "困惑度", "损失值",
    )
)  # fmt: skip
_NO_MEASURES: Final = frozenset(
    (
        "eta", "remaining", "left", "pid", "port", "seed", "rank", "gpu", "gpus", "device", "devices", "node",
        "nodes", "worker", "workers", "size", "batchsize", "bs", "num", "version", "total", "params",
        "parameters", "id", "date", "elapsed", "threads", "top", "weight", "weights", "decay", "interval",
        "warmup",
    )
)  # fmt: skip
_NO_MEASURES_ANYWHERE: Final = frozenset(("eta", "remaining", "consumed", "seen", "seed", "pid", "elapsed_total"))
_STOP_WORDS: Final = frozenset(
    (
        "a", "an", "the", "with", "and", "at", "for", "in", "on", "of", "to", "is", "was", "are", "has", "had",
        "reached", "got", "current", "now", "after", "from", "by", "about", "around", "over", "then", "so",
        "far", "last", "当前", "为", "是", "第", "共", "到", "的",
    )
)  # fmt: skip
_AVERAGES: Final = frozenset(("avg", "average", "mean", "smoothed"))
_CHINESE: Final = {
    "损失": "loss", "损失值": "loss", "准确率": "accuracy", "精度": "accuracy", "学习率": "lr", "奖励": "reward",
    "困惑度": "ppl", "平均损失": "average_loss", "耗时": "time",
}  # fmt: skip
_FULL_WIDTH = str.maketrans("：，；（）＝｜【】％。、　", ":,;()=|[]%., ")
_BOX = str.maketrans("│┃", "||")

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|[()][A-Z0-9])")
_DRAWN_BAR = re.compile(r"[━╸╺─█▉▊▋▌▍▎▏▒░■□]{1,400}|\[[=>.#*-]{4,400}\]")
_PATH = re.compile(r"(?<![\w/)\]])(?:\.{0,2}/|~/|[a-z]{2,6}://)[\w.][^\s'\",;)\]]{0,1000}")
_THIN_BAR = re.compile(
    r"\d{1,3}% [━─╸╺]{1,80} {1,3}(\d{1,12})/(\d{1,12})(?: [\d.]{1,9}[A-Za-z]{0,4}/[a-z]{1,3})?"
    r"(?: [\d:.]{1,9}s?(?:<([\d:.]{1,9})s?)?)?"
)
"""Of Ultralytics (`utils/tqdm.py`): `16% ━━────────── 1/6 3.2s/it 4.4s<15.8s`."""
_GLUED_LINE = re.compile(r"\](?=\[?\d\d[\d:/.-]{3,17}[ ,T]|\[?[A-Z]{4,8}[\]: ])")
_KERAS_TIMING = re.compile(r"(?:(\d{1,9})s|(\d{1,4}(?::\d\d){1,2})) \d{1,9}(?:us|µs|ms|s)/(?:step|epoch)")
_WRAPPED = re.compile(
    r"\b(?:tensor|[Aa]rray|(?:np|numpy)\.float\d\d)\( ?"
    r"([-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:e[-+]?\d{1,4})?|nan|inf))(?:, [^()\n]{0,200})?\)"
)
"""A single number as PyTorch, JAX and NumPy print it: `tensor(2.3026, grad_fn=<NllLossBackward0>)`."""
_CONTAINER = re.compile(r"(\w{1,40})\[$")
_SPACES = re.compile(r"\s+")
_DIGITS = re.compile(r"\d+")

_LEVEL = r"(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|NOTICE|SUCCESS|debug|info|warning|Info)"
_NOT_A_SPLIT = (
    r"(?!(?i:train|val|valid|test|eval|dev|epoch|step|iter|batch|training|validation|evaluation|update)[\]\s/:])"
)
_PREFIX = re.compile(
    "|".join(
        (
            r"[\s|:>•-]{1,80}",
            r"\[?\d{4}[-/]\d\d[-/]\d\d(?:[T ,]{1,2}\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
            r"\]?(?![\w/])",
            r"\[?\d\d/\d\d(?:/\d{4})?[ -]{1,3}\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?\]?(?!\w)",
            r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?(?=[\s|])",
            r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,9}\d{1,15} [\w.]{1,80}:\d{1,6}\]",
            r"\[[IWEFD] [\w: .-]{1,60}\]",
            r"V?LOG(?:\[\d\])? \(\S{1,200}\)(?= )",
            r"(?:[A-Z][a-z]{2},? )?(?:[A-Z][a-z]{2} [ \d]\d|[ \d]?\d [A-Z][a-z]{2}(?: \d{4})?),? {1,3}\d\d:\d\d:\d\d"
            r"(?:[.,]\d{1,9})?(?: \d{4}\b)?(?= )",
            rf"{_LEVEL}:[\w.]{{1,80}}:",
            rf"\[?{_LEVEL}\]?(?![\w])",
            rf"[A-Za-z_][\w.]{{0,60}} [-|] (?={_LEVEL}\b)",
            r"\[(?:[Rr]ank|RANK|GPU|gpu|local_rank|default|worker)[ _:=]{0,2}(?P<bracket>\d{1,6})\]",
            r"(?:[Rr]ank|GPU|gpu)[ _]?(?P<colon>\d{1,6}):",
            r"\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>:",
            r"\([\w ]{0,40}pid=\d{1,9}[^()]{0,80}\)",
            r"(?:[\w.<>]{1,80}:[\w.<>]{1,80}|\w{1,40}(?:\.\w{1,40}){1,6}):\d{1,6} -(?= )",
            r"\[?[\w./-]{1,120}\.py:\d{1,6}(?::[\w<>]{1,80})?\]?",
            r"\([\w.]{1,80}:\d{1,6}\)",
            rf"\[{_NOT_A_SPLIT}[A-Za-z_][\w.-]{{0,60}}\]",
            r"(?:root|main|__main__|[A-Za-z_]\w{0,40}(?:\.\w{1,40}){1,6})(?= [-|] |:\s)",
        )
    )
)
_RATE = r"[A-Za-z]{1,12}/(?:s|sec|second|it|step|iter|batch|min|epoch|gpu|GPU|day)(?:/[A-Za-z]{1,8})?"
_GLUED = (
    rf"{_RATE}|/s(?:ec)?(?:/(?:gpu|GPU|device|rank))?|ms|us|µs|ns|secs?|s|mins?|hrs?|h|%|[KMGT]i?B|[kKMGTB]|x|dB"
    r"|(?:epoch|batch|iter|step)(?:e?s)?"
)
_SPACED = rf"{_RATE}|ms|us|s|secs?|seconds|mins?|minutes|hours|%|[KMGT]i?B|dB"
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_.@/-])("
    r"\d{1,4}(?::\d\d){1,2}(?:\.\d{1,6})?"  # 0:10:00
    r"|\d{1,12}-\d{1,12}(?=batch|iter|step)"  # 1-50batch
    r"|\d{1,15} {0,12}/ {0,12}\d{1,15}(?![\d/]|\.\d)"  # 10/ 100
    r"|[-+]?(?:\d{1,3}(?:,\d{3}){1,6}(?!\d)(?:\.\d{1,30})?|\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?"
    r"|\.\d{1,30}(?:[eE][-+]?\d{1,4})?)"
    r"|[-+]?(?:[nN]a[nN]|NAN|[iI]nf|INF|infinity)(?![A-Za-z])"
    r"(?! (?:iter|step|grad|val|batch|loss|or|in|is|det|found|check))"
    r"|n/a|N/A|None(?![A-Za-z])"
    rf")((?:{_GLUED})(?![A-Za-z0-9_/])| (?:{_SPACED})(?![A-Za-z0-9_/])(?! {{0,3}}[:=]| {{1,3}}[-+]?\d))?"
    r"(?![A-Za-z0-9_/]|\.\d|-\d|:\d)"
)
_SEPARATOR = re.compile(r"[,;|\t\[\]{}()\"=]|\s-+\s|:\s|\.\s|\s{2,}|:$|→")
_LABEL_UNIT = re.compile(r"\(([^()]{1,16})\)$")
_TIME_MARK = re.compile(r"(?<=[A-Za-z]) \(t\)$")
_FUNCTION = re.compile(r"(?<![\w(])[A-Za-z]\((?:[A-Za-z]{1,8}|[A-Za-z]\([A-Za-z]{1,8}\))\)$")
"""A value of a function: `D(x)`, `D(G(z))`."""
_TRAILING_REMARK = re.compile(r" \([A-Za-z ]{1,20}\)$")
_BRACKETS = re.compile(r"\([^()]{0,80}\)")
_UNIT = re.compile(rf"(?:{_GLUED}|{_SPACED}|sec|GB|MB)$")
_WORD = re.compile(r"[A-Za-z]+[0-9]?|[\u4e00-\u9fff]+")
_NAME_PUNCTUATION = re.compile(r"[^\w./@%+-]+")
_TQDM_WITHOUT_TOTAL = re.compile(r"(?<![\w.])(\d{1,15})(?:it|ex|batch|batches|step|steps) \[(\d{1,4}(?::\d\d){1,2}), ?")
_INTEGER = re.compile(r"\d{1,18}$")
_RATE_NOUNS: Final = frozenset(
    (
        "img", "image", "images", "imgs", "sample", "samples", "tok", "token", "tokens", "seq", "seqs",
        "sequences", "frame", "frames", "example", "examples",
    )
)  # fmt: skip
_FACTORS: Final = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_NOT_AVAILABLE = ("n/a", "N/A", "None")
_SUFFIX = "~"
"""Stands in shapes for one of these: `1.2k` and `3.4M` are of one shape."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A number of a line that may count its lines. `index`: of the number in the line."""

    index: int
    kind: int
    label: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure that a line names. `strong`: by its name a measure of training."""

    index: int
    name: str
    unit: str
    strong: bool
    ratio: bool = False
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What lines of one shape have in common. `split`: evaluation lines' `val`, `test`, …; `eta`: the index of the time
    left; `names`: for each number of the line the name of its counter or measure, or an empty string; `listed`: the
    line begins as XGBoost's, LightGBM's and CatBoost's, `[12]<tab>` or `12:<tab>`."""

    key: str
    counters: Sequence[Counter]
    measures: Sequence[Measure]
    split: str
    eta: int
    names: Sequence[str]
    listed: bool

    @property
    def strong(self) -> bool:
        return any(one.strong for one in self.measures)


@dataclass(slots=True)
class Line:
    """A parsed line. `seconds_left`: of the bar, if the line is one."""

    shape: Shape
    tokens: list[str]
    gaps: list[str]
    rank: int | None = None
    seconds_left: float | None = None
    values: dict[str, float | None] = field(default_factory=dict)

    def template(self) -> str:
        """Return the line with the names of its numbers in braces."""
        pieces = [self.gaps[0]]
        for index, name in enumerate(self.shape.names):
            pieces.append(f"{{{name}}}" if name else "{}")
            pieces.append(self.gaps[index + 1])
        return _SPACES.sub(" ", "".join(pieces).replace(_BAR, "")).strip()


def clean_text(line: bytes) -> str:
    """Return the line as text: no colours, ASCII punctuation."""
    text = line.decode("utf-8", "replace").replace(_BAR, " ").replace("\b", "")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if not text.isascii():
        text = text.translate(_FULL_WIDTH).translate(_BOX)
    return text


def strip_prefix(text: str) -> tuple[str, int | None]:
    """Return the text without a logging prefix, and the rank that the prefix names."""
    at, rank = 0, None
    for _ in range(MAX_PREFIXES):
        found = _PREFIX.match(text, at)
        if found is None or found.end() == at:
            break
        number = found["bracket"] or found["colon"] or found["mpi"]
        rank = int(number) if number else rank
        at = found.end()
    return text[at:], rank


def parse_line(text: str) -> Line | None:
    """Return the numbers of a line, as `clean_text` returns it; None if it has none, or is no line of metrics."""
    if len(text) > MAX_LINE_LENGTH:
        return None
    text, rank = strip_prefix(text)
    text, left = cut_bar(text)
    if "/" in text:
        text = _PATH.sub("", text)
    if "r(" in text or "y(" in text or "float" in text:
        text = _WRAPPED.sub(r"\1", text)
    parts = _TOKEN.split(text, MAX_TOKENS)
    tokens = parts[1::3]
    if not tokens:
        return None
    gaps = parts[0::3]
    units = [(unit or "").strip() for unit in parts[2::3]]
    gaps[-1] = _TRAILING_REMARK.sub("", gaps[-1])
    kinds = "".join(_classify(token) for token in tokens)
    shape = _interpret(
        kinds, tuple(_SUFFIX if unit in _FACTORS else unit for unit in units), tuple(map(_normalize_spaces, gaps))
    )
    line = Line(shape, tokens, [gap + unit for gap, unit in _shift_units(gaps, parts[2::3])], rank, left)
    for one in shape.measures:
        token = tokens[one.index]
        if token in _NOT_AVAILABLE:
            continue
        if one.ratio:
            part, total = (float(number) for number in token.split("/"))
            line.values[one.name] = part / total if total else None
        else:
            value = parse_number(token)
            factor = _FACTORS.get(units[one.index], 1.0) / (
                1e9 if one.unit == "GB" and units[one.index] in _FACTORS else 1.0
            )
            if one.name.endswith("_avg") and value is not None and value <= 0 < (line.values.get(one.name[:-4]) or 0):
                continue  # `loss: 0.21 (-0.04)`: a change
            line.values[one.name] = value * factor if value is not None and factor != 1.0 else value
    if left is None and shape.eta >= 0:
        line.seconds_left = parse_duration(tokens[shape.eta], units[shape.eta])
    return line


def _normalize_spaces(gap: str) -> str:
    """Return the text between two numbers without the spaces that pad these; wide ones inside of it separate labels."""
    gap = gap.strip()
    if "  " in gap or "\t" in gap:
        gap = _WIDE.sub("  ", gap)
    return f" {gap} " if gap else ""


_WIDE = re.compile(r"[ ]?\t\s*|\s{2,}")


def _shift_units(gaps: Sequence[str], units: Sequence[str | None]) -> list[tuple[str, str]]:
    """Return each gap with the unit of the number before it in front."""
    return [("", gaps[0]), *((unit or "", gap) for unit, gap in zip(units, gaps[1:], strict=True))]


def _classify(token: str) -> str:
    if ":" in token:
        return "D"
    if "/" in token and token[0] not in "nN":
        return "F"
    if "-" in token[1:] and "e" not in token and "E" not in token:
        return "R"
    return "N"


def parse_number(token: str) -> float | None:
    """Return the token's number; None where it is not finite or not available."""
    try:
        value = float(token.replace(",", ""))
    except ValueError:
        return None
    return value if value - value == 0 else None


def parse_integer(token: str) -> int | None:
    """Return the token as a count; None if it is none."""
    token = token.replace(",", "")
    return int(token) if _INTEGER.match(token) else None


def parse_position(token: str) -> tuple[int, int] | None:
    """Return the position and the total (0: not known) of a counter's token."""
    if "/" in token:
        part, _, total = token.partition("/")
        found = parse_integer(part.strip()), parse_integer(total.strip())
        return (found[0], found[1]) if found[0] is not None and found[1] is not None else None
    if "-" in token[1:]:
        token = token.partition("-")[2]
    value = parse_integer(token)
    return (value, 0) if value is not None else None


def parse_duration(token: str, unit: str = "") -> float | None:
    """Return the seconds that `1:02:03`, `02:03` or a number with a unit stand for."""
    if ":" in token:
        seconds = 0.0
        for part in token.split(":"):
            seconds = seconds * 60 + float(part)
        return seconds
    factor = {"s": 1, "sec": 1, "secs": 1, "seconds": 1, "m": 60, "min": 60, "mins": 60, "h": 3600, "ms": 1e-3}
    value = parse_number(token)
    return value * factor[unit] if value is not None and unit in factor else None


def split_glued_lines(text: str) -> list[str]:
    """Return the text in pieces: a bar has no line feed, so what a logger prints next stands directly behind it."""
    found = _GLUED_LINE.search(text) if "%|" in text else None
    return [text[: found.end()], text[found.end() :]] if found else [text]


def cut_bar(text: str) -> tuple[str, float | None]:
    """Return the text without a drawn bar and its timing, and the seconds that the bar says are left. The bar's
    position stays, in brackets: `Epoch 1 [10/100] loss=2.3`."""
    at = text.find("%|")
    if at >= 0:
        end = text.find("|", at + 2)
        begin = text.find("[", end) if end >= 0 else -1
        close = text.rfind("]")
        if 0 <= begin < close:
            described = text[:at].rstrip("0123456789. ").rstrip(": ")
            timing, _, rest = text[begin + 1 : close].partition(", ")
            rest = rest.partition(", ")[2]
            left = timing.partition("<")[2]
            seconds = parse_duration(left) if re.fullmatch(r"\d{1,4}(?::\d\d){1,2}", left) else None
            return f"{described} [{_BAR}{text[end + 1 : begin].strip()}] {rest}{text[close + 1 :]}", seconds
    if "% " in text and (found := _THIN_BAR.search(text)):
        left_seconds = parse_duration(found[3], "s") if found[3] else None
        return f"{text[: found.start()].rstrip(' :')} [{_BAR}{found[1]}/{found[2]}] {text[found.end() :]}", left_seconds
    found = _TQDM_WITHOUT_TOTAL.search(text)
    if found:
        rest = text[found.end() :].rstrip("] ").partition(", ")[2]
        return f"{text[: found.start()]} [it {found[1]}] {rest}", None
    if not text.isascii() or "[=" in text or "[>" in text:
        text = _DRAWN_BAR.sub(" ", text)
    if "/step" in text or "/epoch" in text:
        timing_found = _KERAS_TIMING.search(text)
        if timing_found:
            token = timing_found[2] or timing_found[1]
            left_seconds = parse_duration(token, "s")
            return f"{text[: timing_found.start()].rstrip()} {text[timing_found.end() :].lstrip()}", left_seconds
    return text, None


@lru_cache(4096)
def _interpret(kinds: str, units: tuple[str, ...], gaps: tuple[str, ...]) -> Shape:
    """Return what the numbers between the gaps are. Pure; one call per shape."""
    skeleton = "\x00".join((kinds, *units, *(_DIGITS.sub("#", gap) for gap in gaps)))
    key = hashlib.blake2b(skeleton.encode("utf-8", "replace"), digest_size=5).hexdigest()
    return _Interpreter(kinds, units, gaps).interpret(key)


class _Interpreter:
    """Names the numbers of a line from left to right."""

    def __init__(self, kinds: str, units: Sequence[str], gaps: Sequence[str]) -> None:
        self._kinds, self._units, self._gaps = kinds, units, gaps
        self._counters: list[Counter] = []
        self._found: list[tuple[int, str, str, str, bool, bool, bool]] = []
        self._eta = -1
        # results of an evaluation (`* Acc@1 …`: pytorch/examples, imagenet/main.py; torchvision's references)
        self._section = "val" if gaps[0].lstrip().startswith("* ") else ""
        self._line_split = self._carried = ""

    def interpret(self, key: str) -> Shape:
        for index in range(len(self._kinds)):
            self._name(index)
        sections = {section for *_, section, _, _, _ in self._found if section}
        tells_train = len(sections - {"train"}) > 0 and "train" in sections
        measures: dict[str, Measure] = {}
        for index, name, unit, section, strong, ratio, weak in self._found:
            if section and (section != "train" or tells_train) and not _has_split(name):
                name = f"{section}_{name}"
            measures.setdefault(name, Measure(index, name, unit, strong, ratio, weak))
        names = [""] * len(self._kinds)
        for counter in self._counters:
            names[counter.index] = counter.label
        for name, one in measures.items():
            names[one.index] = name
        first = self._counters[0].kind if self._counters else -1
        listed = first == POSITION and (self._gaps[0], self._gaps[1][:4]) in _LISTED
        splits = {_get_split(name) for name in measures}
        split = next(iter(splits)) if len(splits) == 1 else ""
        split = "" if split == "train" or listed else split
        return Shape(key, tuple(self._counters), tuple(measures.values()), split, self._eta, tuple(names), listed)

    def _name(self, index: int) -> None:
        gap, after, kind, unit = self._gaps[index], self._gaps[index + 1], self._kinds[index], self._units[index]
        label, label_unit, dropped = _split_label(gap)
        if label.split()[-1:] and label.split()[-1].startswith("-"):  # an option of a command: --epochs 3
            return
        if gap.rstrip().endswith("=="):  # an expression
            return
        self._enter_section(dropped)
        words = [word.lower() for word in _WORD.findall(label)]
        unit = unit or label_unit
        counter = self._counter_kind(index, label, words, kind, unit, gap, after)
        if counter is not None:
            lead = label.split()[:-1]
            self._carried = _make_name([w for w in lead if w.lower() not in _COUNTERS])
            if not _is_strong(self._carried):
                self._carried = _find_carried(dropped) if not self._counters else ""
            for word in words:
                self._enter_section(word)
            if counter != POSITION or words:
                self._section = self._section or next((SPLITS[w] for w in words if w in SPLITS), "")
            self._counters.append(Counter(index, counter, _COUNTER_NAMES[counter]))
            return
        if kind in "DR" or any(word in _NO_MEASURES_ANYWHERE for word in words):
            if any(word in ("eta", "remaining", "left") for word in words) and (kind == "D" or unit):
                self._eta = index
            return
        carried, self._carried = self._carried, ""
        self._measure(index, gap, after, label, words, unit, kind, dropped, carried)

    def _counter_kind(
        self, index: int, label: str, words: list[str], kind: str, unit: str, gap: str, after: str
    ) -> int | None:
        if kind == "D":
            return None
        trailing = unit.rstrip("s") if unit.rstrip("s") in ("epoch", "step", "iter") else ""
        trailing = "batch" if unit in ("batch", "batches") else trailing
        if trailing and not [word for word in words if word not in _STOP_WORDS]:
            return _COUNTERS[trailing]
        if kind == "R" and trailing:
            return _COUNTERS[trailing]
        if unit or kind == "R":
            return None
        if _BAR in gap:
            return BATCH if kind == "F" and any(one.kind == EPOCH for one in self._counters) else POSITION
        if words:
            last = words[-1]
            token = label.split()[-1].lower() if label.split() else ""
            counted = last in _COUNTERS and "per" not in words
            if counted and len(words) > 1 and words[-2] in _MEASURES and ("_" in token or "/" in token):
                counted = False  # loss_step, loss/epoch
            if counted and "/" in token and "time" not in words and not _has_counting_scope(words):
                counted = False
            if counted and _COUNTERS[last] == EPOCH and words[0] in ("n", "num", "max"):
                counted = False  # n_ep, max_epochs
            if counted:  # env_episode=4, env_step=60: the step counts
                return ITERATION if _COUNTERS[last] == EPISODE and len(words) > 1 else _COUNTERS[last]
            opened = [word for word in words if word in _COUNTERS]
            if opened and all(word in _COUNTERS or word in SPLITS for word in words):  # Epoch(train) [1]
                return _COUNTERS[opened[0]]
            if not [word for word in words if word not in _STOP_WORDS]:
                found = _WORD.match(after.lstrip())
                word = found[0].lower() if found else ""
                if word in _COUNTERS:
                    return _COUNTERS[word]
                return self._chinese_counter(after)
            if kind == "N" and all(word in SPLITS for word in words) and after.strip() == "[":
                return EPOCH  # Train: 0 [ 50/1251
            if kind == "F" and not any(_is_strong(word) for word in words):
                return BATCH if gap.rstrip().endswith("[") and self._counters else POSITION
            return None
        first = [one.kind for one in self._counters] == [POSITION] and self._gaps[0].strip() == "["
        if kind == "F" and index == 1 and first and gap.strip() == "][":  # [epoch/epochs][batch/batches]
            self._counters = [Counter(0, EPOCH, "epoch")]
            return BATCH
        if kind == "F":
            return BATCH if self._counters and self._counters[-1].kind == EPOCH else POSITION
        if index == 1 and first and gap.strip() == "," and after.lstrip()[:1] == "]":  # [epoch, batch]
            self._counters = [Counter(0, EPOCH, "epoch")]
            return BATCH
        found = _WORD.match(after.lstrip())
        if found and found[0].lower() in _COUNTERS:
            rest = after.lstrip()[found.end() :].lstrip(" ")
            if not rest[:1].isalpha() and rest[:1] not in ("=", "/"):
                return _COUNTERS[found[0].lower()]
        if index == 0 and gap.strip() in ("", "[", "(", "#") and after.lstrip()[:1] in (":", "]", ")", "|", ",", ""):
            return POSITION
        return None

    @staticmethod
    def _chinese_counter(after: str) -> int | None:
        for word, kind in _COUNTERS.items():
            if not word.isascii() and after.startswith(word):
                return kind
        return None

    def _enter_section(self, text: str) -> None:
        for word in _WORD.findall(text):
            split = SPLITS.get(word.lower())
            if split:
                self._section = split

    def _measure(
        self, index: int, gap: str, after: str, label: str, words: list[str], unit: str, kind: str, dropped: str,
        carried: str,
    ) -> None:  # fmt: skip
        before = self._found[-1] if self._found else None
        in_brackets = "(" in gap[-6:] and ")" in after[:4]
        if before and (
            ("(" in gap and after.lstrip()[:1] in (")", ",") and not words)
            or (words and all(word in _AVERAGES for word in words))
        ):
            adjacent = before[0] == index - 1
            if adjacent and kind == "N" and (not unit or unit == before[2]) and not before[1].endswith("_best"):
                self._append(index, f"{before[1]}_avg", before[2], weak=True)
            return
        if before and words and words[-1] == "best" and len(words) == 1:
            self._append(index, f"{before[1]}_best", unit or before[2], weak=True)
            return
        if (in_brackets and not words) or gap.endswith("#"):
            return
        name = _make_name(label.split())
        if words and all(word in SPLITS for word in words):
            base = _drop_split(before[1]) if before and _has_split(before[1]) else ""
            lead = [w for w in dropped.replace(":", " ").split()[-2:] if _is_strong(w.lower())]
            base = base or _make_name(lead[-1:])
            name = f"{SPLITS[words[-1]]}_{base}" if base else name
        if not name:
            name = carried
        if not name and "/" in unit and unit.split("/")[0].lower() in _RATE_NOUNS:
            name = unit.lower()
        if not name or (kind == "F" and not _is_strong(name)):
            return
        follows = _WORD.match(after.lstrip())
        if follows and follows[0].lower() in _PLURALS:  # after 3 epochs
            return
        last = words[-1] if words else ""
        if last in _NO_MEASURES or name in ("total", "v_num"):
            return
        if _is_counter_name(words):
            return
        explicit = gap.rstrip(" [('\"").endswith((":", "="))
        container = _CONTAINER.search(dropped)
        if container and any(name == one[1] for one in self._found):  # loss[loss=0.9, …], tot_loss[loss=0.8, …]
            outer = container[1].lower()
            name = outer if outer.endswith(name) else f"{outer}_{name}"
        self._append(index, name, unit, kind == "F", weak=not explicit)

    def _append(self, index: int, name: str, unit: str, ratio: bool = False, *, weak: bool) -> None:
        if unit == _SUFFIX:
            unit = "GB" if "mem" in name else ""
        strong = _is_strong(name) or ("/" in unit and unit.split("/")[0].lower() in _RATE_NOUNS)
        weak = weak or bool(unit and not strong and "/" not in unit)
        self._found.append((index, name[:MAX_NAME_LENGTH], unit, self._section, strong, ratio, weak))


def _find_carried(dropped: str) -> str:
    """Return the measure that the words before a counter name: `Training loss (for one batch) at step 0: 93.1`."""
    words = _BRACKETS.sub(" ", dropped).split()
    name = _make_name(words) if len(words) <= 5 else ""
    return name if _is_strong(name) else ""


def _has_counting_scope(words: Sequence[str]) -> bool:
    return any(word in ("global", "trainer", "total") for word in words)


def _is_counter_name(words: Sequence[str]) -> bool:
    return len(words) == 1 and words[0] in _COUNTERS


def _split_label(gap: str) -> tuple[str, str, str]:
    """Return the words directly before a number, the unit among them, and the text before these words."""
    text = gap.rstrip(" \t:=>#'\"`([{<≈~*")
    unit = ""
    if text.endswith(")"):
        if function := _FUNCTION.search(text):
            return function[0], "", text[: function.start()]
        text = _TIME_MARK.sub("_time", text)  # open_clip: `Data (t): 0.006`
    found = _LABEL_UNIT.search(text)
    if found:
        if _UNIT.match(found[1]) and found[1] not in SPLITS:
            unit, text = found[1], text[: found.start()].rstrip()
        else:
            text = f"{text[: found.start()]} {found[1]}"
    at = 0
    for separator in _SEPARATOR.finditer(text):
        at = separator.end()
    return text[at:], unit, text[:at]


def _make_name(words: Sequence[str]) -> str:
    """Return the name that the words of a label make: lower case, joined, without stop words around them."""
    words = list(words)[-5:]
    if len(words) == 1 and _FUNCTION.match(words[0]):
        return words[0]
    while words and (words[0].lower() in _STOP_WORDS or (not words[0].isascii() and words[0] in _COUNTERS)):
        words = words[1:]
    while words and words[-1].lower() in _STOP_WORDS:
        words = words[:-1]
    if len(words) > 1 and words[-1].lower() in SPLITS:
        words = [words[-1], *words[:-1]]
    name = _NAME_PUNCTUATION.sub("_", "_".join(words).lower()).strip("_-./+%")
    if not name.isascii():
        name = _translate(name)
    return name[:MAX_NAME_LENGTH] if any(letter.isalpha() for letter in name) else ""


def _translate(name: str) -> str:
    for chinese, split in (("训练", "train"), ("验证", "val"), ("测试", "test")):
        if name.startswith(chinese) and name[2:].lstrip("_") in _CHINESE:
            return f"{split}_{_CHINESE[name[2:].lstrip('_')]}"
    return _CHINESE.get(name, name)


@lru_cache(4096)
def _is_strong(name: str) -> bool:
    name = name.lower()
    words = _WORD.findall(name)
    if any(word in _MEASURES or word.rstrip("0123456789") in _MEASURES for word in words):
        return True
    if any(word.endswith("loss") and word != "gloss" for word in words) or name.startswith("loss"):  # LossPi, CTCLoss
        return True
    if not name.isascii() and any(word in name for word in _CHINESE):
        return True
    return "learning_rate" in name or "tokens/s" in name or "samples/s" in name or "tokens_per_s" in name


def _get_split(name: str) -> str:
    return next((SPLITS[word] for word in _WORD.findall(name) if word in SPLITS), "")


def _has_split(name: str) -> bool:
    return bool(_get_split(name))


def _drop_split(name: str) -> str:
    return "_".join(word for word in name.split("_") if word not in SPLITS)


def has_numbers(text: str) -> bool:
    """Return True if the text has a number that may be a value."""
    return _TOKEN.search(text) is not None


def get_counter_kind(name: str) -> int | None:
    """Return the kind of counter that a column's name is; None: it is none."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] not in _COUNTERS or any(word not in _COUNTERS and word != "global" for word in words):
        return None
    return _COUNTERS[words[-1]]


def make_column_name(cell: str) -> str:
    """Return the name of a column of a table."""
    return _make_name(cell.split())


def is_measure(name: str) -> bool:
    """Return True if the name is one of training's measures."""
    return _is_strong(name)


def is_measure_column(name: str) -> bool:
    """Return True if a column of that name may be a curve."""
    words = [word.lower() for word in _WORD.findall(name)]
    return bool(words) and words[-1] not in _NO_MEASURES and not _NO_MEASURES_ANYWHERE & set(words)


def is_duration(cell: str) -> bool:
    """Return True if the cell is a time, a date or nothing."""
    return cell in ("-", "–", "?") or all(part.isdigit() for part in cell.split(":"))


def parse_cell(cell: str, name: str = "") -> tuple[float | None, str] | None:
    """Return the value and unit of a table's cell that is one number; None if it is none. `name`: of its column."""
    found = _TOKEN.fullmatch(cell[1:-1] if cell.startswith("[") and cell.endswith("]") else cell)
    if found is None or _classify(found[1]) != "N":
        return None
    value, unit = parse_number(found[1]), (found[2] or "").strip()
    factor = _FACTORS.get(unit)
    if factor and "mem" in name:
        factor, unit = factor / 1e9, "GB"
    elif factor:
        unit = ""
    return value * factor if value is not None and factor else value, unit


def cut_table_bar(text: str) -> tuple[str, tuple[int, int] | None]:
    """Return the text before a drawn bar, and the bar's position."""
    if "%|" not in text and "% " not in text:
        return text, None
    before, _, rest = cut_bar(text)[0].partition(f"[{_BAR}")
    return before.rstrip(": "), parse_position(rest.partition("]")[0])

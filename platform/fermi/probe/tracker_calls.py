"""What the hooks for experiment trackers share: replacing a method, and records of numbers and parameters.

A hook records what a public method is given, then calls the method. It imports no tracker, reads no value that the
tracker would not read, and never changes arguments or results.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import records

if TYPE_CHECKING:
    from .rank import ProgressWriter

    Noted = dict[str, float] | None
    """Numbers that a call has recorded, by their simplified names."""

STEP_NAMES = ("step", "global_step", "trainer/global_step", "train/global_step", "iter", "iteration")
"""Names of values that are the step at which the others are logged; the first that is there counts."""
MAX_DEPTH = 8
MAX_NAMES = 1000
MAX_PARAMETERS = 5000
"""Of one process."""
MAX_PARAMETER_LENGTH = 500
MAX_EXACT = 1 << 53

_OTHER = re.compile(r"[^a-z0-9]+")
_SECRET = re.compile(
    r"(^|[^a-z])((api|access|secret|private|wandb|comet|swanlab)_?key|secret|passw(or)?d|credentials?|"
    r"(auth|hf|hub|access|api|bearer|wandb|refresh)_?token|^token)$",
    re.IGNORECASE,
)


class _Calls(threading.local):
    def __init__(self) -> None:
        self.noted: list[dict[str, float]] = []


latest_steps: dict[str, int] = {}
"""By source."""
_calls = _Calls()
"""Of this thread: what the calls have recorded that are under way."""


def observe_calls(place: Any, name: str, note: Callable[..., Noted]) -> None:
    """Replace the function `name` of a class or module by one that calls `note` with the same arguments first. What
    `note` returns is not recorded again by trackers that the function calls. Raises AttributeError if there is no such
    function."""
    function = getattr(place, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            noted = note(*args, **kwargs)
        except Exception:  # another version than those that are known, or values that cannot be read
            noted = None
        if not noted:
            return function(*args, **kwargs)
        _calls.noted.append(noted)
        try:
            return function(*args, **kwargs)
        finally:
            _calls.noted.pop()

    setattr(place, name, call)


def replace_function(place: Any, name: str, new: Callable[..., Any]) -> None:
    """Replace a function of a class or module by one with the same name and documentation. Raises AttributeError if
    there is none."""
    setattr(place, name, functools.wraps(getattr(place, name))(new))


class CallRecorder:
    """Records what is logged to one kind of tracker. `separator`: between the names of nested dictionaries, as the
    tracker shows them."""

    def __init__(self, source: str, pulse: ProgressWriter, separator: str = ".") -> None:
        self.source, self.pulse, self.separator = source, pulse, separator
        self.counts: dict[object, int] = {}
        self.known: dict[str, object] = {}

    def record_values(
        self, values: Mapping[Any, Any], step: object = None, counter: int | None = None, *, waits: bool = True
    ) -> Noted:
        """Record the numbers among the values, and return them. `counter`: the tracker's own step, where neither the
        call nor the values have one; `waits`: False leaves out what would have to be copied from a GPU."""
        found = list(iterate_items(values, self.separator))
        numbers: dict[str, float] = {}
        for name, value in found:
            number = to_number(value, waits=waits)
            if number is not None:
                numbers[name] = number
        at = latest_steps[self.source] = self.find_step(numbers, step, counter)
        for name in STEP_NAMES:
            numbers.pop(name, None)
        if not numbers:
            return None
        own = (
            {name: value for name, value in numbers.items() if not _is_noted(name, value)} if _calls.noted else numbers
        )
        if own:
            records.add_record({"source": self.source, "step": at, "values": own})
        return {simplify_name(name): value for name, value in numbers.items()}

    def record_value(self, name: str, value: object, step: object = None) -> Noted:
        """Record one number under its name, and return it."""
        number = to_number(value)
        if number is None:
            return None
        if not (_calls.noted and _is_noted(name, number)):
            at = self.find_step({}, step, None if step is not None else self.count_call(name))
            records.add_record({"source": self.source, "step": at, "values": {name: number}})
        return {simplify_name(name): number}

    def record_parameters(self, values: object, prefix: str = "") -> None:
        """Record configuration, as far as it has changed: texts, numbers and booleans as they are, all else as text.
        What looks like a secret is left out."""
        changed: dict[str, object] = {}
        for name, value in iterate_items(to_mapping(values), self.separator, prefix):
            plain = to_parameter(value)
            if plain is None or name.startswith("_") or _SECRET.search(name) or self.known.get(name) == plain:
                continue
            if name in self.known or len(self.known) < MAX_PARAMETERS:
                self.known[name] = changed[name] = plain
        if changed:
            records.add_record({"source": self.source, "parameters": changed})

    def find_step(self, numbers: Mapping[str, float], step: object = None, counter: int | None = None) -> int:
        """Return the step of a call: the one that it is given, that its values name, the optimizer's steps so far, or
        the tracker's own counter."""
        given = to_number(step)
        if given is None:
            given = next((numbers[name] for name in STEP_NAMES if name in numbers), None)
        if given is not None:
            return int(given)
        if self.pulse.steps > 0:
            return self.pulse.steps
        return self.count_call(None) if counter is None else counter

    def count_call(self, key: object) -> int:
        """Return how often it was called with this key before."""
        if len(self.counts) >= MAX_NAMES and key not in self.counts:
            return 0
        self.counts[key] = self.counts.get(key, -1) + 1
        return self.counts[key]


def to_number(value: Any, *, waits: bool = True) -> float | None:
    """Return a number of Python, or of one element of NumPy, PyTorch and the like; None for all else, booleans among
    them. `waits`: False for none that would have to be copied from a GPU."""
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is int:
        return int(value) if -MAX_EXACT < value < MAX_EXACT else float(value)
    if value is None or kind is bool or kind is str:
        return None
    shape, item = getattr(value, "shape", None), getattr(value, "item", None)
    if shape is not None and item is not None:
        if any(side != 1 for side in shape) or not (waits or is_on_host(value)):
            return None
        value = item()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return to_number(int(value) if isinstance(value, int) else float(value))
    return None


def is_on_host(value: object) -> bool:
    """Return True for values whose number can be read without waiting for a GPU."""
    device = getattr(value, "device", None)
    if callable(device):  # JAX before 0.4.31
        device = device()
    kind = getattr(device, "type", None) or getattr(device, "platform", None) or device
    return kind is None or kind == "cpu"


def to_mapping(values: object) -> Mapping[Any, Any]:
    """Return what a tracker takes as configuration as a mapping: a mapping, the result of `argparse`, an object with
    attributes."""
    if isinstance(values, Mapping):
        return values
    if callable(to_dict := getattr(values, "to_dict", None)):
        found = to_dict()
        return found if isinstance(found, Mapping) else {}
    return getattr(values, "__dict__", {})


def iterate_items(values: Mapping[Any, Any], separator: str, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the first MAX_NAMES names and values; names of nested mappings are joined."""
    left = MAX_NAMES
    waiting: list[tuple[str, Iterator[tuple[Any, Any]]]] = [(prefix, iter(list(values.items())))]
    while waiting and left:
        before, items = waiting[-1]
        for key, value in items:
            name = f"{before}{separator}{key}" if before else str(key)
            if isinstance(value, Mapping):
                if len(waiting) < MAX_DEPTH:
                    waiting.append((name, iter(list(value.items()))))
                break
            left -= 1
            yield name, value
            if not left:
                return
        else:
            waiting.pop()


def to_parameter(value: object) -> object:
    """Return the value of a parameter: a text, number or boolean; None for what has no short text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)[:MAX_PARAMETER_LENGTH]
    number = to_number(value, waits=False)
    if number is not None or hasattr(value, "shape"):
        return number
    try:
        return str(value)[:MAX_PARAMETER_LENGTH]
    except Exception:  # the script's own class
        return None


def simplify_name(name: str) -> str:
    """Return the name in lower case, with `_` for all that is no letter or digit."""
    return _OTHER.sub("_", name.lower()).strip("_")


def _is_noted(name: str, value: float) -> bool:
    """Return True for a number that a call above this one has recorded, perhaps by a shorter name (`loss` for
    `train/loss`)."""
    plain = simplify_name(name)
    return any(
        value == known and (plain.endswith(other) or other.endswith(plain))
        for noted in _calls.noted
        for other, known in noted.items()
    )

"""Resource quantities ("500m", "4Gi") as numbers."""

import functools
from collections import Counter
from decimal import Decimal
from typing import Any

_SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9),
             "T": Decimal(10**12), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30),
             "Ti": Decimal(2**40)}  # fmt: skip


@functools.lru_cache(4096)
def number(text: str | int) -> Decimal:
    text = str(text)
    digits = text.rstrip("kKMGTimun")
    return Decimal(digits) * _SUFFIXES[text[len(digits) :]]


def requests(pod_spec: dict[str, Any]) -> Counter[str]:
    """What the scheduler counts: the containers together, or the largest init container; and one pod."""
    total: Counter[str] = Counter()
    for container in pod_spec["containers"]:
        total.update(_of(container))
    for container in pod_spec.get("initContainers") or []:
        for name, value in _of(container).items():
            total[name] = max(total[name], value)
    total["pods"] += 1
    return total


def _of(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: number(value) for name, value in asked.items()}

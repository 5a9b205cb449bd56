"""Tables of documentation pages that are generated from code, in each language (`make schema` writes them).

A table stands between `<!-- generated: NAME -->` and `<!-- end -->`. `TABLES` names what there is.
"""

import os
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from scripts.translations import TABLE_BLOCK_PATTERN

ROOT = Path(__file__).resolve().parents[1]

KIND_HEADS = {
    "en": ("kind", "what happened", "level", "in the bell of", "also notified when over"),
    "zh": ("类型", "发生了什么", "级别", "通知谁（铃铛）", "恢复时也通知"),
}
KIND_WORDS = {
    "en": {
        "owner": "owner", "maintainers": "maintainers", "operators": "operators", "passes": "yes", "and": ", ",
    },
    "zh": {
        "owner": "所有者", "maintainers": "项目维护者", "operators": "运维人员", "passes": "是", "and": "、",
    },
}  # fmt: skip
METRIC_HEADS = {"en": ("of", "metrics"), "zh": ("对象", "指标")}
METRIC_WORDS = {
    "en": {
        "and": ", ", "unit": " ({})", "B": "bytes", "node": "a node", "gpu": "each GPU",
        "network": "each network interface", "disk": "each disk that training uses", "rank": "each rank",
    },
    "zh": {
        "and": "、", "unit": "（{}）", "B": "字节", "B/s": "字节/秒", "W": "瓦",
        "node": "节点", "gpu": "每个 GPU", "network": "每个网络接口", "disk": "训练所用的每个磁盘", "rank": "每个 rank",
    },
}  # fmt: skip
COMMAND_HEADS = {"en": ("command", "what it does"), "zh": ("命令", "用途")}


def format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    head = [*head]
    lines = [_format_row(head), "|" + "---|" * len(head), *map(_format_row, rows)]
    return "".join(f"{line}\n" for line in lines)


def _format_row(cells: Iterable[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def list_notification_kinds(lang: str) -> str:
    """Return the table of the kinds of notifications."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
    django.setup()
    from apps.notices.kinds import INCIDENT_KINDS, make_kind_code
    from fermi.messages import render_text

    words = KIND_WORDS[lang]
    rows = [
        (
            f"`{name}`",
            render_text(make_kind_code(name), lang)[1],
            str(kind.level.value),
            words["and"].join(words[who] for who in ("owner", "maintainers", "operators") if getattr(kind, who)),
            words["passes"] if kind.passes else "",
        )
        for name, kind in INCIDENT_KINDS.items()
    ]
    return format_table(KIND_HEADS[lang], rows)


def list_metrics(lang: str) -> str:
    """Return the table of what telemetry measures: a row for each subject, metrics of one unit together."""
    from fermi.telemetry.metrics import METRICS

    words = METRIC_WORDS[lang]
    rows = []
    for subject in dict.fromkeys(metric.subject for metric in METRICS.values()):
        named = [(name, metric.unit) for name, metric in METRICS.items() if metric.subject == subject]
        cells = [
            words["and"].join(f"`{name}`" for name, _ in group)
            + (words["unit"].format(words.get(unit, unit)) if unit else "")
            for unit, group in groupby(named, key=lambda one: one[1])
        ]
        rows.append((words[subject], words["and"].join(cells)))
    return format_table(METRIC_HEADS[lang], rows)


def list_commands(lang: str) -> str:
    """Return the table of all commands, with the example that each brings."""
    from fermi.cli.registry import COMMANDS, make_summary_code
    from fermi.cli.texts import find_sentence

    rows = [
        (f"`{entry.example or f'fermi {name}'}`", find_sentence(make_summary_code(name), lang))
        for name, entry in COMMANDS.items()
    ]
    return format_table(COMMAND_HEADS[lang], rows)


TABLES: dict[str, Callable[[str], str]] = {
    "notification-kinds": list_notification_kinds,
    "metrics": list_metrics,
    "commands": list_commands,
}
PAGES = {ROOT / "docs" / folder / f"{name}.md": lang
         for name in ("cli", "notifications", "telemetry") for folder, lang in (("", "en"), ("zh", "zh"))}  # fmt: skip


def fill_tables(text: str, lang: str) -> str:
    """Return the page with its tables as the code has them. Raises KeyError for a table that nothing generates."""
    return TABLE_BLOCK_PATTERN.sub(lambda found: found[1] + TABLES[found[2]](lang) + found[3], text)

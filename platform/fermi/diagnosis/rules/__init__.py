"""Rules from known lines to cause and action, in `*.toml` beside this module and in each project's own file.

    [PORT_IN_USE]                                   the code
    lines = ["Address already in use{}port {port:int}"]     known lines, see `line_patterns`; each may bring params. One
                                                    of ours without any is chosen by what a runner saw (`root_cause`)
    details = ["held by {holder}"]                  of ours: more params from a known line; alone they match nothing
    level = "fail"                                  or `warn`
    actions = ["CHOOSE_OTHERS", {do = "INSTALL", what = "{module}"}]     of `diagnosis.actions`
    elsewhere = true                                not caused by the script: a repetition is no crash loop
    follows = true                                  a consequence of another rank's end: explains only where nothing
                                                    else does
    instead = [{where = "emulated", code = "NODE_WITHOUT_GPU"}]   of ours: reported by another code where the platform
                                                    knows this of the job (`diagnosis.facts`)

A project's file may also name printed lines that are points of curves (`fermi.metrics.known_patterns`):

    [[metric]]
    line = "iter {step}: loss {loss}, time {}ms"      `{step}`, `{iter}`, `{epoch}`, `{batch}` count; `{}` is left out

Texts: `[PORT_IN_USE.en]` and `.zh` with `message` and `hint`, as in `fermi.messages`; in a project's own rules one
`message` and one `hint`, in the language that its people read. Beside a rule's own placeholders they may name `rank`,
`node` and `at`.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from fermi.diagnosis import Level
from fermi.diagnosis.actions import ACTIONS, ActionCode
from fermi.diagnosis.rules.line_patterns import METRIC_NAME, LinePattern, RuleError, parse_pattern

FOLDER = Path(__file__).parent
PROJECT_RULE = "PROJECT_RULE"
"""The code of what a project's own rule found; `rule`, `message` and `hint` say which and what."""
KNOWN_PARAMS = frozenset({"rank", "node", "at"})
METRICS = "metric"
METRIC_COUNTERS = frozenset({"step", "iter", "epoch", "batch"})
METRIC_TOTALS = frozenset({"total", "epochs"})
MAX_METRICS = 50
MAX_RULES, MAX_LINES, MAX_TEXT_LENGTH, MAX_BYTES = 200, 20, 1000, 64 << 10
_CODE = re.compile(r"[A-Z][A-Z0-9_]{1,39}$")
_KEYS = frozenset({"lines", "level", "actions", "elsewhere", "follows", "message", "hint"})
_WHERE = re.compile(r"\(at line (\d+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. `message`, `hint`: of a project's own."""

    code: str
    lines: Sequence[LinePattern]
    details: Sequence[LinePattern] = ()
    level: Level = Level.FAIL
    actions: Sequence[Mapping[str, str]] = ()
    elsewhere: bool = False
    follows: bool = False
    instead: Sequence[Mapping[str, str]] = ()
    message: str = ""
    hint: str = ""

    @property
    def own(self) -> bool:
        return bool(self.message)


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that matched. `params`: from the placeholders. `at`: the index of the line that matched best."""

    rule: Rule
    params: Mapping[str, str]
    at: int
    weight: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Something wrong with a project's rules. `line`: from 1 on, in the file."""

    line: int
    code: str
    params: Mapping[str, Any]


@cache
def load_rules() -> tuple[Rule, ...]:
    """Return the platform's own rules."""
    found: list[Rule] = []
    for path in sorted(FOLDER.glob("*.toml")):
        table = tomllib.loads(path.read_text("utf-8"))
        found += [_build_rule(code, entry) for code, entry in table.items()]
    return tuple(found)


def match_rules(
    rules: Iterable[Rule], lines: Sequence[str], begin: int = 0, crash: tuple[int, int] = (0, 0)
) -> Match | None:
    """Return the best match: a project's own rule before ours, a line of the `crash` (its lines, from and to) before
    other lines, a cause before a consequence, the pattern that covers more of the line first. Lines before `begin` are
    ignored. None: no rule matches."""
    text = "\n".join(lines[begin:])
    best: Match | None = None
    for rule in rules:
        found = _match_rule(rule, text, lines, begin, crash)
        if found and (best is None or _match_key(found, crash) > _match_key(best, crash)):
            best = found
    return best


def _match_key(match: Match, crash: tuple[int, int]) -> tuple[bool, bool, bool, int]:
    return match.rule.own, not match.rule.follows, crash[0] <= match.at < crash[1], match.weight


def _match_rule(rule: Rule, text: str, lines: Sequence[str], begin: int, crash: tuple[int, int]) -> Match | None:
    params: dict[str, str] = {}
    best: tuple[bool, int, int] | None = None
    of_crash = range(max(begin, crash[0]), min(crash[1], len(lines)))
    known: list[int] = []
    for one in rule.lines:
        if one.first not in text:
            continue
        for index in (*of_crash, *range(begin, len(lines))):
            if one.first in lines[index] and (taken := one.match(lines[index])) is not None:
                params = {**taken, **params}
                known.append(index)
                found = (crash[0] <= index < crash[1], one.weight, -index)
                best = max(best, found) if best else found
                break
    for detail in rule.details:
        params = {**next(filter(None, (detail.match(lines[index]) for index in known)), {}), **params}
    return Match(rule, params, -best[2], best[1]) if best else None


def select_rule(rule: Rule, conditions: Mapping[str, Any]) -> Rule:
    """Return the more specific rule where its condition holds, or the rule itself."""
    code = next((one["code"] for one in rule.instead if one["where"] in conditions), rule.code)
    return next((one for one in load_rules() if one.code == code), rule) if code != rule.code else rule


def parse_rules(text: str) -> tuple[list[Rule], list[RuleProblem]]:
    """Return a project's own rules, and everything that is wrong with them. A wrong rule is left out."""
    if len(text.encode()) > MAX_BYTES:
        return [], [RuleProblem(1, "RULES_TOO_LONG", {"limit": MAX_BYTES})]
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        line = int(where[1]) if where else text.count("\n") + 1
        return [], [RuleProblem(line, "RULES_NOT_TOML", {"detail": str(error)})]
    except RecursionError:
        return [], [RuleProblem(1, "RULES_NOT_TOML", {"detail": "nested too deep"})]
    problems = [
        RuleProblem(_find_metric(text, index), one.code, {"rule": METRICS, **one.params})
        for index, one in _check_metrics(table.pop(METRICS, []))
    ]
    if len(table) > MAX_RULES:
        return [], [RuleProblem(1, "RULES_TOO_MANY", {"limit": MAX_RULES})]
    rules = []
    for code, entry in table.items():
        wrong = list(_check_rule(code, entry))
        line = _find_line(text, code)
        problems += [RuleProblem(line, one.code, {"rule": code, **one.params}) for one in wrong]
        if not wrong:
            rules.append(_build_rule(code, entry))
    return rules, problems


def parse_metric_lines(text: str) -> list[LinePattern]:
    """Return the printed lines that are points of curves, of a project's file; what is wrong is left out."""
    try:
        entries = tomllib.loads(text).get(METRICS, [])
    except (tomllib.TOMLDecodeError, RecursionError):
        return []
    wrong = {index for index, _ in _check_metrics(entries)}
    if not isinstance(entries, list):
        return []
    return [
        parse_pattern(entry["line"], METRIC_NAME)
        for index, entry in enumerate(entries[:MAX_METRICS])
        if index not in wrong
    ]


def _check_metrics(entries: Any) -> Iterator[tuple[int, RuleError]]:
    """Yield the index and what is wrong of each wrong entry."""
    if not isinstance(entries, list) or len(entries) > MAX_METRICS:
        yield 0, RuleError("RULE_VALUE", key=METRICS, allowed=f"1-{MAX_METRICS} [[{METRICS}]]")
        return
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("line"), str):
            yield index, RuleError("RULE_VALUE", key="line", allowed='"iter {step}: loss {loss}"')
            continue
        for key in entry.keys() - {"line"}:
            yield index, RuleError("RULE_KEY", key=key, allowed="line")
        try:
            names = parse_pattern(entry["line"], METRIC_NAME).names
        except RuleError as wrong:
            yield index, wrong
            continue
        if not names & METRIC_COUNTERS or not names - METRIC_COUNTERS - METRIC_TOTALS:
            allowed = ", ".join(f"{{{name}}}" for name in sorted(METRIC_COUNTERS))
            yield index, RuleError("RULE_VALUE", key="line", allowed=f"{allowed} + {{loss}}, …")


def _find_metric(text: str, index: int) -> int:
    """Return the line of the file in which the metric with this index begins."""
    begins = [
        number for number, line in enumerate(text.splitlines(), 1) if line.replace(" ", "").startswith(f"[[{METRICS}]]")
    ]
    return begins[index] if index < len(begins) else 1


def _find_line(text: str, code: str) -> int:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith((f"[{code}]", f"[{code}.", f'["{code}"', f"{code} ", f"{code}=", f"{code}.")):
            return number
    return 1


def _check_rule(code: str, entry: Any) -> Iterator[RuleError]:
    if not _CODE.match(code):
        yield RuleError("RULE_CODE")
    if not isinstance(entry, dict):
        yield RuleError("RULE_IS_NO_TABLE")
        return
    for key in entry.keys() - _KEYS:
        yield RuleError("RULE_KEY", key=key, allowed=", ".join(sorted(_KEYS)))
    if entry.get("level", "fail") not in ("fail", "warn"):
        yield RuleError("RULE_VALUE", key="level", allowed="fail, warn")
    for key in ("elsewhere", "follows"):
        if not isinstance(entry.get(key, False), bool):
            yield RuleError("RULE_VALUE", key=key, allowed="true, false")
    names: set[str] = set()
    lines = entry.get("lines")
    if not isinstance(lines, list) or not 0 < len(lines) <= MAX_LINES or not all(isinstance(o, str) for o in lines):
        yield RuleError("RULE_VALUE", key="lines", allowed=f"1-{MAX_LINES} strings")
    else:
        for line in lines:
            try:
                names |= parse_pattern(line).names
            except RuleError as wrong:
                yield wrong
    for key in ("message", "hint"):
        yield from _check_text(key, entry.get(key, ""), names | KNOWN_PARAMS, needed=key == "message")
    yield from _check_actions(entry.get("actions", []), names)


def _check_text(key: str, text: Any, names: set[str], *, needed: bool) -> Iterator[RuleError]:
    if not isinstance(text, str) or len(text) > MAX_TEXT_LENGTH or (needed and not text.strip()):
        yield RuleError("RULE_VALUE", key=key, allowed=f"1-{MAX_TEXT_LENGTH} letters")
        return
    try:
        blanks = {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    except ValueError:
        yield RuleError("RULE_BRACE", text=text)
        return
    for blank in sorted(blanks - names):
        yield RuleError("RULE_BLANK", key=key, blank=blank, allowed=", ".join(sorted(names)))


def _check_actions(actions: Any, names: set[str]) -> Iterator[RuleError]:
    if not isinstance(actions, list) or len(actions) > MAX_LINES:
        yield RuleError("RULE_VALUE", key="actions", allowed=", ".join(ActionCode))
        return
    for action in actions:
        taken = {"do": action} if isinstance(action, str) else action
        said = isinstance(taken, dict) and all(isinstance(one, str) for one in taken.values())
        if not said or taken.get("do") not in ACTIONS:
            yield RuleError("RULE_VALUE", key="actions", allowed=", ".join(ActionCode))
        else:
            takes = ACTIONS[taken["do"]]
            if odd := taken.keys() - {"do", *takes.needs, *takes.may}:
                allowed = ", ".join((*takes.needs, *takes.may)) or "–"
                yield RuleError("RULE_KEY", key=", ".join(sorted(odd)), allowed=allowed)
            for name, value in taken.items():
                yield from _check_text(name, value, names | KNOWN_PARAMS, needed=True)


def _build_rule(code: str, entry: Mapping[str, Any]) -> Rule:
    actions = [{"do": one} if isinstance(one, str) else one for one in entry.get("actions", ())]
    return Rule(
        code,
        tuple(parse_pattern(line) for line in entry.get("lines", ())),
        tuple(parse_pattern(line) for line in entry.get("details", ())),
        Level(entry.get("level", "fail")),
        tuple(actions),
        bool(entry.get("elsewhere") or entry.get("follows")),
        bool(entry.get("follows")),
        tuple(entry.get("instead", ())),
        entry.get("message", ""),
        entry.get("hint", ""),
    )

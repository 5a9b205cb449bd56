"""What people read: the text and the advice that belong to each stable code, in each language.

The platform's own texts are in a folder for each language (`languages.py` lists them):

    codes.toml     what the API, tasks' reasons, events and notices say: message and hint by stable code
    cli.toml       what only the command line says
    admin.toml     what only the operators' console says
    actions.toml   what the audit trail calls each action
    guides.toml    long texts: `fermi quickstart`, the README of scripts for starting by hand

A framework or an engine, also
one from outside of the project, brings the texts of its own codes: in `texts.toml` inside its package, or in
`name.toml` beside its single module `name.py`. The registry's line is all that is needed for it to be found. English
has to be there; other languages may be:

    [NEEDS_INFINIBAND.en]
    message = "{node} has no InfiniBand."
    hint = "Choose another node."

    [NEEDS_INFINIBAND.zh]
    message = "{node} 没有 InfiniBand。"
    hint = "请选择其他节点。"

A rule of diagnosis, a module of `fermi.diagnosis`, a command (`fermi.cli.commands`) and the flags of a request
(`fermi/cli/flags.toml`) have theirs beside them in the same shape.

A language's folder may also say a package's codes: whoever translates the platform touches no package. A text that a
language lacks is said in English.

`{count:task|tasks}` is the first word where the parameter `count` is 1, else the second: "{count} {count:task|tasks}".

A text is often the last thing that is made of a row or of an error, for whoever looks at it: it never raises. What is
missing is shown as a dash and logged, because a gap is a fault of ours.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from string import Formatter
from typing import Any

from fermi.characters import escape_hidden
from fermi.messages.languages import DEFAULT, FALLBACK, LANGUAGES, match_language  # noqa: F401 (for others)

MISSING_VALUE = "–"
TIME_PARAMETERS = frozenset({"begins", "ends", "until"})
"""Parameters that are unix seconds, in whichever text they stand."""
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class NestedText:
    """A parameter that is itself a text: the message of `code` in the reader's language. Not for params that are
    stored."""

    code: str
    params: Mapping[str, object] = field(default_factory=dict)


_tables: list[Mapping[str, str]] = []
_folders: list[Path] = []


def register_modules(*tables: Mapping[str, str]) -> None:
    """Register tables of the plug-in registry (name -> module): each of these modules may have texts of its own."""
    _tables.extend(tables)


def register_folder(folder: Path) -> None:
    """Register a folder whose TOML files have texts by code; other keys of a code may stand beside its texts."""
    if folder not in _folders:
        _folders.append(folder)


def has_text(code: str) -> bool:
    """Return whether the code has an English text."""
    return _find_entry(code, FALLBACK) is not None


def render_text(code: str, lang: str, /, **params: object) -> tuple[str, str]:
    """Return the (message, hint) of a code, filled with `params`. A text that `lang` lacks is English; a code without a
    text is returned itself, and the gap is logged. Never raises."""
    found = _find_entry(code, lang) or _find_entry(code, FALLBACK)
    if found is None:
        report_fault("%s has no text", code)
        return code, ""
    entry = _apply_conditions(found, params)
    shown = {
        name: _format_time(value) if name in TIME_PARAMETERS else _format_value(value, lang)
        for name, value in params.items()
    }
    return fill_text(code, entry.get("message", code), shown), fill_text(code, entry.get("hint", ""), shown)


def render_sentence(file_name: str, code: str, lang: str, /, **parts: object) -> str:
    """Return a sentence that only the command line or the operators' console has; the file is `cli` or `admin`, or one
    of a registered folder. Returns the code itself where it has no text."""
    sentence = _find_sentence(file_name, code, lang) or _find_sentence(file_name, code, FALLBACK)
    if sentence is None:
        report_fault("%s has no text in %s", code, file_name)
        return code
    return fill_text(code, sentence, parts) if parts else sentence


def list_sentences(file_name: str, lang: str) -> dict[str, str]:
    """Return all sentences of a file such as `actions`, by code; those that `lang` lacks are English."""
    return {**_load_file(file_name, FALLBACK), **_load_file(file_name, lang)}


def load_guide(name: str, lang: str) -> dict[str, Any]:
    """Return the parts of a long text, such as `readme`, by name. Raises KeyError for an unknown guide."""
    return {**_load_file("guides", FALLBACK)[name], **_load_file("guides", lang).get(name, {})}


def fill_text(code: str, sentence: str, values: Mapping[str, object]) -> str:
    """Return the sentence filled with the values. Never raises: a missing value is shown as a dash and logged."""
    try:
        return sentence.format_map(values)
    except (LookupError, AttributeError, ValueError, TypeError):
        return _SafeFormatter(code).vformat(sentence, (), values)


def list_texts(lang: str) -> dict[str, dict[str, Any]]:
    """Return every code that has a text in `lang`, with its texts."""
    brought = {code: said[lang] for texts in _load_registered() for code, said in texts.items() if lang in said}
    return {**brought, **_load_file("codes", lang)}


def _find_entry(code: str, lang: str) -> dict[str, Any] | None:
    if found := _load_file("codes", lang).get(code):
        return found
    return next((said[lang] for texts in _load_registered() if lang in (said := texts.get(code, {}))), None)


def _find_sentence(file_name: str, code: str, lang: str) -> str | None:
    if found := _load_file(file_name, lang).get(code):
        return str(found)
    beside = (texts.get(code, {}).get(lang) for texts in map(_load_folder, _folders))
    return next((str(entry["message"]) for entry in beside if entry), None)


@cache
def _load_file(name: str, lang: str) -> dict[str, Any]:
    path = FOLDER / lang / f"{name}.toml"
    return tomllib.loads(path.read_text("utf-8")) if lang in LANGUAGES and path.is_file() else {}


def _load_registered() -> Iterator[dict[str, dict[str, Any]]]:
    yield from (_load_module_texts(module) for table in _tables for module in table.values())
    yield from map(_load_folder, _folders)


@cache
def _load_folder(folder: Path) -> dict[str, dict[str, Any]]:
    return {code: texts for path in sorted(folder.glob("*.toml")) for code, texts in _read_file(path).items()}


@cache
def _load_module_texts(module: str) -> dict[str, dict[str, Any]]:
    """Return the texts beside a module, by code and language. The module's own code is not run."""
    try:
        spec = find_spec(module)
        if spec is None or not spec.has_location or spec.origin is None:
            return {}
        package, path = spec.submodule_search_locations, Path(spec.origin)
        path = path.with_suffix(".toml") if package is None else path.with_name("texts.toml")
        return _read_file(path) if path.is_file() else {}
    except Exception as error:  # whatever a package from outside does while it is looked for
        report_fault("the texts of %s cannot be read: %s", module, error)
        return {}


def _read_file(path: Path) -> dict[str, dict[str, Any]]:
    return {
        code: {lang: _complete_entry(entry) for lang, entry in said.items() if isinstance(entry, dict)}
        for code, said in tomllib.loads(path.read_text("utf-8")).items()
    }


def _complete_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"hint": "", **entry, "message": str(entry["message"])}


def report_fault(problem: str, *about: object) -> None:
    """Log a text that is missing or lacks a parameter. Our own tests raise here instead (tests/conftest.py)."""
    import logging  # slow, and seldom needed: the command line starts here

    logging.getLogger(__name__).error(problem, *about)


class _SafeFormatter(Formatter):
    """Formatter that fills what it can and shows a dash for the rest."""

    def __init__(self, code: str) -> None:
        self.code = code

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (LookupError, AttributeError, TypeError):
            report_fault("the text of %s lacks its parameter %s", self.code, field_name)
            return MISSING_VALUE, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        one, counts, many = format_spec.partition("|")
        if counts:
            return one if str(value) == "1" else many
        try:
            return str(super().format_field(value, format_spec))
        except (ValueError, TypeError):
            return str(value)


def _apply_conditions(entry: Mapping[str, Any], params: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the entry with its variants from `when` applied: where a parameter is given (`left`), has a value
    (`"signal=SIGBUS"`), or several conditions hold (`"at+again"`)."""
    for condition, instead in entry.get("when", {}).items():
        if all(_is_given(one, params) for one in condition.split("+")):
            entry = {**entry, **instead}
    return entry


def _is_given(condition: str, params: Mapping[str, object]) -> bool:
    name, _, value = condition.partition("=")
    return name in params and (not value or str(params[name]) == value)


def _format_time(value: object) -> object:
    """Return unix seconds as text in UTC, because readers may be in any time zone; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    with suppress(ValueError, OverflowError, OSError):  # beyond the calendar
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return value


def _format_value(value: object, lang: str) -> object:
    """Return a parameter as people write it: `true` instead of `True`, `56 / 70` for a tuple of choices, a dash for
    None, and the sentence of a stored reason (`{"code": …, params…}`)."""
    if isinstance(value, NestedText):
        return render_text(value.code, lang, **value.params)[0]
    if isinstance(value, Mapping) and isinstance(code := value.get("code"), str):
        return render_text(code, lang, **{name: one for name, one in value.items() if name != "code"})[0]
    if isinstance(value, tuple):
        return " / ".join(str(_format_value(item, lang)) for item in value) or MISSING_VALUE
    if isinstance(value, str):
        return escape_hidden(value)
    return MISSING_VALUE if value is None else str(value).lower() if isinstance(value, bool) else value

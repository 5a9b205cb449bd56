"""The texts of a framework and of its options in the reader's language, by code (see `fermi.messages`).

    ABOUT_PYTORCH_DDP             describes the framework `pytorch-ddp`
    TITLE_BATCH_SHARE             the option `batchShare`, for people; its hint describes it
    TITLE_BATCH_SHARE_BY_SPEED    its choice `bySpeed`, where the word itself does not say enough

What a framework's module states itself (`Info.description`; `title` and `description` in `OPTIONS`) wins.
"""

import re
from collections.abc import Mapping
from typing import Any

from fermi import messages
from fermi.frameworks.base import Framework


def get_description(framework: Framework, lang: str) -> str:
    """Return the framework's description."""
    return framework.info.description or _find_text("ABOUT", framework.name, lang=lang)[0]


def translate_options(framework: Framework, lang: str) -> dict[str, Any]:
    """Return the schema of the options with titles. `enumTitles`: choice -> title, for those that have one."""
    rules = framework.options["properties"]
    return {**framework.options, "properties": {name: _add_titles(name, rule, lang) for name, rule in rules.items()}}


def _add_titles(name: str, rule: Mapping[str, Any], lang: str) -> dict[str, Any]:
    title, hint = _find_text("TITLE", name, lang=lang)
    choices = {str(choice): _find_text("TITLE", name, str(choice), lang=lang)[0] for choice in rule.get("enum", ())}
    said = {"title": title, "description": hint, "enumTitles": {word: text for word, text in choices.items() if text}}
    return {**{key: value for key, value in said.items() if value}, **rule}


def _find_text(*parts: str, lang: str) -> tuple[str, str]:
    """Return message and hint of a code; empty where there are none."""
    words = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]", "_", part).upper() for part in parts)
    code = "_".join(words)
    return messages.render_text(code, lang) if messages.has_text(code) else ("", "")

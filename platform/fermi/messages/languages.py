"""The languages of texts. A new one needs a line here, a folder of texts beside this file, and the console's catalogue
(`frontend/src/i18n`)."""

import re
from typing import NamedTuple


class Language(NamedTuple):
    """One language."""

    name: str
    """The language's name in itself."""
    django: str
    """The code that Django uses for its own translations."""


LANGUAGES = {
    "zh": Language("简体中文", "zh-hans"),
    "en": Language("English", "en"),
}

DEFAULT = "zh"
"""The language of readers who ask for none of these."""

FALLBACK = "en"
"""The language of a text that another language lacks."""


def match_language(tag: str) -> str:
    """Return our code of a tag as browsers, Django or a locale write it (`zh-CN`, `zh-hans`, `zh_CN.UTF-8`,
    `zh@pinyin`), or "" where we do not have the language."""
    code = re.split(r"[-_.@]", tag.lower())[0]
    return code if code in LANGUAGES else ""

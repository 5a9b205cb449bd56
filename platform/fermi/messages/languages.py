"""The languages that people read: a line here, a folder of texts beside this file, and the console's catalogue
(`frontend/src/i18n`)."""

import re
from typing import NamedTuple


class Language(NamedTuple):
    name: str
    """Its own for itself."""
    django: str
    """Its code in Django, which has translations of its own."""


LANGUAGES = {
    "zh": Language("简体中文", "zh-hans"),
    "en": Language("English", "en"),
}

DEFAULT = "zh"
"""For whoever asks for none of them."""

FALLBACK = "en"
"""For a text that a language lacks."""


def known(tag: str) -> str:
    """The language of a tag as browsers, Django or a locale write it (`zh-CN`, `zh-hans`, `zh_CN.UTF-8`,
    `zh@pinyin`); "" where there is none of it."""
    code = re.split(r"[-_.@]", tag.lower())[0]
    return code if code in LANGUAGES else ""

"""Escaping of characters that are invisible or change how others are displayed, as file names may have them.

A name like `report<U+202E>fdp.exe` is displayed as `reportexe.pdf`. Names are therefore displayed escaped; API answers
and what programs read stay unchanged. The console does the same (`frontend/src/lib/escape-name.ts`).
"""

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and U+FFF9 to U+FFFB."""
_BLANK = "\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u2800"
"""Spaces and line breaks that look like another space; not U+3000, which has its own width."""
_CONTROLS = "\0-\x1f\x7f-\x9f"

BIDI_PATTERN = re.compile(f"[{_BIDI}]")
_HIDDEN_IN_NAMES = re.compile(f"[{_CONTROLS}{_IGNORABLE}{_BLANK}\ud800-\udfff\\\\]")
_HIDDEN = re.compile(f"[{_IGNORABLE}\u2028\u2029]")


def escape_name(name: str) -> str:
    r"""Return a file name for display: `\u202e` for an invisible character and `\\` for a backslash, so that two
    different names never look the same."""
    return _HIDDEN_IN_NAMES.sub(_escape, name)


def escape_bidi(text: str) -> str:
    """Return a text of several lines in which the characters that change the order of others are escaped."""
    return text if text.isascii() else BIDI_PATTERN.sub(_escape, text)


def escape_hidden(text: str) -> str:
    """Return a text in which invisible characters are escaped, except spaces, controls and line breaks."""
    return text if text.isascii() else _HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] == "\\":
        return "\\\\"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\u{{{code:x}}}"

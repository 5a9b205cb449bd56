r"""Escape sequences for terminals in text of programs that nobody vouches for: which show colours, and which do more.

A log may hold any of them. Colours and the like (SGR, `ESC [ … m`; ECMA-48, 8.3.117) change how text looks, nothing
else. The others can move the cursor, erase lines, set the window's title, and write the clipboard (OSC 52, xterm's
`ctlseqs`), so nothing but SGR reaches a terminal.
"""

import re

SGR = rb"\x1b\[[0-9;:]{0,64}m"
"""A code for colours or decorations. Anything longer sets more than a terminal reads (xterm: 30 parameters)."""

_SEQUENCE = (
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: ECMA-48, 5.4
    rb"|[PX\]^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # a control string (DCS, SOS, OSC, PM, APC) up to its end: 5.6
    rb"|[ -/]*[0-Z\\`-~])"  # others of one character, or with intermediate ones
)
_CONTROLS = rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]"
"""C0, delete and C1 (which some terminals obey in UTF-8 as well), without the tab and the line feed."""

_HIDDEN = re.compile(_SEQUENCE + rb"|" + _CONTROLS)
_HIDDEN_BUT_COLOURS = re.compile(rb"(?!%b)(?:%b|%b)" % (SGR, _SEQUENCE, _CONTROLS))
_SUSPECT = bytes({*range(0x20), 0x7F, 0xC2} - {ord("\t"), ord("\n")})
"""Bytes without which there is nothing to remove."""


def remove_codes(line: bytes) -> bytes:
    """Return the text without escape sequences and without control characters other than the tab and the line feed. A
    sequence that never ends loses only its first character."""
    return line if len(line.translate(None, _SUSPECT)) == len(line) else _HIDDEN.sub(b"", line)


def keep_colours(text: str) -> str:
    """Return the text with no escape sequence but colours, which end at its end, and without control characters other
    than the tab and the line feed."""
    shown = _HIDDEN_BUT_COLOURS.sub(b"", text.encode(errors="surrogatepass")).decode(errors="surrogatepass")
    return shown + "\x1b[0m" if "\x1b" in shown else shown

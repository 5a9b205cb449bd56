"""Browsers and systems in words, from what a browser says of itself (User-Agent).

Versions of systems are left out: browsers no longer say the true ones.
"""

import re

_BROWSERS = (
    ("WeCom", r"wxwork/(\d+)"),
    ("WeChat", r"MicroMessenger/(\d+)"),
    ("DingTalk", r"DingTalk(?:\(|/)(\d+)"),
    ("Feishu", r"(?:Feishu|Lark)/(\d+)"),
    ("Edge", r"Edg(?:A|iOS|e)?/(\d+)"),
    ("Opera", r"(?:OPR|Opera)/(\d+)"),
    ("Samsung Internet", r"SamsungBrowser/(\d+)"),
    ("QQ Browser", r"QQBrowser/(\d+)"),
    ("Firefox", r"(?:Firefox|FxiOS)/(\d+)"),
    ("Chrome", r"(?:Chrome|CriOS|Chromium)/(\d+)"),
    ("Safari", r"Version/(\d+)\S* (?:Mobile/\S+ )?Safari/"),
)
"""The first that fits: most browsers name the ones that they descend from, too."""
_SYSTEMS = (
    ("Windows", r"Windows"),
    ("iPhone", r"iPhone"),
    ("iPad", r"iPad"),
    ("HarmonyOS", r"HarmonyOS|OpenHarmony"),
    ("Android", r"Android"),
    ("ChromeOS", r"CrOS"),
    ("macOS", r"Macintosh|Mac OS X"),
    ("Linux", r"Linux|X11"),
)


def name_device(user_agent: str) -> str:
    """Return browser and system, such as "Firefox 144 · Windows", as far as they are known; else the text itself."""
    found = []
    for name, pattern in _BROWSERS:
        if match := re.search(pattern, user_agent, re.IGNORECASE):
            found.append(f"{name} {match[1]}")
            break
    found += [name for name, pattern in _SYSTEMS if re.search(pattern, user_agent)][:1]
    return " · ".join(found) or user_agent

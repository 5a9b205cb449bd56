"""Sessions name the browser and the system in words."""

import pytest

from apps.accounts.devices import name_device

KIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
APPLE = "AppleWebKit/605.1.15 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (f"Mozilla/5.0 (X11; Linux x86_64) {KIT} HeadlessChrome/156.0.0.0 Safari/537.36", "Chrome 156 · Linux"),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {KIT} Chrome/143.0.0.0 Safari/537.36", "Chrome 143 · Windows"),
        (f"Mozilla/5.0 (Windows NT 10.0) {KIT} Chrome/143.0.0.0 Safari/537.36 Edg/143.0.0.0", "Edge 143 · Windows"),
        ("Mozilla/5.0 (Windows NT 10.0; rv:144.0) Gecko/20100101 Firefox/144.0", "Firefox 144 · Windows"),
        (f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {APPLE} Version/26.0 Safari/605.1.15", "Safari 26 · macOS"),
        (
            f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) {APPLE} Version/18.5 Mobile/15E148 Safari/604.1",
            "Safari 18 · iPhone",
        ),
        (
            f"Mozilla/5.0 (iPad; CPU OS 18_5 like Mac OS X) {APPLE} CriOS/143.0 Mobile/15E148 Safari/604.1",
            "Chrome 143 · iPad",
        ),
        (f"Mozilla/5.0 (Linux; Android 10; K) {KIT} Chrome/143.0.0.0 Mobile Safari/537.36", "Chrome 143 · Android"),
        (
            f"Mozilla/5.0 (Linux; Android 14; V) {KIT} Version/4.0 Chrome/130.0 Mobile MicroMessenger/8.0.50",
            "WeChat 8 · Android",
        ),
        (f"Mozilla/5.0 (Phone; OpenHarmony 5.0) {KIT} Chrome/114.0.0.0 Safari/537.36", "Chrome 114 · HarmonyOS"),
        ("Mozilla/5.0 (Linux; Android 14)", "Android"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", ""),
    ],
)
def test_a_browser_and_its_system_are_named_in_words(user_agent: str, words: str) -> None:
    assert name_device(user_agent) == words

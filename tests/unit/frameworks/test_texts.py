"""People read texts of every framework and of each of its options, in their own language."""

import pytest

from fermi import messages
from fermi.frameworks import texts
from fermi.planning import plugins


@pytest.mark.parametrize("lang", messages.LANGUAGES)
@pytest.mark.parametrize("name", plugins.FRAMEWORKS)
def test_every_framework_and_every_option_of_it_has_a_text(name: str, lang: str) -> None:
    framework = plugins.get_framework(name)
    assert texts.get_description(framework, lang)
    untitled = [
        option for option, rule in texts.translate_options(framework, lang)["properties"].items() if not rule["title"]
    ]
    assert untitled == []


def test_texts_are_in_the_readers_language() -> None:
    ddp = plugins.get_framework("pytorch-ddp")
    english, chinese = (texts.translate_options(ddp, lang)["properties"]["batchShare"] for lang in ("en", "zh"))
    assert (english["title"], chinese["title"]) == ("Batch shares", "批次的分配")
    assert english["enumTitles"] == {"equal": "equal", "bySpeed": "by GPU speed"}
    assert english["enum"] == chinese["enum"] == ddp.options["properties"]["batchShare"]["enum"]
    assert "enumTitles" not in texts.translate_options(ddp, "en")["properties"]["bucketCapMb"]

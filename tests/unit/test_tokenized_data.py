"""Text becomes a pair of token files, whole or not at all, and a pair is checked before it is used."""

import errno
import hashlib
from array import array
from pathlib import Path
from types import SimpleNamespace

import pytest

from fermi import messages, tokenized_data
from fermi.tokenized_data import (
    DataError,
    TokenizedPair,
    inspect_pair,
    iter_stdlib_files,
    list_text_files,
    tokenize_text,
)


def tokens(path: Path) -> bytes:
    """The text that a token file holds; fails for a token that is not a byte."""
    return bytes(list(array("H", path.read_bytes())))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    for number in range(40):
        path = folder / f"part{number % 4}" / f"{number:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}: 费米\n" * (number + 1), encoding="utf-8")
    return folder


def test_every_byte_of_every_file_becomes_one_token(corpus: Path, tmp_path: Path) -> None:
    made = tokenize_text(corpus, tmp_path / "out")
    texts = [path.read_bytes() for path in list_text_files(corpus)]
    train, valid = tokens(made.train_path), tokens(made.valid_path)
    assert (made.train_tokens, made.valid_tokens) == (len(train), len(valid))
    assert len(train) + len(valid) == sum(map(len, texts))
    for text in texts:
        assert (text in train) != (text in valid)


def test_tokens_are_little_endian_uint16(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab" * 10)
    made = tokenize_text(tmp_path / "a.txt", tmp_path / "out")
    assert made.train_path.read_bytes()[:4] == b"a\0b\0"


def test_the_same_text_gives_the_same_pair(corpus: Path, tmp_path: Path) -> None:
    one, other = tokenize_text(corpus, tmp_path / "one"), tokenize_text(corpus, tmp_path / "other")
    assert one.sha256 == other.sha256
    both = one.train_path.read_bytes() + one.valid_path.read_bytes()
    assert one.sha256 == hashlib.sha256(both).hexdigest()
    assert one.size_bytes == len(both)


def test_a_file_keeps_its_split_when_another_is_added(corpus: Path, tmp_path: Path) -> None:
    before = tokens(tokenize_text(corpus, tmp_path / "out").train_path)
    (corpus / "another.txt").write_text("added\n" * 3)
    after = tokens(tokenize_text(corpus, tmp_path / "out").train_path)
    assert after.replace(b"added\n" * 3, b"") == before


def test_a_single_file_is_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    made = tokenize_text(tmp_path / "a.txt", tmp_path / "out", valid_fraction=0.2)
    assert tokens(made.train_path) == bytes(range(80))
    assert tokens(made.valid_path) == bytes(range(80, 100))


def test_only_files_with_the_given_suffixes_are_read_and_hidden_ones_never(corpus: Path) -> None:
    (corpus / "notes.md").write_text("notes")
    (corpus / ".hidden.md").write_text("hidden")
    (corpus / ".git").mkdir()
    (corpus / ".git" / "config.md").write_text("hidden")
    assert list_text_files(corpus, suffixes=(".md",)) == [corpus / "notes.md"]
    assert len(list_text_files(corpus)) == 41


def test_progress_ends_at_the_total(corpus: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    tokenize_text(corpus, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in list_text_files(corpus))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_the_demo_text_is_the_capped_standard_library(tmp_path: Path) -> None:
    files = list(iter_stdlib_files(max_bytes=1 << 20))
    assert all(path.suffix == ".py" for path in files)
    assert not {part for path in files for part in path.parts} & {"site-packages", "test"}
    assert 0 < sum(path.stat().st_size for path in files) <= 1 << 20
    made = tokenize_text(files, tmp_path)
    assert b"import" in tokens(made.train_path)


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        tokenize_text(tmp_path / "nowhere", tmp_path / "out")
    assert (caught.value.code, caught.value.params) == ("DATA_PATH_MISSING", {"path": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("text", [None, b"", b"x"], ids=["no file", "an empty file", "one byte"])
def test_too_little_text_is_refused(tmp_path: Path, text: bytes | None) -> None:
    (tmp_path / "in").mkdir()
    if text is not None:
        (tmp_path / "in" / "a.txt").write_bytes(text)
    with pytest.raises(DataError, match="no text"):
        tokenize_text(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_is_a_file_is_unwritable(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(DataError) as caught:
        tokenize_text(corpus, tmp_path / "out")
    assert caught.value.code == "DATA_NOT_WRITABLE"


def test_a_too_small_disk_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenized_data.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(DataError) as caught:
        tokenize_text(corpus, tmp_path / "out")
    assert caught.value.code == "DATA_NO_SPACE"
    assert caught.value.params["free_bytes"] == 10
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("failing", ["val.bin", "train.bin"])
def test_a_failed_move_never_leaves_a_mixed_pair(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    out = tmp_path / "out"
    tokenize_text(corpus, out)
    (corpus / "another.txt").write_text("added\n" * 300)
    rename = Path.rename

    def disk_full(self: Path, target: Path) -> Path:
        if self.name == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", disk_full)
    with pytest.raises(DataError) as caught:
        tokenize_text(corpus, out)
    assert caught.value.code == "DATA_NO_SPACE"
    with pytest.raises(DataError, match="does not exist"):
        inspect_pair(out / "train.bin", out / "val.bin")
    assert [path.name for path in out.iterdir()] == ["val.bin"]


def test_files_of_an_interrupted_run_are_removed_by_the_next(corpus: Path, tmp_path: Path) -> None:
    left = tmp_path / "out" / ".tokenising"
    left.mkdir(parents=True)
    (left / "train.bin").write_bytes(b"half")
    tokenize_text(corpus, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train.bin", "val.bin"]


def test_an_existing_pair_is_summarized(tmp_path: Path) -> None:
    train, valid = tmp_path / "a.bin", tmp_path / "b.bin"
    train.write_bytes(b"\1\0\2\0")
    valid.write_bytes(b"\3\0")
    sha256 = hashlib.sha256(b"\1\0\2\0\3\0").hexdigest()
    assert inspect_pair(train, valid) == TokenizedPair(train, valid, 2, 1, 6, sha256, largest_token=3)


@pytest.mark.parametrize(
    ("valid", "code"),
    [(None, "DATA_PATH_MISSING"), (b"", "DATA_EMPTY"), (b"\1\0\2", "DATA_ODD_SIZE")],
)
def test_a_pair_with_an_invalid_file_is_refused(tmp_path: Path, valid: bytes | None, code: str) -> None:
    (tmp_path / "train.bin").write_bytes(b"\1\0")
    if valid is not None:
        (tmp_path / "val.bin").write_bytes(valid)
    with pytest.raises(DataError) as caught:
        inspect_pair(tmp_path / "train.bin", tmp_path / "val.bin")
    assert caught.value.code == code
    assert caught.value.params["path"] == str(tmp_path / "val.bin")


def test_a_folder_in_place_of_a_token_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "val.bin").write_bytes(b"\1\0")
    with pytest.raises(DataError) as caught:
        inspect_pair(tmp_path, tmp_path / "val.bin")
    assert caught.value.code == "DATA_UNREADABLE"


@pytest.mark.parametrize("lang", messages.LANGUAGES)
def test_every_data_error_has_a_message_and_a_hint(lang: str) -> None:
    params = {"path": "/p", "size_bytes": 3, "free_bytes": 1, "needed_bytes": 2, "reason": "why"}
    for code in ("EMPTY", "NOT_WRITABLE", "NO_SPACE", "ODD_SIZE", "PATH_MISSING", "UNREADABLE"):
        message, hint = messages.render_text(f"DATA_{code}", lang, **params)
        assert "/p" in message
        assert hint

import stat
from pathlib import Path

import pytest

from fermi.client import Fermi, NoPlatformError, UnreachableError, config
from fermi.client.config import Config, Endpoint

KEPT = Config(url="https://fermi.example.org", token="kept", language="en")


def local(folder: Path, url: str = "http://127.0.0.1:8123", token: str = "local") -> None:
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "url").write_text(url + "\n")
    (folder / "token").write_text(token + "\n")


def test_arguments_have_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMI_URL", "http://environment")
    monkeypatch.setenv("FERMI_TOKEN", "environment")
    assert config.find_endpoint("http://argument/", "argument") == Endpoint("http://argument", "argument")


def test_environment_variables_override_the_stored_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    config.save_config(KEPT)
    monkeypatch.setenv("FERMI_URL", "http://environment")
    monkeypatch.setenv("FERMI_TOKEN", "environment")
    assert config.find_endpoint() == Endpoint("http://environment", "environment")


def test_the_stored_sign_in_overrides_the_local_platform(empty_home: Path) -> None:
    local(empty_home / "var")
    assert config.find_endpoint() == Endpoint("http://127.0.0.1:8123", "local")
    config.save_config(KEPT)
    assert config.find_endpoint() == Endpoint(KEPT.url, "kept")


def test_the_local_platform_is_found_through_its_data_directory(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local(empty_home / "elsewhere")
    monkeypatch.setenv("FERMI_DATA", str(empty_home / "elsewhere"))
    assert config.find_endpoint() == Endpoint("http://127.0.0.1:8123", "local")


def test_a_stored_token_is_sent_only_to_its_address() -> None:
    config.save_config(KEPT)
    assert config.find_endpoint("http://other.example.org") == Endpoint("http://other.example.org", "")
    assert config.find_endpoint(KEPT.url + "/") == Endpoint(KEPT.url, "kept")


def test_a_missing_address_is_reported(empty_home: Path) -> None:
    with pytest.raises(NoPlatformError):
        Fermi()


def test_an_address_without_a_scheme_is_http() -> None:
    assert config.find_endpoint("localhost:8000").url == "http://localhost:8000"


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(UnreachableError), Fermi("http://[::", retries=0) as fermi:
        fermi.me()


def test_the_file_has_mode_600_from_its_creation(empty_home: Path) -> None:
    config.save_config(KEPT)
    config.save_config(Config(url="http://b", token='t"\\ü', language="zh"))
    assert config.load_config() == Config(url="http://b", token='t"\\ü', language="zh")
    assert stat.S_IMODE(config.get_config_path().stat().st_mode) == 0o600
    assert [file.name for file in config.get_config_path().parent.iterdir()] == ["config.toml"]


def test_an_unreadable_file_is_named() -> None:
    config.get_config_path().parent.mkdir(parents=True)
    config.get_config_path().write_text("url = ")
    with pytest.raises(NoPlatformError, match=r"config\.toml"):
        config.find_endpoint()

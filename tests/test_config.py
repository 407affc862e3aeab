from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from jsonbus.config import CLASSIC, BusConfig, BusSettings, environment_variable, load
from jsonbus.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JSONBUS_INTERFACE")


def test_without_settings_the_defaults_hold() -> None:
    config = load()
    assert config == BusConfig()
    assert (config.group, config.port, config.ttl) == ("239.255.24.16", 2416, 1)
    assert (config.mode, config.master, config.subs_share_delay) == ("delayed", False, None)
    assert config.interface == ("auto",)
    assert config.batching


def test_a_keyword_beats_the_environment_and_the_environment_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JSONBUS_PORT", "5000")
    monkeypatch.setenv("JSONBUS_TTL", "3")
    config = load(port=6000)
    assert (config.port, config.ttl, config.group) == (6000, 3, "239.255.24.16")


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("group", "224.9.9.9", "224.9.9.9"),
        ("interface", "eth0, 10.0.0.7", ("eth0", "10.0.0.7")),
        ("mode", "basic", "basic"),
        ("master", "yes", True),
        ("master", "0", False),
        ("subs_share_delay", "12.5", 12.5),
        ("name", "kitchen", "kitchen"),
        ("workers", "4", 4),
        ("datagram_bytes_max", "9000", 9000),
        ("receive_buffer_bytes", "1000000", 1_000_000),
        ("batching", "off", False),
        ("rate_limit", "10M", 10_000_000),
    ],
)
def test_each_setting_is_also_an_environment_variable(
    monkeypatch: pytest.MonkeyPatch, setting: str, text: str, value: object
) -> None:
    monkeypatch.setenv(environment_variable(setting), text)
    assert getattr(load(), setting) == value


def test_an_empty_environment_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSONBUS_PORT", "")
    assert load().port == 2416


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("JSONBUS_PORT", "many"),
        ("JSONBUS_MASTER", "perhaps"),
        ("JSONBUS_SUBS_SHARE_DELAY", "soon"),
        ("JSONBUS_RATE_LIMIT", "fast"),
    ],
)
def test_an_environment_variable_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=f"{variable} must be .*'{text}'"):
        load()


@pytest.mark.parametrize(
    "settings",
    [
        {"group": "10.0.0.1"},
        {"group": "ff02::1"},
        {"group": "kitchen"},
        {"group": 0xE0000001},
        {"port": 0},
        {"port": 65_536},
        {"port": True},
        {"port": "2416"},
        {"interface": ()},
        {"interface": ""},
        {"interface": ("lo", "")},
        {"interface": 7},
        {"ttl": -1},
        {"ttl": 256},
        {"mode": "loud"},
        {"master": "yes"},
        {"subs_share_delay": -1},
        {"subs_share_delay": float("nan")},
        {"subs_share_delay": float("inf")},
        {"subs_share_delay": "1"},
        {"name": ""},
        {"name": " "},
        {"name": "a\nb"},
        {"name": "\ud800"},
        {"name": "é" * 128},
        {"workers": 0},
        {"workers": 1.5},
        {"datagram_bytes_max": 100},
        {"datagram_bytes_max": 65_508},
        {"receive_buffer_bytes": 0},
        {"batching": 1},
        {"rate_limit": 0},
        {"rate_limit": 999},
        {"rate_limit": -10_000},
        {"rate_limit": True},
        {"rate_limit": float("inf")},
        {"rate_limit": float("nan")},
        {"rate_limit": ""},
        {"rate_limit": "k"},
        {"rate_limit": "10 kB"},
        {"rate_limit": "10T"},
        {"rate_limit": "-10M"},
        {"rate_limit": "nan"},
        {"rate_limit": "9" * 400},
        {"classic": "yes"},
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(settings))} must be "):
        load(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"port": 1},
        {"port": 65_535},
        {"ttl": 0},
        {"ttl": 255},
        {"subs_share_delay": 0},
        {"name": "é" * 127},
        {"interface": "lo"},
        {"interface": ["lo", "192.168.1.4"]},
        {"datagram_bytes_max": 65_507},
        {"rate_limit": 1_000},
        {"rate_limit": "1k"},
    ],
)
def test_a_value_on_the_edge_is_accepted(settings: dict[str, Any]) -> None:
    load(**settings)


@pytest.mark.parametrize(
    ("text", "bytes_s"),
    [
        ("2500", 2_500),
        ("2.5k", 2_500),
        ("10M", 10_000_000),
        ("10m", 10_000_000),
        ("1 G", 1_000_000_000),
        (" 64K ", 64_000),
    ],
)
def test_a_rate_limit_may_be_a_number_or_text_with_a_unit(text: str, bytes_s: int) -> None:
    assert load(rate_limit=text).rate_limit == load(rate_limit=bytes_s).rate_limit == bytes_s
    assert load().rate_limit is None


def test_a_setting_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no such setting: colour"):
        load(**{"colour": "red"})  # type: ignore[misc]


def test_none_is_the_same_as_leaving_a_setting_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSONBUS_PORT", "5000")
    assert load(port=None, master=None, name=None).port == 5000


def test_master_means_mode_master() -> None:
    config = load(master=True)
    assert (config.mode, config.master) == ("master", True)


def test_mode_master_does_not_make_a_master() -> None:
    config = load(mode="master")
    assert (config.mode, config.master) == ("master", False)


def test_a_share_delay_means_mode_delayed() -> None:
    config = load(subs_share_delay=0)
    assert (config.mode, config.subs_share_delay) == ("delayed", 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"master": True, "mode": "basic"},
        {"master": True, "mode": "delayed"},
        {"master": True, "subs_share_delay": 10},
        {"subs_share_delay": 10, "mode": "basic"},
        {"subs_share_delay": 10, "mode": "master"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="leave out one of the two"):
        load(**settings)


def test_environment_variables_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JSONBUS_MASTER", "1")
    monkeypatch.setenv("JSONBUS_MODE", "basic")
    with pytest.raises(ConfigError, match="leave out one of the two"):
        load()


def test_a_keyword_replaces_what_the_environment_says_about_another_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JSONBUS_MASTER", "1")
    assert (load(mode="basic").mode, load(mode="basic").master) == ("basic", False)
    assert load(subs_share_delay=5).mode == "delayed"
    monkeypatch.delenv("JSONBUS_MASTER")
    monkeypatch.setenv("JSONBUS_SUBS_SHARE_DELAY", "5")
    assert load(mode="delayed").subs_share_delay == 5
    assert load(master=True).subs_share_delay is None


def test_classic_changes_the_defaults_and_nothing_that_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JSONBUS_TTL", "2")
    config = load(classic=True, port=5000)
    assert (config.group, config.port, config.ttl) == ("224.1.2.3", 5000, 2)
    assert not config.batching
    monkeypatch.delenv("JSONBUS_TTL")
    monkeypatch.setenv("JSONBUS_CLASSIC", "1")
    assert load() == load(**CLASSIC)


def test_a_configuration_cannot_be_changed() -> None:
    config = load()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1  # type: ignore[misc]


def test_every_field_is_a_setting_and_has_a_variable() -> None:
    fields = {field.name for field in dataclasses.fields(BusConfig)}
    assert BusSettings.__optional_keys__ == fields | {"classic"}
    assert environment_variable("subs_share_delay") == "JSONBUS_SUBS_SHARE_DELAY"

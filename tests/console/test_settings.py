"""The settings file: what it may say, and every mistake in it by line, key and a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_console import cli, settings
from eagle3_console.errors import UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.keys import IDS, KEYS, rebound
from eagle3_console.settings import AlertSettings, Settings
from eagle3_console.tomlfile import FaultyFile
from eagle3_console.ui.keynames import RESERVED, normal, shown
from eagle3_console.ui.themes import DEFAULT, NAMES

FILE = Path("config.toml")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = settings.path()
    file.parent.mkdir(parents=True)
    return file


def faults(text: str) -> list[str]:
    with pytest.raises(FaultyFile) as caught:
        settings.parse(text, FILE)
    return [str(fault) for fault in caught.value.faults]


def test_without_a_file_everything_is_the_default(own: Path) -> None:
    assert settings.load() == Settings()
    assert settings.DEFAULT_THEME == DEFAULT


def test_everything_that_can_be_said() -> None:
    read = settings.parse(
        """
        theme = "eagle-light"
        readonly = true
        mouse = false
        [keys]
        log.follow = "F"
        "log.search" = ["?", "ctrl+f"]
        help = "f1"
        [alerts]
        bell = "error"
        desktop = "osc777"
        desktop_from = "warning"
        webhook = "https://hooks.example/x"
        webhook_from = "error"
        """,
        FILE,
    )
    assert read == Settings(
        theme="eagle-light",
        readonly=True,
        mouse=False,
        keys={"log.follow": "F", "log.search": "question_mark,ctrl+f", "help": "f1"},
        alerts=AlertSettings("error", "osc777", "warning", "https://hooks.example/x", "error"),
    )
    assert read.lines["keys.log.follow"] == 6
    assert read.lines["alerts.desktop"] == 11


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('theme = "eagle-drak"', "config.toml:1: theme: there is no theme 'eagle-drak'; did you mean eagle-dark"),
        ("\nreadonly = 1", "config.toml:2: readonly: must be true or false, not 1"),
        ('them = "nord"', "config.toml:1: them: there is no such key; did you mean theme"),
        ("[alert]", "config.toml:1: alert: there is no such table; did you mean alerts"),
        ("bell = true", "config.toml:1: bell: this key belongs in [alerts]"),
        ("keys = 1", "config.toml:1: keys: must be a table, [keys], not a value"),
        ('[alerts]\ndesktop = "on"', "config.toml:2: alerts.desktop: must be off, osc9 or osc777, not 'on'"),
        ('[alerts]\nwebhook = "x"', "config.toml:2: alerts.webhook: must be an address like https://host/path (what is there is not shown"),
        ('[alerts]\nbell = "loud"', "config.toml:2: alerts.bell: must be true, false, info, warning or error, not 'loud'"),
        ('[alerts]\nwebhook_from = 1', "config.toml:2: alerts.webhook_from: must be info, warning or error, not 1"),
        ('[alerts]\ncommand = "x"', "config.toml:2: alerts.command: there is no such key; there are bell, desktop, desktop_from, webhook, webhook_from"),
        ('[keys]\nlog.folow = "F"', "config.toml:2: keys.log.folow: there is no key with this id; did you mean log.follow"),
        ('[keys]\nhelp = "f99"', "config.toml:2: keys.help: there is no key 'f99'; did you mean 'f9'"),
        ("[keys]\nhelp = []", "config.toml:2: keys.help: must be a key in quotes, like \"F\", or a list of them"),
        ('[keys]\nprobe = "e"', "config.toml:2: keys.probe: the key 'e' is used twice, by extract.start too: move one of them"),
        ('[keys]\nprobe = "ctrl+c"', "config.toml:2: keys.probe: the key 'ctrl+c' cannot be taken: it is the terminal's own"),
        ('[keys]\nprobe = "shift+t"', "config.toml:2: keys.probe: there is no key 'shift+t': write the capital letter 'T'"),
        ('theme = "nord', "config.toml:1: this is no TOML: unterminated string"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_line_key_and_sentence(text: str, said: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith(said)


def test_all_mistakes_are_named_at_once_in_their_order() -> None:
    said = faults('mouse = "no"\n[alerts]\nbell = 1\n[keys]\nx = "y"\n')
    assert [line.split(":")[1] for line in said] == ["1", "3", "5"]


def test_two_keys_may_change_places() -> None:
    read = settings.parse('[keys]\nprobe = "e"\n"extract.start" = "t"\n', FILE)
    table = {key.id: key for key in rebound(read.keys)}
    assert (table["probe"].keys, table["probe"].shown) == ("e", "e")
    assert (table["extract.start"].keys, table["extract.start"].shown) == ("t", "t")


def test_the_own_table_uses_no_key_twice_and_none_that_is_taken() -> None:
    used = [name for key in KEYS for name in key.keys.split(",")]
    assert len(set(used)) == len(used)
    assert not set(used) & set(RESERVED)
    assert all(normal(name) == name for name in used)
    assert len(set(IDS)) == len(KEYS)


@pytest.mark.parametrize(("written", "name", "short"), [("?", "question_mark", "?"), ("esc", "escape", "esc"),
    ("ctrl+f", "ctrl+f", "^f"), ("+", "plus", "+"), ("alt+x", "alt+x", "alt+x"), ("comma", "comma", ",")])  # fmt: skip
def test_names_of_keys(written: str, name: str, short: str) -> None:
    assert normal(written) == name
    assert shown(name) == short


def test_show_says_where_each_value_comes_from(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text('theme = "nord"\n[keys]\n"log.level" = "f2"\n')
    assert cli.main(["config", "show"]) == ExitCode.GOOD
    text = capsys.readouterr().out
    lines = [line.split("#") for line in text.splitlines()]
    origins = {line[0].strip(): line[1].strip() for line in lines if len(line) == 2}
    assert origins['theme = "nord"'] == f"{own}:1"
    assert origins['"log.level" = "f2"'] == f"{own}:3"
    assert origins["mouse = true"] == "default"
    shown_again = settings.parse(text, FILE)
    assert shown_again.theme == "nord"
    assert shown_again.keys["log.level"] == "f2"
    assert set(shown_again.keys) == set(IDS)
    assert cli.main(["config", "show", "--json"]) == ExitCode.GOOD
    assert {row["origin"] for row in json.loads(capsys.readouterr().out)} == {"default", f"{own}:1", f"{own}:3"}


def test_the_webhook_is_shown_to_nobody(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text('[alerts]\nwebhook = "https://hooks.example/T0/s3cr3t"\n')
    for words in (["config", "show"], ["config", "show", "--json"], ["config", "validate"]):
        assert cli.main(words) == ExitCode.GOOD
    own.write_text('[alerts]\nwebhook = "hooks.example/T0/s3cr3t"\n')
    assert cli.main(["config", "validate"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "webhook is set" in said.out
    assert "s3cr3t" not in said.out + said.err
    assert "s3cr3t" not in repr(settings.parse('[alerts]\nwebhook = "https://hooks.example/T0/s3cr3t"\n', FILE))


def test_validate_and_path(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "path"]) == ExitCode.GOOD
    assert capsys.readouterr().out.strip() == str(own)
    assert cli.main(["config", "validate"]) == ExitCode.GOOD
    own.write_text("mouse = 1\n")
    capsys.readouterr()
    assert cli.main(["config", "validate"]) == ExitCode.USAGE
    assert capsys.readouterr().out == f"{own}:1: mouse: must be true or false, not 1\n"
    with pytest.raises(UsageError, match=r"The settings cannot be used:\n.*:1: mouse: must be"):
        settings.load()


def test_the_defaults_load_no_screen(own: Path) -> None:
    program = "import sys; from eagle3_console import settings; settings.load(); print('textual' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert ran.stdout == "False\n", ran.stderr


def test_every_theme_can_be_named() -> None:
    for name in NAMES:
        assert settings.parse(f'theme = "{name}"', FILE).theme == name

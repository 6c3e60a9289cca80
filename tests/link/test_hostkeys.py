"""Trust on first use, against real servers, and files that OpenSSH's own tools agree with."""

from __future__ import annotations

import concurrent.futures
import getpass
import stat
import subprocess
from pathlib import Path

import asyncssh
import pytest

from eagle3_console.link.connect import connect
from eagle3_console.link.hostkeys import look_up, plain_keys, remember, same_fingerprint
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions
from eagle3_console.link.target import parse
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox, new_key, running_sshd, tool


def fingerprint(file: Path) -> str:
    """As ssh-keygen prints it."""
    return subprocess.run(
        [tool("ssh-keygen"), "-lf", str(file)], check=True, capture_output=True, text=True
    ).stdout.split()[1]


def keygen(*words: str | Path) -> None:
    subprocess.run([tool("ssh-keygen"), *map(str, words)], check=True, capture_output=True)


def found(name: str, file: Path) -> bool:
    """Whether OpenSSH finds the host in the file."""
    return subprocess.run([tool("ssh-keygen"), "-F", name, "-f", str(file)], capture_output=True).returncode == 0


async def logs_in(box: SshdBox, options: SshOptions, person: Person | None = None, name: str = "") -> bool:
    async with await connect(parse(name or box.address), options, person or RefusingPrompter()) as link:
        return (await link.run("exit 0", timeout=30)).exit_status == 0


async def test_asked_once_then_known(box: SshdBox, tmp_path: Path) -> None:
    file, person = tmp_path / "new dir" / "known_hosts", Person(host_key=True)
    assert await logs_in(box, options_for(box, known_hosts=file), person)
    assert person.asked == [("host key", f"127.0.0.1:{box.port}", "ED25519", fingerprint(box.known_hosts))]
    assert file.read_text() == box.known_hosts_line
    assert found(f"[127.0.0.1]:{box.port}", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert await logs_in(box, options_for(box, known_hosts=file))


async def test_accepting_new_ones_without_a_question(box: SshdBox, tmp_path: Path) -> None:
    file, person = tmp_path / "known_hosts", Person()
    assert await logs_in(box, options_for(box, known_hosts=file, accept_new=True), person)
    assert person.asked == []
    assert file.read_text() == box.known_hosts_line


async def test_a_pinned_key_needs_no_file_and_writes_none(box: SshdBox, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    for pin in (fingerprint(box.known_hosts), fingerprint(box.known_hosts) + "="):
        assert await logs_in(box, options_for(box, known_hosts=file, host_key=pin))
    assert not file.exists()


async def test_a_pinned_key_of_a_kind_that_the_box_does_not_show_first(tmp_path: Path) -> None:
    rsa = new_key(tmp_path / "rsa", "rsa")
    with running_sshd(getpass.getuser(), tmp_path / "box", f"HostKey {rsa}") as box:
        assert await logs_in(box, options_for(box, host_key=fingerprint(rsa.with_suffix(".pub"))))
        person = Person(host_key=True)
        assert await logs_in(box, options_for(box, known_hosts=tmp_path / "empty"), person)
        assert person.asked[0][2] == "ED25519"
        # only the RSA key is stored: the box is asked for that one
        rsa_only = tmp_path / "rsa only"
        rsa_only.write_text(f"[127.0.0.1]:{box.port} {rsa.with_suffix('.pub').read_text()}")
        assert await logs_in(box, options_for(box, known_hosts=rsa_only))


async def test_a_hashed_file_stays_hashed(box: SshdBox, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("elsewhere " + box.known_hosts_line.split(" ", 1)[1].rstrip("\n"))
    keygen("-H", "-f", file)
    assert await logs_in(box, options_for(box, known_hosts=file), Person(host_key=True))
    lines = file.read_text().splitlines()
    assert [line[:3] for line in lines] == ["|1|", "|1|"]
    assert found(f"[127.0.0.1]:{box.port}", file)
    assert found("elsewhere", file)
    assert await logs_in(box, options_for(box, known_hosts=file))


async def test_a_file_without_a_last_newline_and_with_damage(box: SshdBox, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(b"# mine\nhost1 ssh-rsa AAAAB3broken\n@odd\n\xff\xfe garbage\nhost2 ssh-ed25519")
    assert await logs_in(box, options_for(box, known_hosts=file), Person(host_key=True))
    assert file.read_bytes().endswith(b"\nhost2 ssh-ed25519\n" + box.known_hosts_line.encode())
    assert await logs_in(box, options_for(box, known_hosts=file))


async def test_an_alias_for_the_host_key(box: SshdBox, tmp_path: Path) -> None:
    config, file = tmp_path / "config", tmp_path / "known_hosts"
    config.write_text(
        f"Host gpu\n HostName 127.0.0.1\n Port {box.port}\n User {box.user}\n HostKeyAlias the-box\n UserKnownHostsFile {file}\n"
    )
    options = SshOptions(config_files=(config,), identity_files=(box.identity_file,))
    assert await logs_in(box, options, Person(host_key=True), "gpu")
    assert file.read_text().split()[0] == "the-box"
    assert await logs_in(box, options, name="gpu")


async def test_a_key_known_for_the_plain_name_is_good_on_another_port(box: SshdBox, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("127.0.0.1 " + box.known_hosts_line.split(" ", 1)[1])
    assert await logs_in(box, options_for(box, known_hosts=file))


async def test_another_key_for_the_plain_name_proves_nothing_on_another_port(box: SshdBox, tmp_path: Path) -> None:
    with running_sshd(box.user, tmp_path / "other") as other:
        file, person = tmp_path / "known_hosts", Person(host_key=True)
        file.write_text("127.0.0.1 " + other.known_hosts_line.split(" ", 1)[1])
        assert await logs_in(box, options_for(box, known_hosts=file), person)
        assert [asked[0] for asked in person.asked] == ["host key"]


async def test_a_certificate_of_a_known_authority(tmp_path: Path) -> None:
    authority, key = new_key(tmp_path / "ca"), new_key(tmp_path / "hostkey")
    keygen("-q", "-s", authority, "-I", "box", "-h", "-n", "127.0.0.1", f"{key}.pub")
    with running_sshd(getpass.getuser(), tmp_path / "box", f"HostKey {key}\nHostCertificate {key}-cert.pub") as box:
        file = tmp_path / "known_hosts"
        file.write_text(f"@cert-authority * {(tmp_path / 'ca.pub').read_text()}")
        assert await logs_in(box, options_for(box, known_hosts=file))


@pytest.mark.parametrize("setting", ["none", "/dev/null"])
async def test_a_box_that_shall_not_be_remembered_is_asked_for_every_time(
    box: SshdBox, tmp_path: Path, setting: str
) -> None:
    config = tmp_path / "config"
    config.write_text(f"StrictHostKeyChecking no\nUserKnownHostsFile {setting}\nGlobalKnownHostsFile /dev/null\n")
    options = SshOptions(config_files=(config,), identity_files=(box.identity_file,))
    for _ in range(2):
        person = Person(host_key=True)
        async with await connect(parse(box.address), options, person) as link:
            assert [asked[0] for asked in person.asked] == ["host key"]
            assert "not stored" in link.notes[0]


def test_many_consoles_store_one_line(tmp_path: Path) -> None:
    file = tmp_path / "d" / "known_hosts"
    keys = [asyncssh.generate_private_key("ssh-ed25519").convert_to_public() for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: remember(file, f"host{number % 4}", keys[number % 4]), range(64)))
    lines = file.read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == ["host0", "host1", "host2", "host3"]
    for number, key in enumerate(keys):
        assert look_up([file], f"host{number}", 22).keys == (key,)


def test_names_are_found_as_openssh_does(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    key = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    public = key.export_public_key("openssh").decode()
    file.write_text(f"box,10.0.0.7 {public}*.lab {public}[gw]:2222 {public}")
    assert look_up([file], "BOX", 22).keys == (key,)
    assert look_up([file], "10.0.0.7", 22).keys == (key,)
    assert look_up([file], "a.lab", 22).file == file
    assert look_up([file], "gw", 2222).keys == (key,)
    assert look_up([file], "gw", 22).keys == ()
    assert look_up([file], "box", 2222).keys == ()
    assert plain_keys([file], "box", 2222) == (key,)
    assert look_up([tmp_path / "missing"], "box", 22).keys == ()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        remember(tmp_path / "file" / "known_hosts", "box", key)
    assert (tmp_path / "file").read_text() == ""


def test_fingerprints() -> None:
    assert same_fingerprint("SHA256:abc", "abc=")
    assert not same_fingerprint("SHA256:abc", "SHA256:abd")

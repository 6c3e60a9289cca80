"""The SSH configuration as people have it: aliases, Include, Match, jump hosts, proxy commands."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

import pytest

from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions, find_route
from eagle3_console.link.target import parse
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox, running_sshd

RELAY = """import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while data := s.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
print("a word on stderr", file=sys.stderr)
while data := os.read(0, 65536):
    s.sendall(data)
"""


async def says(name: str, options: SshOptions, person: Person | None = None) -> str:
    async with await connect(parse(name), options, person or RefusingPrompter()) as link:
        assert link.target == name
        return (await link.run('echo "$SSH_CONNECTION"', timeout=30)).stdout.decode()


async def test_an_alias(box: SshdBox) -> None:
    assert (await says("box", SshOptions(config_files=(box.config_file,)))).split()[3] == str(box.port)


async def test_the_users_own_configuration(box: SshdBox, ssh_dir: Path) -> None:
    (ssh_dir / "config").write_text("Include more\nHost *\n  User nobody-here\n")
    (ssh_dir / "more").write_text(
        f'Match host gpu exec "test -n gpu"\n  HostName 127.0.0.1\n  Port {box.port}\n  User {box.user}\n'
    )
    (ssh_dir / "id_ed25519").write_bytes(box.identity_file.read_bytes())
    (ssh_dir / "known_hosts2").write_text(box.known_hosts_line)
    assert (await says("gpu", SshOptions())).split()[3] == str(box.port)


async def test_what_a_person_types_wins(box: SshdBox, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host gpu\n  HostName 127.0.0.1\n  Port 1\n  User nobody-here\n")
    assert await says(f"{box.user}@gpu:{box.port}", options_for(box, config_files=(config,)))


async def test_a_jump_host_and_its_key(box: SshdBox, tmp_path: Path) -> None:
    with running_sshd(getpass.getuser(), tmp_path / "jump") as jump:
        config, hosts = tmp_path / "config", tmp_path / "hosts"
        config.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.identity_file}\n"
            f"Host gpu\n  HostName 127.0.0.1\n  Port {box.port}\n  ProxyJump gate\n  IdentityFile {box.identity_file}\n"
            f"Host far\n  HostName 127.0.0.1\n  Port {jump.port}\n  ProxyJump gate,gpu\n  IdentityFile {jump.identity_file}\n"
            f"Host *\n  User {box.user}\n  IdentitiesOnly yes\n  UserKnownHostsFile {hosts}\n"
        )
        options = SshOptions(config_files=(config,))
        person = Person(host_key=True)
        assert (await says("gpu", options, person)).split()[3] == str(box.port)
        assert [asked[1] for asked in person.asked] == [f"127.0.0.1:{jump.port} (gate)", f"127.0.0.1:{box.port} (gpu)"]
        assert sorted(hosts.read_text().splitlines(True)) == sorted([jump.known_hosts_line, box.known_hosts_line])
        assert (await says("far", options)).split()[3] == str(jump.port)
        assert "Starting session: command" in jump.log.read_text()


async def test_a_proxy_command(box: SshdBox, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    relay = tmp_path / "my relay.py"
    relay.write_text(RELAY)
    config = tmp_path / "config"
    config.write_text(f"Host gpu\n  HostName 127.0.0.1\n  ProxyCommand {sys.executable} '{relay}' %h %p\n")
    options = options_for(box, config_files=(config,))
    assert await says(f"{box.user}@gpu:{box.port}", options)
    assert capfd.readouterr() == ("", "")


async def test_a_configuration_of_the_system_that_cannot_be_read(
    box: SshdBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "ssh_config"
    system.write_text("Host *\n  Port none-at-all\n")
    monkeypatch.setattr("eagle3_console.link.route._SYSTEM_CONFIG", system)
    route = await find_route(parse("gpu"), SshOptions())
    assert (route.host, route.port) == ("gpu", 22)
    assert f"{system} was left out" in route.note
    system.write_text(f"Host *\n  Port {box.port}\n")
    assert (await find_route(parse("gpu"), SshOptions())).port == box.port


async def test_no_configuration_at_all(ssh_dir: Path) -> None:
    (ssh_dir / "config").write_text("Port 99\nUserKnownHostsFile ~/elsewhere\n")
    assert (await find_route(parse("gpu"), SshOptions(config_files=()))).port == 22
    route = await find_route(parse("gpu"), SshOptions())
    assert (route.port, route.remember_in) == (99, ssh_dir.parent / "elsewhere")

"""What people type for a box."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_console.link.target import Target, parse


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("gpu-box", None, "gpu-box", None),
        ("  gpu-box ", None, "gpu-box", None),
        ("root@gpu-box", "root", "gpu-box", None),
        ("gpu-box:2222", None, "gpu-box", 2222),
        ("root@10.0.0.7:2222", "root", "10.0.0.7", 2222),
        ("a@b@host", "a@b", "host", None),
        ("[2001:db8::7]:2222", None, "2001:db8::7", 2222),
        ("[::1]", None, "::1", None),
        ("root@2001:db8::7", "root", "2001:db8::7", None),
        ("fe80::1%eth0", None, "fe80::1%eth0", None),
        ("ssh://root@gpu-box:2222", "root", "gpu-box", 2222),
        ("ssh://gpu-box/", None, "gpu-box", None),
        ("SSH://j%40x@[::1]:22", "j@x", "::1", 22),
    ],
)
def test_forms_people_use(text: str, user: str | None, host: str, port: int | None) -> None:
    assert parse(text) == Target(user, host, port)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "No box was named"),
        ("@host", "empty user name"),
        ("root@", "no host name"),
        ("host:", "'' is not a port"),
        ("host:ssh", "'ssh' is not a port"),
        ("host:0", "from 1 to 65535"),
        ("host:65536", "from 1 to 65535"),
        ("host:²", "is not a port"),
        ("a:b:c", "neither host:port nor an IPv6 address"),
        ("[::1:22", "[address]:port"),
        ("[host]:22", "not an IPv6 address"),
        ("-oProxyCommand=x", "cannot begin with a dash"),
        ("root@-x", "cannot begin with a dash"),
        ("gpu box", "blank inside"),
        ("host\n", None),
        ("ho\nst", "blank inside"),
        ("ssh://host/dir", "path after the host"),
        ("/dev/null", "slash"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str | None) -> None:
    if says is None:
        assert parse(text).host == "host"
        return
    with pytest.raises(ValueError, match=r"\.$") as error:
        parse(text)
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["ssh://root:hunter2@gpu-box", "root:hunter2@gpu-box"])
def test_a_password_in_the_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="password") as error:
        parse(text)
    assert "hunter2" not in str(error.value)


hosts = st.one_of(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True), st.ip_addresses(v=6).map(str))
users = st.none() | st.from_regex(r"[a-z_][a-z0-9_.@-]{0,12}", fullmatch=True)


@given(users, hosts, st.none() | st.integers(1, 65535))
def test_what_is_printed_reads_back(user: str | None, host: str, port: int | None) -> None:
    target = Target(user, host, port)
    assert parse(str(target)) == target


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_a_sentence(text: str) -> None:
    said = ""
    target = None
    try:
        target = parse(text)
    except ValueError as error:
        said = str(error)
    assert (target is not None and target.host) or said.endswith(".")

"""What a restart starts: the last server's own settings, and what the person names now."""

from __future__ import annotations

import dataclasses

from eagle3_console.plan import Plan, restart_plan
from eagle3_remote.protocol import ServerSpec
from eagle3_remote.server.launch import settle

LAST = ServerSpec(
    model="/m",
    python="/venv/bin/python",
    port=30077,
    tp=8,
    boundaries=(3, 31, 59),
    final="post",
    dump_dir="/fast/dump",
    extra_args=("--attention-backend", "triton"),
    env={"NCCL_DEBUG": "WARN"},
)


def test_a_restart_without_words_starts_the_same_server() -> None:
    assert restart_plan(Plan(), LAST).server(LAST.python) == LAST


def test_what_is_named_wins() -> None:
    named = Plan(model="/n", tp=4, port=30078, boundaries=(2, 4), dump_dir="/dev/shm/d", server_args=("--x",))
    assert restart_plan(named, LAST).server("/p") == ServerSpec(
        "/n",
        "/p",
        30078,
        "127.0.0.1",
        4,
        (2, 4),
        "post",
        "/dev/shm/d",
        False,
        (*LAST.extra_args, "--x"),
        {"NCCL_DEBUG": "WARN"},
    )
    pre = ServerSpec("/m", "/p", final="pre")
    assert restart_plan(Plan(final="post"), pre).final == "post"


def test_an_argument_or_a_variable_more_adds_to_the_last_ones_and_wins_over_its_namesake() -> None:
    args = ("--attention-backend", "triton", "--trust-remote-code", "--chunked-prefill-size=4096")
    last = dataclasses.replace(LAST, extra_args=args)
    said = ("--mem-fraction-static=0.8", "--attention-backend=fa3", "--chunked-prefill-size", "2048")
    again = restart_plan(Plan(server_args=said, server_env={"NCCL_PROTO": "LL"}), last).server("/p")
    assert again.extra_args == ("--trust-remote-code", *said)
    assert again.env == {"NCCL_DEBUG": "WARN", "NCCL_PROTO": "LL"}
    assert restart_plan(Plan(server_env={"NCCL_DEBUG": "INFO"}), last).server_env == {"NCCL_DEBUG": "INFO"}


def test_a_restarted_server_listens_where_the_last_one_did() -> None:
    last = settle(dataclasses.replace(LAST, extra_args=("--host", "0.0.0.0", "--trust-remote-code")))
    assert last.host == "0.0.0.0"
    assert settle(restart_plan(Plan(), last).server(LAST.python)) == last
    assert settle(restart_plan(Plan(server_args=("--host=::",)), last).server("/p")).host == "::"


def test_a_server_that_was_watched_is_watched_again() -> None:
    assert restart_plan(Plan(), LAST, watched=True).watch
    assert restart_plan(Plan(watch=True), LAST).watch
    assert not restart_plan(Plan(), LAST).watch


def test_a_default_that_is_named_wins_over_the_last_server() -> None:
    named = restart_plan(Plan(tp=1, port=30000, tokens_in_flight=0, said=frozenset({"tp", "port"})), LAST)
    assert (named.tp, named.port) == (1, 30000)
    assert restart_plan(Plan(), LAST).tp == 8


def test_what_a_set_up_says_is_all_that_is_said() -> None:
    last = dataclasses.replace(LAST, extra_args=("--dtype", "float32"), dump_dir="/fast")
    said = Plan(model="/m", server_args=("--device", "cpu"), said=frozenset(("server_args", "dump_dir")))
    again = restart_plan(said, last)
    assert (again.server_args, again.dump_dir) == (("--device", "cpu"), "")

"""What a restart starts: the last server's own settings, and what the person names now."""

from __future__ import annotations

from eagle3_console.plan import Plan, restart_plan
from eagle3_remote.protocol import ServerSpec

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
        "/n", "/p", 30078, "127.0.0.1", 4, (2, 4), "post", "/dev/shm/d", False, ("--x",), {"NCCL_DEBUG": "WARN"}
    )
    pre = ServerSpec("/m", "/p", final="pre")
    assert restart_plan(Plan(final="post"), pre).final == "post"


def test_a_default_that_is_named_wins_over_the_last_server() -> None:
    named = restart_plan(Plan(tp=1, port=30000, tokens_in_flight=0, said=frozenset({"tp", "port"})), LAST)
    assert (named.tp, named.port) == (1, 30000)
    assert restart_plan(Plan(), LAST).tp == 8

"""Every event and every state comes back as it was."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_console.events import Event, LogArrived
from eagle3_console.keys import SHOWN
from eagle3_console.recording import delta, form
from eagle3_console.state import ConsoleState
from tests.ui.scenes import RUNNING, snapshot

FINITE = st.floats(allow_nan=False, allow_infinity=False)
st.register_type_strategy(float, FINITE)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
QUIET = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.parametrize("kind", typing.get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_comes_back(kind: type[Any]) -> None:
    @QUIET
    @given(st.from_type(kind))
    def check(event: Event) -> None:
        text = json.dumps(form.encode_event(event))
        assert form.decode_event(kind.__name__, json.loads(text)) == event

    check()


@QUIET
@given(st.from_type(ConsoleState))
def test_every_state_comes_back(state: ConsoleState) -> None:
    text = json.dumps(form.encode_state(state))
    back = form.decode_state(json.loads(text))
    assert back == dataclasses.replace(state, history=())
    assert back.keys == SHOWN  # the viewer's


@given(st.binary())
def test_every_byte_of_a_log_comes_back(data: bytes) -> None:
    line = form.line(1.0, "LogArrived", form.encode_event(LogArrived("job", data, 7)))
    assert line.count(b"\n") == 1
    assert form.decode_event("LogArrived", json.loads(line)[2]) == LogArrived("job", data, 7)


@given(JSON, JSON)
def test_a_delta_makes_the_new_value_of_the_old_one(old: Any, new: Any) -> None:
    kept = json.dumps(old)
    change = json.loads(json.dumps(delta.diff(old, new)))
    assert delta.apply(old, change) == new
    assert json.dumps(old) == kept


def test_a_delta_of_two_snapshots_is_small() -> None:
    old, new = (form.protocol.encode(snapshot(extract=RUNNING, clock=clock)) for clock in (1.0, 2.0))
    assert delta.diff(old, new) == {"clock": 2.0}


@pytest.mark.parametrize("change", [{"5": 1}, {"clock": {"x": 1}}])
def test_a_delta_of_something_else_is_refused(change: Any) -> None:
    with pytest.raises(ValueError, match="a change of"):
        delta.apply({"clock": 1.0}, change)


def test_what_is_no_event_is_refused() -> None:
    for kind, data in (("Nothing", {}), ("LogArrived", []), ("LogArrived", {"job": "j", "data": 3, "offset": 0})):
        with pytest.raises(ValueError, match=r"needed|called"):
            form.decode_event(kind, data)

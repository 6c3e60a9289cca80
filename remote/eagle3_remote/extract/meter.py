"""Rates and the forecast. Pure: the clock is passed in (monotonic seconds)."""

from __future__ import annotations

import collections
import dataclasses

WINDOW = 30.0
MIN_SECONDS, MIN_SAMPLES = 5.0, 5


@dataclasses.dataclass(frozen=True)
class Rates:
    """Per second over the last 30 s, the mean since the start, and the seconds left (`None`: too early to say, or it stands still).

    Time that stood still is in none of them.
    """

    samples: float
    tokens: float
    bytes: float
    mean_samples: float
    eta: float | None


class Meter:
    """Counts what was stored, and when."""

    def __init__(self, now: float, samples: int, tokens: int, bytes_: int) -> None:
        self._first = (now, samples, tokens, bytes_)
        self._seen = collections.deque([self._first])
        self._noted_at = now
        self._stood = 0.0
        """Seconds of a pause so far: all moments kept are less by them."""
        self._still = False

    def note(self, now: float, samples: int, tokens: int, bytes_: int, still: bool = False) -> None:
        """Absolute counters at a moment; called about twice a second. `still`: paused, with nothing under way."""
        if still:
            self._stood += now - self._noted_at
        self._noted_at, self._still = now, still
        moment = now - self._stood
        self._seen.append((moment, samples, tokens, bytes_))
        # Moments of a pause are all the same one, so the last of them says it all.
        if still and len(self._seen) > 2 and self._seen[-2][0] == moment:
            del self._seen[-2]
        while len(self._seen) > 2 and self._seen[1][0] <= moment - WINDOW:
            self._seen.popleft()

    def rates(self, tokens_left: int) -> Rates:
        """The rates as of the last `note`."""
        then, now = self._seen[0], self._seen[-1]
        span = now[0] - then[0]
        per = [(now[i] - then[i]) / span if span > 0 else 0.0 for i in (1, 2, 3)]
        whole = now[0] - self._first[0]
        done = now[1] - self._first[1]
        early = whole < MIN_SECONDS or done < MIN_SAMPLES
        eta = None if early or per[1] <= 0 else tokens_left / per[1]
        mean = done / whole if whole > 0 else 0.0
        if self._still:
            return Rates(0.0, 0.0, 0.0, mean, None)
        return Rates(per[0], per[1], per[2], mean, 0.0 if tokens_left == 0 else eta)

"""What an action would lose, and for how long: said in the screen's dialog and on the command line before it is done."""

from __future__ import annotations

from collections.abc import Mapping

from eagle3_console import units
from eagle3_console.alerts import EXTRACTING
from eagle3_remote.protocol import ExtractStatus, Phase, Snapshot


def running_extraction(snapshot: Snapshot | None) -> ExtractStatus | None:
    """The extraction under way, if there is one."""
    extract = snapshot.extract if snapshot is not None else None
    return extract if extract is not None and extract.state in EXTRACTING else None


def of_extraction_stop(snapshot: Snapshot | None, keys: Mapping[str, str]) -> list[str]:
    """Of finishing what is in flight and stopping."""
    extract = running_extraction(snapshot)
    if extract is None:
        return []
    rest = f": about {units.duration(extract.eta)} of work" if extract.eta is not None else ""
    return [
        f"The extraction stops after the {extract.in_flight} samples in flight; {_kept(extract)}.",
        f"Nothing is computed twice. The rest waits until it is started again ({keys['extract.start']}){rest}.",
    ]


def of_start(snapshot: Snapshot | None) -> list[str]:
    """Of starting a server where none runs: time alone."""
    took = load_seconds(snapshot) if snapshot is not None else None
    return [] if took is None else [f"The last load took {units.duration(took)}."]


def of_server(snapshot: Snapshot | None, *, comes_back: bool) -> list[str]:
    """Of stopping the server; `comes_back`: it is started again."""
    lost = []
    extract = running_extraction(snapshot)
    if extract is not None:
        job = f" ({extract.job.id})" if extract.job is not None else ""
        lost.append(
            f"The extraction{job} waits for the server; {extract.in_flight} samples in flight are finished or sent again{_again(extract)}; "
            f"{_kept(extract)}."
        )
    if snapshot is not None and snapshot.server.job is not None:
        took = load_seconds(snapshot)
        model = f" {snapshot.server.spec.model}" if snapshot.server.spec is not None else ""
        again = "is loaded anew" if comes_back else "is unloaded"
        last = f"; the last load took {units.duration(took)}" if took is not None else ""
        lost.append(f"The model{model} {again}{last}.")
    return lost


def load_seconds(snapshot: Snapshot) -> float | None:
    """Seconds from the start of the job to ready, where the log tells."""
    return next((span.at for span in snapshot.server.log.spans if span.phase is Phase.READY), None)


def _again(extract: ExtractStatus) -> str:
    if extract.samples_per_s <= 0 or not extract.in_flight:
        return ""
    return f" (about {units.duration(max(1.0, extract.in_flight / extract.samples_per_s))} of work)"


def _kept(extract: ExtractStatus) -> str:
    return f"{units.number(extract.stored)} of {units.number(extract.total)} samples are stored and stay stored"

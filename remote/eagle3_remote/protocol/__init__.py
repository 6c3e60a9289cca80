"""Messages between console and agent, as frozen dataclasses. Standard library only, importable on both sides.

The agent speaks JSON-RPC 2.0, one object a line, over its stdin and stdout. Calls (params are always an object):

===================  ==============================================================  =========================
method               params                                                          result
===================  ==============================================================  =========================
hello                protocol: int; console: `user@laptop`, id, readonly, take_over  `Hello`
snapshot             paths: dict[label, path]                                        `Snapshot`
doctor               `DoctorQuery`                                                   `Facts`
path.complete        `PathQuery`                                                     `PathList`
path.look            `LookQuery`                                                     `Looked`
server.plan          `ServerSpec`                                                    `LaunchPlan`
server.start         `ServerSpec`                                                    `JobStatus`
server.stop          job: str | null                                                 `StopReport`
server.stack         job: str | null                                                 `StackReport`
server.watch         job: str | null, on: bool                                       a sentence (str)
server.probe         tokens: int                                                     `ProbeReport`
server.bench         `BenchSpec`                                                     `BenchReport`
server.bench_kept    {}                                                              `BenchReport`
server.foreign       {}                                                              list of `ForeignServer`
server.stop_foreign  pid: int, confirm: str (the box's host name)                    `StopReport`
extract.start        `ExtractSpec`                                                   `JobStatus`
extract.plan         `ExtractSpec`                                                   `PlanReport`
extract.plan_kept    model: str                                                      `SmokeRate`
extract.stop         job: str | null                                                 `StopReport`
extract.control      `ExtractWish`                                                   `ControlReport`
verify               `VerifyQuery`                                                   `VerifyReport`
report               job: str | null                                                 `ExtractReport`
space                `SpaceQuery`                                                    `SpaceReport`
space.reclaim        `ReclaimSpec`                                                   `JobStatus`
space.stop           path: str                                                       `StopReport`
merge                `MergeSpec`                                                     `JobStatus`
array.submit         spec: `ArraySpec`, dry_run: bool                                `Submission`
array.status         out: str | null                                                 `ArrayStatus` | null
array.stop           out: str | null                                                 `StopReport`
work                 job: str                                                        `WorkStatus`
export               `ExportSpec`                                                    `JobStatus`
export.stop          `ExportSpec`                                                    `StopReport`
vocab-map            `VocabMapSpec`                                                  `VocabMapReport`
jobs.list            kind: str | null                                                list of `JobStatus`
jobs.records         {}                                                              list of `JobRecord`
jobs.show            job: str, lines: int                                            `JobDetail`
jobs.clean           `CleanSpec`                                                     `CleanReport`
releases.clean       {}                                                              list of names that are gone
steer.take           {}                                                              a sentence (str)
steer.release        {}                                                              a sentence (str)
log.read             job: str, inode: int, offset: int, limit: int                   `LogChunk`
===================  ==============================================================  =========================

A request may have a ``key`` beside ``id`` (hex): a call that changes the box is done once a key, however often it is asked for
(`eagle3_remote.once`). Where another console steers, calls that change something are refused (`eagle3_remote.steering`).

Everything is pulled: a console that is slow asks less often, and nothing is buffered for it.
"""

from __future__ import annotations

from eagle3_remote.protocol.array import ArraySpec, ArrayStatus, Submission, TaskState, TaskStatus
from eagle3_remote.protocol.bench import BenchReport, BenchRun, BenchSpec
from eagle3_remote.protocol.box import (
    DoctorQuery,
    Facts,
    Gauges,
    Gpu,
    Hello,
    ModelFact,
    Mount,
    PathFact,
    PortFact,
    PythonFact,
)
from eagle3_remote.protocol.codec import decode, encode
from eagle3_remote.protocol.disk import (
    Found,
    MergeSpec,
    ReclaimSpec,
    SpaceQuery,
    SpaceReport,
    WorkState,
    WorkStatus,
)
from eagle3_remote.protocol.export import ExportSpec, VocabMapReport, VocabMapSpec
from eagle3_remote.protocol.extract import (
    ControlReport,
    ExtractReport,
    ExtractServer,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    ExtractWish,
    ProbeAnswer,
    Problem,
    RunRecord,
    Training,
    Verified,
    VerifyQuery,
    VerifyReport,
)
from eagle3_remote.protocol.foreign import ForeignServer, Patched
from eagle3_remote.protocol.jobs import (
    CleanReport,
    CleanSpec,
    JobDetail,
    JobRecord,
    JobState,
    JobStatus,
    LogChunk,
    StopReport,
)
from eagle3_remote.protocol.paths import (
    DataLook,
    DatasetLook,
    Disk,
    Looked,
    LookQuery,
    ModelLook,
    OutLook,
    PathEntry,
    PathList,
    PathQuery,
)
from eagle3_remote.protocol.plan import PlanReport, SmokeRate, Space
from eagle3_remote.protocol.secret import HIDDEN, hide_argv, hide_assigned, hide_env, is_secret, is_secret_flag
from eagle3_remote.protocol.server import (
    STARTING,
    LaunchPlan,
    PatchMarker,
    Phase,
    PhaseSpan,
    ProbeReport,
    Restart,
    ServerLog,
    ServerMetrics,
    ServerSpec,
    ServerStatus,
)
from eagle3_remote.protocol.snapshot import Snapshot, Steering
from eagle3_remote.protocol.stack import ProcessStack, StackReport

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024

E_PARSE, E_REQUEST, E_METHOD, E_PARAMS, E_INTERNAL = -32700, -32600, -32601, -32602, -32603
E_REFUSED = 1
"""The box will not do it; the message is a sentence for a person (what, where, why, what to do)."""
E_SERVER = 2
"""The SGLang server did not do what it should."""
NO_RELEASE = 11
"""Exit status of an agent whose release is not there (any more), also of the script that starts it: the console deploys it then."""

__all__ = [
    "E_INTERNAL",
    "E_METHOD",
    "E_PARAMS",
    "E_PARSE",
    "E_REFUSED",
    "E_REQUEST",
    "E_SERVER",
    "HIDDEN",
    "MAX_LINE_BYTES",
    "NO_RELEASE",
    "PROTOCOL_VERSION",
    "STARTING",
    "ArraySpec",
    "ArrayStatus",
    "BenchReport",
    "BenchRun",
    "BenchSpec",
    "CleanReport",
    "CleanSpec",
    "ControlReport",
    "DataLook",
    "DatasetLook",
    "Disk",
    "DoctorQuery",
    "ExportSpec",
    "ExtractReport",
    "ExtractServer",
    "ExtractSpec",
    "ExtractState",
    "ExtractStatus",
    "ExtractWish",
    "Facts",
    "ForeignServer",
    "Found",
    "Gauges",
    "Gpu",
    "Hello",
    "JobDetail",
    "JobRecord",
    "JobState",
    "JobStatus",
    "LaunchPlan",
    "LogChunk",
    "LookQuery",
    "Looked",
    "MergeSpec",
    "ModelFact",
    "ModelLook",
    "Mount",
    "OutLook",
    "PatchMarker",
    "Patched",
    "PathEntry",
    "PathFact",
    "PathList",
    "PathQuery",
    "Phase",
    "PhaseSpan",
    "PlanReport",
    "PortFact",
    "ProbeAnswer",
    "ProbeReport",
    "Problem",
    "ProcessStack",
    "PythonFact",
    "ReclaimSpec",
    "Restart",
    "RunRecord",
    "ServerLog",
    "ServerMetrics",
    "ServerSpec",
    "ServerStatus",
    "SmokeRate",
    "Snapshot",
    "Space",
    "SpaceQuery",
    "SpaceReport",
    "StackReport",
    "Steering",
    "StopReport",
    "Submission",
    "TaskState",
    "TaskStatus",
    "Training",
    "Verified",
    "VerifyQuery",
    "VerifyReport",
    "VocabMapReport",
    "VocabMapSpec",
    "WorkState",
    "WorkStatus",
    "decode",
    "encode",
    "hide_argv",
    "hide_assigned",
    "hide_env",
    "is_secret",
    "is_secret_flag",
]

"""What happened, as logs tell it: phases, causes, ranks, launchers' prefixes, and what is no failure.

The words are those of SGLang 0.5.4 to 0.5.23, torch, NCCL, huggingface_hub, uvicorn and the kernel, as public bug
reports have them.
"""

from __future__ import annotations

import pytest

from eagle3_remote.explain import explained, note
from eagle3_remote.server import watchdog
from eagle3_remote.serverlog import LogState, feed
from eagle3_remote.serverlog.causes import CAUSES
from eagle3_remote.serverlog.words import KEY, WORDS

TRACEBACK = "Traceback (most recent call last):"


def at(rank: str = "", time: str = "09:00:09") -> str:
    return f"[2026-08-12 {time}{' ' + rank if rank else ''}] "


def exception(rank: str) -> str:
    return (
        at(rank)
        + "Scheduler hit an exception: "
        + TRACEBACK
        + '\n  File "/x/scheduler.py", line 3169, in run_scheduler_process\n    scheduler.event_loop_overlap()'
    )


QUIT = at() + "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
SIGQUIT = at() + "Received sigquit from a child process. It usually means the child failed."


def load_begin(rank: str) -> str:
    return at(rank, "09:00:01") + "Load weight begin. avail mem=139.21 GB"


def load_end(rank: str) -> str:
    return at(rank, "09:00:05") + "Load weight end. elapsed=300.1 s, type=X, avail mem=1 GB"


def kv(rank: str) -> str:
    return at(rank, "09:00:06") + "KV Cache is allocated. #tokens: 1, K size: 1 GB"


def capture_begin(rank: str) -> str:
    return at(rank, "09:00:07") + "Capture cuda graph begin. This can take up to several minutes. avail mem=9 GB"


def capture_end(rank: str) -> str:
    return at(rank, "09:00:08") + "Capture cuda graph end. Time elapsed: 3.1 s. mem usage=1 GB"


UP = at() + "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"
READY = at() + "The server is fired up and ready to roll!"
PREFILL = (
    at("TP0")
    + "Prefill batch, #new-seq: 1, #new-token: 50, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, "
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB"
PEER = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1234"
)
CASES = [
    ("args", [at() + "server_args=ServerArgs(model_path='x')"], "spawning", None, None),
    ("dist", [at("TP0") + "Init torch distributed begin."], "dist_init", None, None),
    ("fetch", ["Fetching 12 files:  25%|██▌       | 3/12 [00:10<00:30, 10.1s/it]"], "download", None, None),
    (
        "dl",
        ["model-00001-of-00030.safetensors:  12%|█▏        | 598M/4.95G [00:12<01:30, 48.0MB/s]"],
        "download",
        None,
        None,
    ),
    (
        "jit",
        [
            load_begin("TP0"),
            load_end("TP0"),
            kv("TP0"),
            at("TP0") + "Entering DeepGEMM JIT Pre-Compile session. It may take",
            "DeepGEMM warmup:  12%|█▉               | 1902/16384 [00:00<00:00, 19014.49it/s]",
        ],
        "jit_warmup",
        None,
        None,
    ),
    (
        "cap",
        [
            kv("TP0"),
            capture_begin("TP0"),
            "  0%|          | 0/23 [00:00<?, ?it/s]",
            "Capturing batches (bs=160 avail_mem=9.91 GB):   4%|▍         | 1/23 [00:02<00:44,  2.0s/it]",
        ],
        "graph_capture",
        None,
        None,
    ),
    ("cap2", [capture_begin("TP0"), capture_begin("TP1"), capture_end("TP0")], "graph_capture", None, None),
    (
        "capd",
        [capture_begin("TP0"), capture_begin("TP1"), capture_end("TP0"), capture_end("TP1")],
        "graph_capture_done",
        None,
        None,
    ),
    ("warm", [UP, PREFILL], "warmup", None, None),
    ("http", [UP], "http_up", None, None),
    ("serv", [UP, READY, PREFILL], "serving", None, None),
    ("loadrank", [load_begin("TP0"), load_begin("TP1"), load_end("TP0")], "load_weights", None, None),
    ("oomload", [load_begin("TP3"), exception("TP3"), OOM, QUIT], "failed", "cuda_oom", "TP3"),
    (
        "oom interleaved",
        [load_begin("TP3"), exception("TP2"), exception("TP3"), PEER, OOM, QUIT],
        "failed",
        "cuda_oom",
        "TP3",
    ),
    (
        "capfail",
        [
            capture_begin("TP0"),
            exception("TP0"),
            OOM,
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            TRACEBACK,
            "  File",
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate",
            "Possible solutions:",
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
            SIGQUIT,
        ],
        "failed",
        "cuda_oom",
        "TP0",
    ),
    (
        "kvsmall",
        [
            load_end("TP0"),
            exception("TP0"),
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.5",
            SIGQUIT,
        ],
        "failed",
        "kv_pool_too_small",
        "TP0",
    ),
    (
        "kvex",
        [
            READY,
            exception("TP0"),
            "RuntimeError: Prefill out of memory. Try to lower your batch size.",
            "Try to allocate 4096 tokens.",
            QUIT,
        ],
        "failed",
        "kv_exhausted",
        "TP0",
    ),
    (
        "kvexlog",
        [
            READY,
            at("TP0") + "Decode out of memory. Try to lower your batch size.",
            exception("TP0"),
            "RuntimeError: Decode out of memory. Try to lower your batch size.",
            QUIT,
        ],
        "failed",
        "kv_exhausted",
        "TP0",
    ),
    (
        "leak",
        [READY, exception("TP6 EP6"), "ValueError: pool memory leak detected! [full] total=9116160", QUIT],
        "failed",
        "kv_pool_leak_check",
        "TP6 EP6",
    ),
    (
        "exit3",
        [
            at()
            + "Rank 3 scheduler died during initialization (exit code: -3). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
        ],
        "failed",
        "scheduler_died_sigquit",
        "rank 3",
    ),
    (
        "exit1",
        [at() + "Rank 0 scheduler is dead. Please check if there are relevant logs.", at() + "Exit code: 1"],
        "failed",
        "unknown_child_failure",
        "rank 0",
    ),
    (
        "dmesg",
        ["[Tue Aug 12 09:00:00 2026] Out of memory: Killed process 4711 (sglang::schedul) total-vm:1kB"],
        "failed",
        "host_oom_kill",
        None,
    ),
    (
        "killed after",
        [
            exception("TP0"),
            "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=3189424",
            SIGQUIT,
            "./run.sh: line 22: 103525 Killed                  python -m sglang.launch_server --host",
        ],
        "failed",
        "kv_pool_leak_check",
        "TP0",
    ),
    (
        "killed after2",
        [SIGQUIT, "./run.sh: line 22: 103525 Killed                  python -m sglang.launch_server --host"],
        "failed",
        "unknown_child_failure",
        None,
    ),
    (
        "killed alone",
        [load_begin("TP0"), "./run.sh: line 22: 103525 Killed                  python -m sglang.launch_server --host"],
        "failed",
        "host_oom_kill",
        None,
    ),
    (
        "ima",
        [
            READY,
            exception("TP0"),
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "CUDA kernel errors might be asynchronously reported",
            QUIT,
        ],
        "failed",
        "illegal_memory_access",
        "TP0",
    ),
    (
        "segv",
        [READY, "Fatal Python error: Segmentation fault", "", "Thread 0x1 (most recent call first):"],
        "failed",
        "native_crash",
        None,
    ),
    (
        "nccl",
        [
            at("TP0") + "Init torch distributed begin.",
            exception("TP0"),
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3",
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            "Last error:",
            "socketPollConnect: connect returned Connection refused, exceeded error retry count",
            SIGQUIT,
        ],
        "failed",
        "nccl_init",
        "TP0",
    ),
    (
        "ncclshm",
        [
            exception("TP0"),
            "torch.distributed.DistBackendError: NCCL error in: ../x.cpp:317, unhandled system error",
            "ncclSystemError: System call failed",
            "Last error:",
            "Error while creating shared memory segment /dev/shm/nccl-EoOvZr (size 7340384)",
            SIGQUIT,
        ],
        "failed",
        "shm_too_small",
        "TP0",
    ),
    (
        "nccltimeout",
        [
            READY,
            "[rank3]:[E812 09:00:00.1 ProcessGroupNCCL.cpp:633] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.",
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            "Fatal Python error: Aborted",
        ],
        "failed",
        "nccl_timeout",
        "rank 3",
    ),
    (
        "gloo",
        [
            exception("TP0"),
            "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
            SIGQUIT,
        ],
        "failed",
        "gloo_mesh",
        "TP0",
    ),
    ("peer", [exception("TP1"), PEER, QUIT], "failed", "peer_died", "TP1"),
    (
        "porthttp",
        [
            UP.replace("Uvicorn running on", "x"),
            at()
            + "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
            at() + "INFO:     Waiting for application shutdown.",
            at() + "INFO:     Application shutdown complete.",
        ],
        "failed",
        "port_in_use_http",
        None,
    ),
    (
        "portdist",
        [
            exception("TP0"),
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            SIGQUIT,
        ],
        "failed",
        "port_in_use_dist",
        "TP0",
    ),
    (
        "portzmq",
        [TRACEBACK, '  File "x"', "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5555')"],
        "failed",
        "port_in_use_dist",
        None,
    ),
    (
        "badargs",
        [
            "usage: launch_server.py [-h] --model-path MODEL_PATH",
            "                        [--tokenizer-path TOKENIZER_PATH]",
            "launch_server.py: error: unrecognized arguments: --foo",
        ],
        "failed",
        "bad_args",
        None,
    ),
    (
        "badargs2",
        ["usage: sglang serve [-h]", "sglang serve: error: argument --tp-size/--tp: invalid int value: 'x'"],
        "failed",
        "bad_args",
        None,
    ),
    (
        "assertargs",
        [
            TRACEBACK,
            '  File "/x/server_args.py", line 3"',
            '    assert self.tp_size % self.nnodes == 0, ""',
            "AssertionError: tp_size must be divisible by number of nodes",
        ],
        "failed",
        "bad_args",
        None,
    ),
    (
        "import",
        [TRACEBACK, '  File "<frozen runpy>", line 198', "ModuleNotFoundError: No module named 'sgl_kernel'"],
        "failed",
        "import_error",
        None,
    ),
    (
        "import2",
        [
            "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')"
        ],
        "failed",
        "import_error",
        None,
    ),
    (
        "transformers",
        [
            TRACEBACK,
            '  File "/x/sglang/srt/configs/qwen3_asr.py", line 167, in <module>',
            '    AutoConfig.register("qwen3_asr", Qwen3ASRConfig)',
            "ValueError: 'qwen3_asr' is already used by a Transformers config, pick another name.",
        ],
        "failed",
        "import_error",
        None,
    ),
    (
        "importso",
        [
            TRACEBACK,
            '  File "x"',
            "ImportError: /x/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        ],
        "failed",
        "import_error",
        None,
    ),
    (
        "missing",
        [load_begin("TP0"), exception("TP0"), "RuntimeError: Cannot find any model weights with `/models/x`", SIGQUIT],
        "failed",
        "missing_weights",
        "TP0",
    ),
    (
        "missing2",
        [
            TRACEBACK,
            " x",
            "OSError: /m does not appear to have a file named config.json. Checkout 'https://huggingface.co//m/tree/main' for available files.",
        ],
        "failed",
        "missing_weights",
        None,
    ),
    (
        "missing3",
        [
            exception("TP0"),
            "FileNotFoundError: [Errno 2] No such file or directory: '/models/x/model-00003-of-00004.safetensors'",
            SIGQUIT,
        ],
        "failed",
        "missing_weights",
        "TP0",
    ),
    (
        "repoid",
        [
            TRACEBACK,
            "  x",
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/nope'. Use `repo_type` argument if needed.",
        ],
        "failed",
        "missing_weights",
        None,
    ),
    (
        "corrupt",
        [
            exception("TP0"),
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
            SIGQUIT,
        ],
        "failed",
        "corrupt_safetensors",
        "TP0",
    ),
    (
        "corrupt2",
        [
            exception("TP0"),
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
            SIGQUIT,
        ],
        "failed",
        "corrupt_safetensors",
        "TP0",
    ),
    (
        "dlfail",
        [
            TRACEBACK,
            "  x",
            "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the requested files in the local cache. Please check your connection and try again or make sure your Internet connection is on.",
        ],
        "failed",
        "download_failed",
        None,
    ),
    (
        "gated",
        [
            TRACEBACK,
            "  x",
            "OSError: You are trying to access a gated repo.",
            "Make sure to have access to it at https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct.",
            "401 Client Error. (Request ID: Root=1-6)",
        ],
        "failed",
        "download_failed",
        None,
    ),
    (
        "noconn",
        [
            TRACEBACK,
            "  x",
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        ],
        "failed",
        "download_failed",
        None,
    ),
    (
        "disk",
        [TRACEBACK, "  x", "OSError: [Errno 28] No space left on device: '/root/.cache/huggingface/x'"],
        "failed",
        "disk_full",
        None,
    ),
    (
        "shm",
        [
            exception("TP0"),
            "RuntimeError: unable to write to file </torch_4711_123_1>: No space left on device (28)",
            SIGQUIT,
        ],
        "failed",
        "shm_too_small",
        "TP0",
    ),
    (
        "perm",
        [TRACEBACK, "  x", "PermissionError: [Errno 13] Permission denied: '/models/x/config.json'"],
        "failed",
        "permission_denied",
        None,
    ),
    (
        "health",
        [
            UP,
            READY,
            PREFILL,
            at()
            + "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 05:49:14. last_heartbeat time: 05:42:53",
            at() + 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
        ],
        "failed",
        "health_503",
        None,
    ),
    (
        "health recovered",
        [
            UP,
            READY,
            at() + "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
            at() + 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
            at() + 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
        ],
        "ready",
        None,
        None,
    ),
    ("cut", [exception("TP2")], "failed", "traceback_cut", "TP2"),
    ("cut quit", [exception("TP2"), SIGQUIT], "failed", "traceback_cut", "TP2"),
    (
        "cut then plain",
        [exception("TP2"), SIGQUIT, TRACEBACK, '  File "x"', "ConnectionRefusedError: [Errno 111] Connection refused"],
        "failed",
        "traceback_cut",
        "TP2",
    ),
    ("unknown", [exception("TP2"), "KeyError: 'foo'", SIGQUIT], "failed", "scheduler_exception", "TP2"),
    (
        "sigquitfirst",
        [QUIT, exception("TP0"), "ValueError: token_to_kv_pool_allocator memory leak detected!"],
        "failed",
        "kv_pool_leak_check",
        "TP0",
    ),
    (
        "soft",
        [READY, at("TP0") + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)"],
        "ready",
        None,
        None,
    ),
    (
        "asgi",
        [READY, at() + "ERROR:    Exception in ASGI application", TRACEBACK, '  File "x"', "ValueError: bad"],
        "ready",
        None,
        None,
    ),
    (
        "reqerr",
        [READY, PREFILL, TRACEBACK, '  File "x"', "ValueError: something in a request", PREFILL],
        "serving",
        None,
        None,
    ),
    (
        "mpirun",
        [
            "[1,0]<stderr>:" + load_begin("TP0"),
            "[1,1]<stderr>:" + load_begin("TP8"),
            "[1,1]<stderr>:" + exception("TP8").replace("\n", "\n[1,1]<stderr>:"),
            "[1,0]<stderr>:" + load_end("TP0"),
            "[1,1]<stderr>:" + OOM,
        ],
        "failed",
        "cuda_oom",
        "TP8",
    ),
    (
        "cri",
        [
            "2026-08-12T09:00:01.123456789Z stderr F " + load_begin("TP0"),
            "2026-08-12T09:00:02.1Z stderr F " + load_end("TP0"),
        ],
        "load_weights_done",
        None,
        None,
    ),
    (
        "compose",
        [
            "sglang-1  | " + load_begin("TP0"),
            "sglang-1  | " + exception("TP0").replace("\n", "\nsglang-1  | "),
            "sglang-1  | " + OOM,
            "sglang-1 exited with code 137",
        ],
        "failed",
        "cuda_oom",
        "TP0",
    ),
    (
        "compose137",
        ["sglang-1  | " + load_begin("TP0"), "sglang-1 exited with code 137"],
        "failed",
        "host_oom_kill",
        None,
    ),
    ("actions", ["2026-08-12T09:00:01.1234567Z " + READY], "ready", None, None),
    ("jenkins", ["[2026-08-12T09:00:01.123Z] " + READY], "ready", None, None),
    ("jenkins2", ["09:00:01  " + READY], "ready", None, None),
    (
        "ray",
        [
            "(SGLangEngine pid=1, ip=1.2.3.4) " + load_begin("TP0"),
            "(SGLangEngine pid=1, ip=1.2.3.4) " + load_end("TP0"),
        ],
        "load_weights_done",
        None,
        None,
    ),
    ("dockerjson", ['{"log":"' + READY + '\\n","stream":"stderr","time":"2026-08-12T09:00:01Z"}'], "ready", None, None),
    (
        "glued",
        [
            "Capturing batches (bs=232 avail_mem=12.61 GB):   8%|▊         | 3/36 [00:04<00:43,  1.32s/it]"
            + load_end("DP1 TP1").strip()
            + at("DP1 TP0")
            + "KV Cache is allocated. #tokens: 4"
        ],
        "kv_cache",
        None,
        None,
    ),
    (
        "notensym",
        [
            at() + "Initialization failed. warmup error: " + TRACEBACK,
            "  File x",
            "AssertionError: res.status_code=500, res.text=''",
        ],
        "failed",
        "warmup_failed",
        None,
    ),
    ("ranks", [at("DP1 PP0 ATTN_CP0 MOE_DP0 TP3 EP3") + "Load weight begin."], "load_weights", None, None),
    (
        "draft",
        [load_begin("TP0"), load_end("TP0"), kv("TP0"), capture_begin("TP0"), capture_end("TP0"), load_begin("TP0")],
        "load_weights",
        None,
        None,
    ),
    ("ctrlc", [READY, PREFILL, TRACEBACK, "  File x", "KeyboardInterrupt"], "serving", None, None),
    (
        "devord",
        [exception("TP1"), "RuntimeError: CUDA error: invalid device ordinal", SIGQUIT],
        "failed",
        "invalid_device",
        "TP1",
    ),
    (
        "driver",
        [TRACEBACK, "  File", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."],
        "failed",
        "cuda_driver_mismatch",
        None,
    ),
    (
        "unsupp",
        [
            TRACEBACK,
            "  F",
            "ValueError: The checkpoint you are trying to load has model type `kimi_k25` but Transformers does not recognize this architecture.",
        ],
        "failed",
        "unsupported_model",
        None,
    ),
    (
        "detok",
        [
            READY,
            at() + "DetokenizerManager hit an exception: " + TRACEBACK,
            "  F",
            "UnicodeDecodeError: 'utf-8' codec can't decode",
            QUIT,
        ],
        "failed",
        "scheduler_exception",
        None,
    ),
    (
        "bus",
        [at() + "Subprocess scheduler_0 (pid=1) crashed with exit code -7. Triggering SIGQUIT for cleanup..."],
        "failed",
        "sigbus",
        "scheduler_0",
    ),
    (
        "busmsg",
        [
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."
        ],
        "failed",
        "shm_too_small",
        None,
    ),
    (
        "old sigquit",
        [at() + "Received sigquit from a child proces. It usually means the child failed."],
        "failed",
        "unknown_child_failure",
        None,
    ),
    (
        "watchold",
        [at("TP0") + "Watchdog timeout (self.watchdog_timeout=300)", QUIT],
        "failed",
        "watchdog_timeout",
        "TP0",
    ),
    (
        "unbalanced",
        [
            exception("TP0"),
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=1.0",
            SIGQUIT,
        ],
        "failed",
        "gpu_occupied",
        "TP0",
    ),
    (
        "unbalwarn",
        [
            at("TP0") + "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. ",
            load_begin("TP0"),
        ],
        "load_weights",
        None,
        None,
    ),
    (
        "stopped",
        [
            READY,
            PREFILL,
            at() + "SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
            at() + "Rank 0 scheduler is dead.",
        ],
        "exited",
        None,
        None,
    ),
    ("tail exc only", [OOM, QUIT], "failed", "cuda_oom", None),
    (
        "reversed gcp",
        [
            "ERROR 2025-04-05T00:01:19.509514570Z ./entrypoint.sh: line 48: 28 Killed python3 -m sglang.launch_server --host 0.0.0.0",
            "ERROR 2025-04-05T00:01:19.209237575Z [2025-04-05 00:01:19] Received sigquit from a child process. It usually means the child failed.",
            "ERROR 2025-04-05T00:01:19.209110975Z Error while creating shared memory segment /dev/shm/nccl-lNPZ0f (size 7340384)",
        ],
        "failed",
        "shm_too_small",
        None,
    ),
]


@pytest.mark.parametrize(("name", "lines", "phase", "kind", "rank"), CASES, ids=[case[0] for case in CASES])
def test_what_happened(name: str, lines: list[str], phase: str, kind: str | None, rank: str | None) -> None:
    data = ("\n".join(lines) + "\n").encode()
    said = explained(name, feed(LogState(), data))
    failure = said["failure"] or {"kind": None, "rank": None, "root_cause": None, "advice": None}
    assert (said["phase"], failure["kind"], failure["rank"]) == (phase, kind, rank), failure["root_cause"]
    assert said["ready"] == (phase in ("ready", "serving"))
    assert explained(name, feed(LogState(), data.replace(b"\n", b"\r\n"))) == said
    if kind is not None:
        assert len(failure["advice"]) > 40
        assert failure["root_cause"] in data.decode()
        assert kind in note(name, feed(LogState(), data))


ODD = [
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072", "scheduler_exception"),
    ("some.module.Surprise", "scheduler_exception"),
    ("RuntimeError: Failed: CUDA error deep_ep.cpp:123 'out of memory'", "cuda_oom"),
    ("AssertionError: max_running_request is zero", "kv_pool_too_small"),
    (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "nccl_init",
    ),
    (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "corrupt_safetensors",
    ),
]


@pytest.mark.parametrize(("line", "kind"), ODD)
def test_the_last_line_of_a_schedulers_traceback(line: str, kind: str) -> None:
    failure = explained("", feed(LogState(), "\n".join([exception("TP1"), line, SIGQUIT]).encode()))["failure"]
    assert (failure["kind"], failure["root_cause"], failure["rank"]) == (kind, line, "TP1")


def test_a_dead_scheduler_and_the_exit_code_on_the_next_line_are_one_rank() -> None:
    dead = at() + "Rank 1 scheduler is dead. Please check if there are relevant logs."
    failure = explained("", feed(LogState(), f"{dead}\n{at()}Exit code: -11\n".encode()))["failure"]
    assert (failure["kind"], failure["rank"]) == ("native_crash", "rank 1")


def test_a_parent_that_lost_its_child_knows_no_cause() -> None:
    lines = [load_begin("TP0"), TRACEBACK, '  File "engine.py", line 1', "EOFError"]
    failure = explained("", feed(LogState(), "\n".join(lines).encode()))["failure"]
    assert (failure["kind"], failure["certain"]) == ("unknown_child_failure", False)


def test_a_new_server_in_a_file_whose_beginning_is_gone_begins_anew() -> None:
    lines = [exception("TP0"), OOM, QUIT, at() + "server_args=ServerArgs(model_path='x')", load_begin("TP0")]
    assert explained("", feed(LogState(), "\n".join(lines).encode()))["phase"] == "load_weights"


def test_a_shell_that_tells_of_a_signal() -> None:
    for line, kind in (
        ("run.sh: line 1: 4711 Segmentation fault      (core dumped) python -m sglang.launch_server", "native_crash"),
        ("run.sh: line 1: 4711 Killed                  python -m sglang.launch_server", "host_oom_kill"),
    ):
        failure = explained("", feed(LogState(), line.encode()))["failure"]
        assert (failure["kind"], failure["certain"]) == (kind, False)


ADVICE = [
    ([load_begin("TP0"), exception("TP0"), OOM], "do not fit"),
    ([kv("TP0"), exception("TP0"), OOM], "decrease --mem-fraction-static"),
    ([kv("TP0"), capture_begin("TP0"), exception("TP0"), OOM], "--disable-cuda-graph"),
    ([READY, exception("TP0"), OOM], "--chunked-prefill-size"),
    ([exception("TP0"), OOM], "before the model is loaded"),
    (
        [exception("TP0"), "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."],
        "increase --mem-fraction-static",
    ),
    ([exception("TP0"), "OSError: [Errno 28] No space left on device: '/data/x'"], "/data/x"),
    ([exception("TP0"), "OSError: [Errno 28] No space left on device: '/data/x'"], "df -i"),
    ([exception("TP0"), "OSError: [Errno 28] No space left on device: '/dev/shm/x'"], "--shm-size"),
    ([exception("TP0"), "OSError: [Errno 122] Disk quota exceeded: '/home/x'"], "quota"),
]


@pytest.mark.parametrize(("lines", "advice"), ADVICE)
def test_advice_is_right_for_the_place(lines: list[str], advice: str) -> None:
    said = explained("", feed(LogState(), "\n".join(lines).encode()))
    assert advice in said["failure"]["advice"]


def test_no_word_that_counts_is_passed_over() -> None:
    for words, _ in WORDS:
        assert KEY.search(words.encode()), words


def test_every_kind_has_advice_of_its_own() -> None:
    told = {cause.kind for cause in CAUSES if cause.advice}
    assert {cause.kind for cause in CAUSES} - told == {"cuda_oom", "disk_full"}  # theirs depends on the place


def test_every_cause_that_no_restart_cures_is_one_that_a_log_can_name() -> None:
    assert {cause.kind for cause in CAUSES} | {"patch_refused"} >= watchdog.INCURABLE | watchdog.INCURABLE_AT_START


def test_the_rank_of_mixed_tracebacks_is_only_told_where_a_line_tells_it() -> None:
    mixed = [exception("TP2"), exception("TP3"), "KeyError: 'x'"]
    failure = explained("", feed(LogState(), "\n".join(mixed).encode()))["failure"]
    assert (failure["kind"], failure["rank"], failure["certain"]) == ("scheduler_exception", None, False)


def test_the_slowest_rank_and_those_still_loading() -> None:
    def shards(*lines: str) -> dict[str, object]:
        bar = "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:04<00:00,  1.00s/it]"
        said = explained("", feed(LogState(), "\n".join([*lines, bar]).encode()))
        return {**said["shards"], "loading": said["loading_ranks"], "phase": said["phase"]}

    begun = [load_begin("TP0"), load_begin("TP1"), load_begin("TP2")]
    late = shards(*begun, load_end("TP0"), load_end("TP2"))
    assert (late["phase"], late["slowest_rank"], late["loading"]) == ("load_weights", "TP1", ["TP1"])
    slow = load_end("TP1").replace("300.1", "340.0")
    done = shards(*begun, load_end("TP0"), load_end("TP2"), slow)
    assert (done["phase"], done["slowest_rank"], done["loading"]) == ("load_weights_done", "TP1", [])

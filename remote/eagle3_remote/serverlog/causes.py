"""Why SGLang servers fail: a table from words of the log to a kind, and the advice that is right for it.

Wording from SGLang 0.5.4.post3 to 0.5.23 (``srt/``), torch, NCCL, Gloo, transformers, huggingface_hub, safetensors,
uvicorn and the kernel.
"""

from __future__ import annotations

import dataclasses
import re

from eagle3_remote.serverlog.words import Step

PRIMARY, CONSEQUENCE, GUESS, GONE = 4, 3, 2, 1
"""How much a row explains. A consequence has a name of its own but follows from something; a guess is read from an exit
code; gone only says that a process is no more."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """One row of the table."""

    kind: str
    pattern: re.Pattern[str]
    advice: str
    fatal: bool = False
    """The line alone means that the server goes down, wherever it stands."""
    weight: int = PRIMARY
    anywhere: bool = True
    """Counts outside a traceback too; otherwise only as the exception that ends one."""


def _row(
    kind: str, pattern: str, advice: str, *, fatal: bool = False, weight: int = PRIMARY, anywhere: bool = True
) -> Cause:
    return Cause(kind, re.compile(pattern), advice, fatal, weight, anywhere)


TOKEN = (
    "A request carried a token id outside [0, vocab_size): find that sample and drop it, then start the server again. "
    "Check the data against the model's vocab_size before sending."
)
_SHM = (
    "Shared memory is too small or full: make /dev/shm larger (docker: --shm-size=32g or --ipc=host; Kubernetes: a "
    "memory emptyDir) and remove what earlier runs left there."
)
_OOM_KILL = (
    "The kernel most likely killed it for host memory: pinned buffers, the page cache of a cgroup and files in /dev/shm "
    "all count. See `dmesg -T | grep -i oom` and memory.events of the cgroup; raise the limit or empty /dev/shm."
)
_PORT = "Another process listens on the HTTP port: choose another --port, or end that process (`ss -ltnp` names it)."
_CORRUPT = "A weight file is damaged or cut short: compare its size and checksum with the source and copy it again."
_REACH = (
    "The model could not be fetched: check the name, network, proxy and HF_ENDPOINT, or download it first and give "
    "--model-path a local directory."
)
_TOKEN_HF = (
    "The hub refuses this account: accept the model's licence there and set HF_TOKEN, or give a local directory."
)
_ARGS = "This SGLang does not take that argument: correct or remove it (`python -m sglang.launch_server --help`)."

CAUSES: tuple[Cause, ...] = (
    _row("device_assert", r"Assertion `[^`]*\b(?:srcIndex|index|idx|ind)\b[^`]*` failed", TOKEN, fatal=True),
    _row(
        "device_assert",
        r"^\S+\.cu:\d+: .*Assertion `.*` failed",
        "A GPU kernel's check failed; the line names the file. Start again with CUDA_LAUNCH_BLOCKING=1 to see who called it, and check the ids sent.",
        fatal=True,
    ),
    _row(
        "device_assert",
        r"device-side assert triggered",
        f"A GPU kernel's check failed, most often for a token id. {TOKEN}",
    ),
    _row("scheduler_exception", r"IndexError: index out of range in self", TOKEN, anywhere=False),
    _row(
        "illegal_memory_access",
        r"illegal memory access|misaligned address|an illegal instruction was encountered|unspecified launch failure|Memory access fault by GPU",
        "A GPU kernel touched memory that is not its own, and the process cannot go on: start again; if it comes back, with CUDA_LAUNCH_BLOCKING=1 and another --attention-backend.",
    ),
    _row(
        "shm_too_small",
        r"Error while creating shared memory segment|insufficient shared memory|unable to write to file </torch",
        _SHM,
        fatal=True,
    ),
    _row(
        "shm_too_small",
        r"Error while creating shared memory segment|unable to (?:open|mmap|allocate|write to) .*shared memory|insufficient shared memory|No space left on device.*/dev/shm|/dev/shm\S*.*No space left on device|unable to write to file </torch",
        _SHM,
    ),
    _row(
        "cuda_oom",
        r"OutOfMemoryError(?!.*node running low)|(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|CUDA error.*out of memory|Cuda failure (?:\d+ )?'out of memory'|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
        "",
    ),
    _row(
        "kv_pool_too_small",
        r"Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache|max_running_request is zero|Not enough GPU memory for hybrid|cannot hold even one request|leaves no room for the full|max_total_num_tokens.* (?:must be|is) (?:positive|too small)",
        "After the weights too little is left for the KV cache: increase --mem-fraction-static, or use more GPUs (--tp-size) or a smaller --max-running-requests.",
    ),
    _row(
        "kv_exhausted",
        r"(?:Prefill|Decode) out of memory\. Try to lower|\bOut of memory\. Try to lower your batch size|alloc_req_slots runs out of memory|Not enough space for mamba",
        "The KV cache ran full while serving: send fewer tokens at once (--max-running-requests, --max-total-tokens of the client), or increase --mem-fraction-static.",
    ),
    _row(
        "kv_pool_leak_check",
        r"memory leak detected",
        "SGLang's own check of its KV pool failed while idle: a fault of SGLang, not of the request. Start again; a newer release or --disable-radix-cache often avoids it.",
    ),
    _row(
        "gpu_occupied",
        r"memory capacity is unbalanced",
        "Some of these GPUs are used by another process: see `nvidia-smi`, end it, or choose other GPUs (CUDA_VISIBLE_DEVICES).",
        anywhere=False,
    ),
    _row(
        "host_memory_too_small",
        r"Not enough host memory",
        "The host memory that was asked for is not there: lower --hicache-ratio or --hicache-size, or use a box with more memory.",
    ),
    _row(
        "nccl_timeout",
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out|NCCL (?:Watchdog|watchdog).*timed? ?out|[Tt]imed out waiting .*(?:ProcessGroup|store|barrier)|wait timeout after \d+ms|store->get\(.*timeout",
        "One rank waited in NCCL for another until the time limit: find the rank that stopped first or never came, and check its log, the GPUs' links and the NCCL_* settings.",
        fatal=True,
        weight=CONSEQUENCE,
    ),
    _row(
        "gloo_mesh",
        r"Gloo connectFullMesh failed|makeDeviceForHostname|makeDeviceForInterface|Unable to resolve hostname to a",
        "The ranks' Gloo connections were not made: set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface that reaches the other ranks, and see that the host name resolves to it.",
    ),
    _row(
        "peer_died",
        r"Connection (?:closed|reset) by peer|Connection was likely closed|ncclRemoteError|remote process exited|NCCL communicator was aborted|Failed to (?:recv|send).*(?:got|sent) 0 bytes|check the \"should dump\" flag|recvValue failed|sendBytes failed|Broken pipe",
        "Another rank died first and this one lost its connection: the cause is in that rank's (or node's) log.",
        weight=CONSEQUENCE,
    ),
    _row(
        "nccl_init",
        r"nccl(?:System|UnhandledCuda|Internal|InvalidUsage|InvalidArgument)Error|NCCL error|NCCL Error|Duplicate GPU detected|NCCL WARN (?:Bootstrap|Failed|Call to)|Bootstrap : no socket interface found|waiting for clients|client socket has (?:timed out|failed)|DistNetworkError(?!.*(?:EADDRINUSE|98))|DistStoreError(?!.*wait timeout)",
        "NCCL could not join the ranks: start again with NCCL_DEBUG=INFO, set NCCL_SOCKET_IFNAME to an interface that all ranks reach, and in a container check --shm-size, --ipc=host and the driver.",
    ),
    _row(
        "invalid_device",
        r"invalid device ordinal|tp_size.*(?:larger|greater|more) than .*(?:GPU|device)|No CUDA GPUs are available",
        "More GPUs are asked for than this process may see: lower --tp-size or correct CUDA_VISIBLE_DEVICES (`nvidia-smi -L` lists them).",
    ),
    _row(
        "cuda_driver_mismatch",
        r"driver version is insufficient|driver on your system is too old|no kernel image is available|Found no NVIDIA driver|unsupported PTX|forward compatibility was attempted|system not yet initialized|Torch not compiled with CUDA enabled$",
        "The GPU driver, this GPU and this build of torch do not fit together: update the driver, or install torch and sglang-kernel for this CUDA and this GPU.",
        anywhere=False,
    ),
    _row(
        "host_oom_kill",
        r"oom[-_]kill(?! 0\b)|OOMKilled|Out of memory: Killed process|Memory cgroup out of memory|Task was killed due to the node running low on memory",
        _OOM_KILL,
        fatal=True,
    ),
    _row(
        "host_oom_kill",
        r"\(exit code: -9\)|crashed with exit code (?:-9|137)\b|^Exit code: -9\b|exited with code 137\b|terminated with -9\b|\bline \d+: +\d+ Killed\b|^Killed$",
        _OOM_KILL,
        fatal=True,
        weight=GUESS,
    ),
    _row(
        "sigbus",
        r"\(exit code: -7\)|crashed with exit code (?:-7|135)\b|^Exit code: -7\b|Fatal Python error: Bus error|^Bus error|Caught signal 7 \(Bus error",
        f"A bus error: a memory-mapped file lost its pages. {_SHM}",
        fatal=True,
        weight=GUESS,
    ),
    _row(
        "native_crash",
        r"\(exit code: -(?:4|6|8|11)\)|crashed with exit code (?:-(?:4|6|8|11)|13[1-69])\b|^Exit code: -(?:4|6|8|11)\b|Fatal Python error: (?!Bus)|^(?:Segmentation fault|Aborted)|\bline \d+: +\d+ (?:Segmentation fault|Aborted)\b|Caught signal (?:4|6|8|11)\b|Segfault encountered|terminate called|double free or corruption|free\(\): invalid|malloc\(\): ",
        "Native code crashed (-6 SIGABRT, -11 SIGSEGV, -4 SIGILL): look above for 'terminate called', 'Watchdog caught' or a CUDA error; without one, start again with CUDA_LAUNCH_BLOCKING=1 and another --attention-backend.",
        fatal=True,
        weight=GUESS,
    ),
    _row("port_in_use_http", r"error while attempting to bind on address", _PORT, fatal=True),
    _row(
        "port_in_use_dist",
        r"EADDRINUSE|server socket has failed to (?:listen|bind)|ZMQError: Address already in use|Port is already in use\. dist_init_port|bootstrap_port \d+ is already in use|NCCL.*[Aa]ddress already in use",
        "A port between the ranks is taken (not the HTTP port): give another --dist-init-addr or --nccl-port, or end the old server whose processes still hold it.",
    ),
    _row(
        "port_in_use_http", r"\[Errno 98\]|[Aa]ddress already in use|[Pp]ort \d+ is already in use(?!, trying)", _PORT
    ),
    _row(
        "bad_args",
        r"^[\w./ -]{1,60}: error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)",
        _ARGS,
        fatal=True,
    ),
    _row(
        "bad_args",
        r"unexpected keyword argument|ServerArgs.*(?:invalid|unsupported)|^AssertionError: .*(?:--[a-z]|tp_size|dp_size|chunked_prefill|page_size|mem_fraction|must be|not supported|only support)|^(?:ValueError|NotImplementedError): .*--[a-z][a-z-]+|Unknown (?:attention|quantization|load_format|quantization method)|Invalid quantization|not a valid (?:choice|backend)",
        _ARGS,
        anywhere=False,
    ),
    _row(
        "corrupt_safetensors",
        r"SafetensorError|HeaderTooLarge|HeaderTooSmall|InvalidHeader|MetadataIncompleteBuffer|incomplete metadata|invalid load key|PytorchStreamReader failed|header too (?:large|small)|unexpected EOF, expected|file might be corrupted|Short read for|checksum mismatch|EOFError: Ran out of input|UnpicklingError",
        _CORRUPT,
    ),
    _row("disk_full", r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]", ""),
    _row(
        "download_failed",
        r"GatedRepoError|Cannot access gated repo|401 Client Error|403 Client Error|Invalid credentials",
        _TOKEN_HF,
    ),
    _row(
        "download_failed",
        r"LocalEntryNotFoundError|couldn't connect to 'https?://|(?:huggingface\.co|hf\.co|hf-mirror|modelscope|xethub|cas-bridge).*(?:Max retries|Connection|[Tt]imed? ?out|resolve)|Max retries exceeded|OfflineModeIsEnabled|offline mode is enabled|RepositoryNotFoundError|RevisionNotFoundError|404 Client Error|IncompleteRead|due to download errors|CAS service error|hf_transfer|Name or service not known|Temporary failure in name resolution|Consistency check failed",
        _REACH,
    ),
    _row(
        "missing_weights",
        r"Cannot find any model weights|does not appear to have a file named|shard file\(s\) missing|incomplete download|(?:No such file or directory|NotFoundError).*(?:safetensors|\.bin|\.json|\.model|\.gguf|tokenizer|/models?/)|not a valid model identifier|Incorrect path_or_model_id|HFValidationError|Can't load (?:tokenizer|the (?:model|configuration|config)|feature extractor)|Unrecognized model in|weights? (?:are|is) (?:not initialized|missing)|Missing keys|No such file or directory: .*safetensors",
        "A file of the model is missing: check --model-path, and the directory's files against its model.safetensors.index.json and config.json.",
    ),
    _row(
        "unsupported_model",
        r"does not recognize this architecture|is not (?:currently )?supported(?: by SGLang)?[.!]? *(?:Supported archs|Supported models)?$|Model architectures .* are not supported|has no SGlang implementation|Cannot find model module",
        "This SGLang or its transformers does not know the model's architecture: use a release that does (see the model's card).",
        anywhere=False,
    ),
    _row(
        "permission_denied",
        r"PermissionError|\[Errno 13\]|[Pp]ermission denied|is not writable|\[Errno 30\]|Read-only file system",
        "A file or directory may not be used by this user: see the path in the line, and the owner and mode of it (`namei -l PATH`).",
    ),
    _row(
        "import_error",
        r"^\S*python[\d.]*: (?:No module named|Error while finding module)",
        "That Python has no SGLang: start it with the one it is installed in.",
        fatal=True,
    ),
    _row(
        "import_error",
        r"is already used by a Transformers config",
        "The transformers package is newer than this SGLang, which brings that model's configuration itself: install the version that this SGLang names.",
        anywhere=False,
    ),
    _row(
        "import_error",
        r"ModuleNotFoundError|ImportError|No module named|undefined symbol|cannot open shared object file|GLIBC\w* not found|is installed with version|with minimum required version|AttributeError: module '",
        "A package is missing in the Python that started it, or does not fit this SGLang, torch or CUDA: install the versions that this SGLang names.",
        anywhere=False,
    ),
    _row(
        "watchdog_timeout",
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\)",
        "A rank made no progress for the watchdog's time. If kernels were compiled for the first time, start again with --watchdog-timeout 1800 (and keep the caches); otherwise look for the rank that hung.",
        fatal=True,
        weight=CONSEQUENCE,
    ),
    _row(
        "unknown_child_failure",
        r"^EOFError$",
        "A child process ended while its parent waited for its first word: look at the lines above, at the other ranks' "
        "logs, and at `dmesg -T`.",
        weight=GONE,
        anywhere=False,
    ),
    _row(
        "warmup_failed",
        r"Initialization failed\. warmup error",
        "The server came up and its own first request failed: the lines after this one say why.",
        fatal=True,
        weight=GUESS,
    ),
    _row(
        "scheduler_died_sigquit",
        r"\(exit code: -3\)|crashed with exit code -3\b|^Exit code: -3\b",
        "It was ended by SIGQUIT, which SGLang's processes send each other once one has failed: the cause is another process's, look above.",
        fatal=True,
        weight=GONE,
    ),
    _row(
        "unknown_child_failure",
        r"scheduler died during initialization|scheduler is dead|Subprocess \S+ \(pid=\d+\) crashed with exit code|Scheduler or DataParallelController \d+ terminated with|Received sigquit from a child proces|SIGQUIT received\.|Initialization failed\. Please see|^Exit code: -?[1-9]",
        "A child process failed without saying why in this log: look at the lines above, at the other ranks' logs, and at `dmesg -T`. Where numactl cannot bind memory in a container, SGLANG_NUMA_BIND_V2=0 helps.",
        fatal=True,
        weight=GONE,
    ),
)

UNKNOWN_EXCEPTION = (
    "An exception that is not in the table of known causes: read it and the lines above it; the last frame inside "
    "SGLang or the model's code tells where."
)
TRACEBACK_CUT = (
    "The log ends inside the traceback, so the cause is not in it: get the rest of the log (the file on the box, "
    "`docker logs`, the other ranks' logs)."
)
HEALTH = (
    "The HTTP side answers and the schedulers do not: see what they do (py-spy dump), wait if they are compiling or "
    "very loaded, otherwise restart the server."
)

_OOM = {
    Step.LOAD_WEIGHTS: "The weights do not fit: use more GPUs (--tp-size) or a smaller quantisation, or end what else uses these GPUs (nvidia-smi).",
    Step.KV_CACHE: "The KV cache is too large for what the weights leave: decrease --mem-fraction-static.",
    Step.GRAPH_CAPTURE: "Graph capture needs room: decrease --mem-fraction-static or --cuda-graph-max-bs, or start with --disable-cuda-graph.",
    Step.READY: "A batch needed more than was left: decrease --chunked-prefill-size, --max-running-requests or --mem-fraction-static.",
    Step.UNKNOWN: "The GPU is full before the model is loaded: see `nvidia-smi` for what else uses it and end that.",
}


def advice_for(cause: Cause, text: str, step: Step) -> str:
    """What to do about `cause`, where `text` is its line and `step` how far the server had come."""
    if cause.kind == "cuda_oom":
        return _OOM[_oom_stage(text, step)]
    if cause.kind == "disk_full":
        path = re.search(r"'(/[^']*)'|\"(/[^\"]*)\"", text)
        where = next((one for one in path.groups() if one), "") if path else ""
        what = f"the file system of {where}" if where else "a file system (the line does not say which: try `df -h`)"
        if "quota" in text or "Errno 122" in text:
            return f"This user's quota on {what} is used up: free some there (`quota -s`), then start again."
        return f"No space is left on {what}: free some; where `df -h` shows space, inodes are used up (`df -i`)."
    return cause.advice


def _oom_stage(text: str, step: Step) -> Step:
    if "Capture" in text and "graph failed" in text:
        return Step.GRAPH_CAPTURE
    if step >= Step.HTTP_UP:
        return Step.READY
    if step >= Step.JIT_WARMUP:
        return Step.GRAPH_CAPTURE
    if step >= Step.KV_CACHE:
        return Step.KV_CACHE
    return Step.LOAD_WEIGHTS if step >= Step.DOWNLOAD else Step.UNKNOWN

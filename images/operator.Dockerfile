# The image of the operator and the cluster's page (rlt_ui): Python and pinned packages. No torch, no compiler, no
# pip.
#
#   docker build -f images/operator.Dockerfile -t rlt-operator:0.1.0 .
#
# BASE is a Debian-like image with python3 >= 3.11 and its venv module. images/README.md describes buildah, builds
# without a registry, and proxies.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# The environment of the final image has no pip: the pip in /pip installs into it.
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/rlt
COPY requirements/operator.txt requirements/dev.txt requirements/
RUN /pip/bin/pip --python /opt/rlt/bin/python install --no-cache-dir --no-compile --require-hashes --no-deps \
      -r requirements/operator.txt
# The build backend at its pinned version: the only packages of dev.txt that the build requires.
RUN awk '/^[a-z]/ { keep = /^(hatchling|packaging|pathspec|pluggy|trove-classifiers)==/ } keep' requirements/dev.txt \
      > requirements/build.txt \
 && /pip/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt
COPY pyproject.toml LICENSE ./
COPY pod pod
COPY api api
COPY core core
COPY operator operator
COPY client client
COPY ui ui
COPY cli cli
COPY examples examples
RUN /pip/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels \
      . ./operator \
 && /pip/bin/pip --python /opt/rlt/bin/python install --no-cache-dir --no-compile --no-deps --no-index wheels/*.whl
# Compile all bytecode except the Kubernetes client's thousands of generated modules, which are mostly unused.
RUN /opt/rlt/bin/python -m compileall -q -x '/kubernetes/(aio/)?client/(api|models)/' /opt/rlt/lib

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="rlt-operator" \
      org.opencontainers.image.description="Runs RLTrainingJobs on KubeRay clusters and reports their progress" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/rlt /opt/rlt
# USER: kopf reads the user name, and an arbitrary user id of a cluster has no name in the image.
ENV PATH=/opt/rlt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    USER=rlt-operator
# The chart sets the same user. 65532 is the user nonroot of distroless images.
USER 65532:65532
ENTRYPOINT ["rlt-operator"]
CMD ["run"]

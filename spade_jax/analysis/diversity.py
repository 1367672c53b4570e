"""How different programs are from one another, and whether the designer still varies them."""

import itertools
import zlib
from collections.abc import Sequence

import numpy as np

from spade_jax.environments import similarity

BUCKETS = 4096


def kernel(sources: Sequence[str]) -> np.ndarray:
    """Cosine similarities [n, n] of the programs' sets of token trigrams, hashed to ``BUCKETS``.

    Float64 in [0, 1], with ones on the diagonal. Trigrams that share a bucket by chance raise a
    similarity by about trigrams / ``BUCKETS``: 0.05 for two programs of 200.
    """
    counts = np.zeros((len(sources), BUCKETS))
    for row, source in zip(counts, sources, strict=True):
        for trigram in similarity.trigrams(source):
            row[zlib.crc32(repr(trigram).encode()) % BUCKETS] += 1
    norms = np.linalg.norm(counts, axis=1, keepdims=True)
    unit = counts / np.where(norms == 0, 1, norms)
    result = np.clip(unit @ unit.T, 0.0, 1.0)
    np.fill_diagonal(result, 1.0)
    return result


def vendi(kernel_nn: np.ndarray) -> float:
    """Vendi score, the effective number of different items, in [1, n] (arXiv 2210.02410, eq. 2).

    exp of the entropy of the eigenvalues of the kernel over n: n for items that share nothing, 1
    for copies of one.
    """
    values = np.linalg.eigvalsh(kernel_nn / len(kernel_nn))
    values = values[values > 1e-12]
    return float(np.exp(-np.sum(values * np.log(values))))


def longest_repetition(kernel_nn: np.ndarray, threshold: float) -> int:
    """Most items in a row each of which is at least so similar to the one before; 0 of none.

    A designer that has collapsed writes one program over and over.
    """
    if not len(kernel_nn):
        return 0
    alike = np.diagonal(kernel_nn, 1) >= threshold
    runs = (sum(1 for _ in group) for same, group in itertools.groupby(alike) if same)
    return 1 + max(runs, default=0)

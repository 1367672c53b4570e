"""How different programs are from one another, and whether the designer still varies them."""

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse

from spade_jax.environments import similarity

BUCKETS = 1 << 16
POWER = 2
"""Similarities are raised to this: what all Python programs share would else make strangers alike.
docs/analysis.md has the sets by which it was chosen."""
SCALE = 0.2
"""Width of the Gaussian kernel on embeddings of unit length, chosen the same way."""
DRAWS = 20


@dataclasses.dataclass(frozen=True)
class Score:
    """Vendi score over n, in [1/n, 1]: mean over subsets of ``size`` and 95 % of them."""

    mean: float
    low: float
    high: float
    size: int


def kernel(
    sources: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray] | None = None
) -> np.ndarray:
    """How alike programs are: a positive semidefinite float64 [n, n] in [0, 1], diagonal 1.

    By default the cosine of their sets of token trigrams, hashed to ``BUCKETS``, to the power of
    ``POWER``. With ``embed``, which gives a vector for each source [n, d], a Gaussian of width
    ``SCALE`` of the distance between the vectors brought to length 1.
    """
    if embed is None:
        result = trigram_cosines(sources) ** POWER
    else:
        vectors = np.asarray(embed(sources), np.float64)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        squared = np.clip(2 - 2 * unit @ unit.T, 0.0, None)  # of the distance
        result = np.exp(-squared / (2 * SCALE**2))
    np.fill_diagonal(result, 1.0)
    return result


def trigram_cosines(sources: Sequence[str]) -> np.ndarray:
    """Cosine similarities [n, n] of the programs' sets of token trigrams, hashed to ``BUCKETS``.

    Trigrams that share a bucket by chance raise a similarity by about trigrams / ``BUCKETS``:
    0.003 for two programs of 200.
    """
    places = [
        [zlib.crc32(repr(trigram).encode()) % BUCKETS for trigram in similarity.trigrams(source)]
        for source in sources
    ]
    rows = np.repeat(np.arange(len(places)), [len(each) for each in places])
    columns = np.fromiter(itertools.chain.from_iterable(places), int)
    shape = (len(places), BUCKETS)
    counts = scipy.sparse.csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)
    norms = np.sqrt(counts.multiply(counts).sum(axis=1))
    norms = np.where(norms == 0, 1, norms)
    result = np.clip((counts @ counts.T).toarray() / norms[:, None] / norms, 0.0, 1.0)
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


def vendi_over_n(kernel_nn: np.ndarray, size: int, seed: int = 0) -> Score:
    """The score of subsets of ``size``, so that sets of different n can be compared.

    The score over n falls with n: only scores of equal ``size`` say something of one another.
    """
    if not 1 <= size <= len(kernel_nn):
        raise ValueError(f"size is {size}; there are {len(kernel_nn)} programs")
    rng = np.random.default_rng(seed)
    subsets = [rng.choice(len(kernel_nn), size, replace=False) for _ in range(DRAWS)]
    scores = [vendi(kernel_nn[np.ix_(subset, subset)]) / size for subset in subsets]
    low, high = np.quantile(scores, [0.025, 0.975])
    return Score(float(np.mean(scores)), float(low), float(high), size)


def longest_repetition(kernel_nn: np.ndarray, threshold: float) -> int:
    """Most items in a row each of which is at least so similar to the one before; 0 of none.

    A designer that has collapsed writes one program over and over.
    """
    if not len(kernel_nn):
        return 0
    alike = np.diagonal(kernel_nn, 1) >= threshold
    runs = (sum(1 for _ in group) for same, group in itertools.groupby(alike) if same)
    return 1 + max(runs, default=0)

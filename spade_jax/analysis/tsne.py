"""t-SNE: points in the plane whose neighbours are the neighbours in a kernel (JMLR 9, 2579-2605).

Exact, in numpy, for the hundreds of programs of a run: scikit-learn would be a dependency for one
picture. The start is the first two principal coordinates, so that the picture is the same each
time and keeps the coarse order. Distances between far groups mean nothing: look, do not measure.
"""

import numpy as np
import scipy.spatial.distance

ITERATIONS = 500
EXAGGERATED = 100  # of these, with affinities times EXAGGERATION
EXAGGERATION = 12.0
SMALLEST = 1e-12


def layout(kernel_nn: np.ndarray, perplexity: float = 10.0) -> np.ndarray:
    """Places [n, 2] of n items with similarities in [0, 1] and ones on the diagonal.

    Args:
      perplexity: effective number of neighbours that each item has; at most (n − 1) / 3 is used.
    """
    count = len(kernel_nn)
    if count < 4:
        return _principal(kernel_nn)
    target_nn = affinities(2.0 - 2.0 * kernel_nn, min(perplexity, (count - 1) / 3))
    place_n2 = 1e-2 * _principal(kernel_nn)
    moving = np.zeros_like(place_n2)
    gain = np.ones_like(place_n2)
    rate = max(count / EXAGGERATION, 10.0)
    for step in range(ITERATIONS):
        early = step < EXAGGERATED
        slope = gradient(place_n2, target_nn * (EXAGGERATION if early else 1.0))
        gain = np.where(slope * moving < 0, gain + 0.2, np.maximum(gain * 0.8, 0.01))
        moving = (0.5 if early else 0.8) * moving - rate * gain * slope
        place_n2 = place_n2 + moving
    return place_n2 - place_n2.mean(axis=0)


def affinities(squared_nn: np.ndarray, perplexity: float) -> np.ndarray:
    """Joint probabilities [n, n] of neighbours from squared distances (equations 1 and 12 there).

    Each item's Gaussian has the width at which the entropy of its neighbours is ln(perplexity).
    """
    count = len(squared_nn)
    conditional = np.zeros((count, count))
    for index, row in enumerate(squared_nn):
        others = np.delete(row, index)
        conditional[index, np.arange(count) != index] = _neighbours(others, np.log(perplexity))
    joint = (conditional + conditional.T) / (2 * count)
    return np.maximum(joint, SMALLEST)


def gradient(place_n2: np.ndarray, target_nn: np.ndarray) -> np.ndarray:
    """Slope [n, 2] of the divergence of ``target_nn`` from the places' Student-t affinities."""
    near_nn = _student(place_n2)
    force_nn = (target_nn - near_nn / near_nn.sum()) * near_nn
    np.fill_diagonal(force_nn, 0.0)
    return 4 * (force_nn.sum(axis=1)[:, None] * place_n2 - force_nn @ place_n2)


def _student(place_n2: np.ndarray) -> np.ndarray:
    distances = scipy.spatial.distance.pdist(place_n2, "sqeuclidean")
    near_nn = 1 / (1 + scipy.spatial.distance.squareform(distances))
    np.fill_diagonal(near_nn, 0.0)
    return near_nn


def _neighbours(squared: np.ndarray, entropy: float) -> np.ndarray:
    """Gaussian probabilities of the entropy asked for, by bisection of their precision."""
    low, high, precision = 0.0, np.inf, 1.0
    for _ in range(64):
        weights = np.exp(-precision * (squared - squared.min()))
        shares = weights / weights.sum()
        found = -np.sum(shares * np.log(np.maximum(shares, SMALLEST)))
        if abs(found - entropy) < 1e-6:
            break
        if found > entropy:
            low = precision
            precision = precision * 2 if np.isinf(high) else (low + high) / 2
        else:
            high = precision
            precision = (low + high) / 2
    return shares


def _principal(kernel_nn: np.ndarray) -> np.ndarray:
    """First two principal coordinates [n, 2], the first of them with a standard deviation of 1."""
    centred = (
        kernel_nn - kernel_nn.mean(axis=0) - kernel_nn.mean(axis=1)[:, None] + kernel_nn.mean()
    )
    values, vectors = np.linalg.eigh(centred)
    vectors = vectors[:, ::-1][:, :2]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    place = vectors * signs * np.sqrt(np.maximum(values[::-1][:2], 0.0))
    padded = np.zeros((len(kernel_nn), 2))
    padded[:, : place.shape[1]] = place
    return padded / max(padded[:, 0].std(), SMALLEST)

"""Expert ids on their way from a sampler to a learner, as text that JSON can hold."""

import base64
import io

import numpy as np


def encode(expert_tlk: np.ndarray) -> str:
    """Ids of the experts of each token in each layer, any integer dtype."""
    file = io.BytesIO()
    np.save(file, expert_tlk.astype(np.min_scalar_type(int(expert_tlk.max(initial=0)))))
    return base64.b64encode(file.getvalue()).decode("ascii")


def decode(text: str) -> np.ndarray | None:
    """What :func:`encode` was given, in the smallest dtype; None of ''."""
    return np.load(io.BytesIO(base64.b64decode(text))) if text else None

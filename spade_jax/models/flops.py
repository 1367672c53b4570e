"""FLOPs that a model needs, by formula: recomputation and padding are not among them."""

import dataclasses

from spade_jax.models.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Forward:
    """FLOPs of the forward pass over one token; a backward pass costs twice as much.

    Attributes:
      matrices: of all weights a token meets, head included, chosen experts only.
      experts: the part of ``matrices`` in the experts.
      attention: of scores and values, causal: a token of a sequence sees half of it on average.
    """

    matrices: float
    experts: float
    attention: float

    @classmethod
    def of(cls, config: ModelConfig, length: int) -> "Forward":
        """In sequences of ``length`` tokens."""
        d, c = config.hidden, config.head_dim
        attention_weights = d * c * (2 * config.heads + 2 * config.kv_heads)
        if config.experts:
            experts = 3 * d * config.expert_feed_forward * config.experts_per_token
            feed_forward = experts + d * config.experts  # the router
        else:
            experts, feed_forward = 0, 3 * d * config.feed_forward
        weights = config.layers * (attention_weights + feed_forward) + config.vocabulary * d
        seen = (length + 1) / 2
        return cls(
            2.0 * weights,
            2.0 * config.layers * experts,
            config.layers * 4.0 * seen * config.heads * c,
        )

    @property
    def total(self) -> float:
        return self.matrices + self.attention

"""Hand-written families of small multi-turn games, five for each of the six skills."""

from spade_jax.warm_start.families import (
    causal,
    logical,
    mathematical,
    optimization,
    pattern,
    spatial,
)
from spade_jax.warm_start.families.program import Family, Game, Player

__all__ = ["FAMILIES", "Family", "Game", "Player"]

FAMILIES: list[Family] = [
    *mathematical.FAMILIES,
    *logical.FAMILIES,
    *spatial.FAMILIES,
    *pattern.FAMILIES,
    *optimization.FAMILIES,
    *causal.FAMILIES,
]

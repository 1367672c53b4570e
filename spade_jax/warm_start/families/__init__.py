"""Hand-written families of small multi-turn games, five for each of the six skills."""

from spade_jax.warm_start.families import (
    causal,
    logical,
    mathematical,
    optimization,
    pattern,
    spatial,
)
from spade_jax.warm_start.families.program import Game, Player
from spade_jax.warm_start.families.reaction import Theme

__all__ = ["FAMILIES", "Game", "Player", "Theme"]

FAMILIES: list[Theme] = [
    *mathematical.FAMILIES,
    *logical.FAMILIES,
    *spatial.FAMILIES,
    *pattern.FAMILIES,
    *optimization.FAMILIES,
    *causal.FAMILIES,
]

"""SPADE in JAX: one language model that writes environments and learns to play them."""

__version__ = "0.1.0"

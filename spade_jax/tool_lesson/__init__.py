"""What a model from scratch is taught before self-play in the setting ``tools``.

As :mod:`spade_jax.warm_start` for games, whose supervised stage is used here too.
"""

"""Optimization: the most for the least."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Optimization"

FAMILIES = [
    Theme(
        "Trader",
        SKILL,
        [
            ("price low", "buy"),
            ("price high", "sell"),
            ("stock full", "ship"),
            ("stock empty", "store"),
            ("rates low", "borrow"),
            ("rates high", "repay"),
        ],
    ),
    Theme(
        "Packer",
        SKILL,
        [
            ("light and dear", "take"),
            ("heavy and cheap", "leave"),
            ("bag full", "swap"),
            ("bag empty", "add"),
            ("gap long", "rope"),
            ("gap square", "block"),
        ],
    ),
    Theme(
        "Engine",
        SKILL,
        [
            ("fuel short", "coast"),
            ("fuel plenty", "race"),
            ("too hot", "cool"),
            ("too cold", "heat"),
            ("load heavy", "low gear"),
            ("load light", "high gear"),
        ],
    ),
    Theme(
        "Garden",
        SKILL,
        [
            ("soil dry", "water"),
            ("soil wet", "drain"),
            ("leaves pale", "feed"),
            ("leaves rank", "starve"),
            ("sun harsh", "shade"),
            ("sun weak", "bare"),
        ],
    ),
    Theme(
        "Queue",
        SKILL,
        [
            ("short job", "first"),
            ("long job", "last"),
            ("urgent job", "now"),
            ("idle job", "later"),
            ("shared job", "split"),
            ("secret job", "whole"),
        ],
    ),
]

"""Optimization: the most for the least."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Optimization"

FAMILIES = [
    Theme(
        "Trader",
        SKILL,
        "trail",
        [
            ("price low", "buy", "sell"),
            ("price high", "sell", "buy"),
            ("stock full", "ship", "store"),
            ("stock empty", "store", "ship"),
            ("rates low", "borrow", "repay"),
            ("rates high", "repay", "borrow"),
        ],
    ),
    Theme(
        "Packer",
        SKILL,
        "streak",
        [
            ("light and dear", "take", "leave"),
            ("heavy and cheap", "leave", "take"),
            ("bag full", "swap", "add"),
            ("bag empty", "add", "swap"),
            ("gap long", "rope", "block"),
            ("gap square", "block", "rope"),
        ],
    ),
    Theme(
        "Engine",
        SKILL,
        "lives",
        [
            ("fuel short", "coast", "race"),
            ("fuel plenty", "race", "coast"),
            ("too hot", "cool", "heat"),
            ("too cold", "heat", "cool"),
            ("load heavy", "low gear", "high gear"),
            ("load light", "high gear", "low gear"),
        ],
    ),
    Theme(
        "Garden",
        SKILL,
        "trail",
        [
            ("soil dry", "water", "drain"),
            ("soil wet", "drain", "water"),
            ("leaves pale", "feed", "starve"),
            ("leaves rank", "starve", "feed"),
            ("sun harsh", "shade", "bare"),
            ("sun weak", "bare", "shade"),
        ],
    ),
    Theme(
        "Queue",
        SKILL,
        "streak",
        [
            ("short job", "first", "last"),
            ("long job", "last", "first"),
            ("urgent job", "now", "later"),
            ("idle job", "later", "now"),
            ("shared job", "split", "whole"),
            ("secret job", "whole", "split"),
        ],
    ),
]

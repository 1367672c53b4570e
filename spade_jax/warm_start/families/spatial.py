"""Spatial reasoning: turning, mirroring, above and below."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Spatial Reasoning"

FAMILIES = [
    Theme(
        "Compass",
        SKILL,
        "trail",
        [
            ("turn right from north", "east", "west"),
            ("turn left from north", "west", "east"),
            ("turn right from east", "south", "north"),
            ("turn left from east", "north", "south"),
            ("halfway north to east", "northeast", "northwest"),
            ("halfway north to west", "northwest", "northeast"),
        ],
    ),
    Theme(
        "Mirror",
        SKILL,
        "streak",
        [
            ("mirror of b", "d", "b"),
            ("mirror of d", "b", "d"),
            ("mirror of p", "q", "p"),
            ("mirror of q", "p", "q"),
            ("mirror of S", "Z", "S"),
            ("mirror of Z", "S", "Z"),
        ],
    ),
    Theme(
        "Shelf",
        SKILL,
        "lives",
        [
            ("above the cup", "plate", "spoon"),
            ("below the cup", "spoon", "plate"),
            ("above the book", "lamp", "shoe"),
            ("below the book", "shoe", "lamp"),
            ("above the pot", "lid", "stove"),
            ("below the pot", "stove", "lid"),
        ],
    ),
    Theme(
        "Tunnel",
        SKILL,
        "trail",
        [
            ("bends left", "port", "starboard"),
            ("bends right", "starboard", "port"),
            ("slopes up", "climb", "dive"),
            ("slopes down", "dive", "climb"),
            ("gets narrow", "slow", "fast"),
            ("gets wide", "fast", "slow"),
        ],
    ),
    Theme(
        "Fold",
        SKILL,
        "streak",
        [
            ("fold top", "bottom", "top"),
            ("fold bottom", "top", "bottom"),
            ("fold front", "back", "front"),
            ("fold back", "front", "back"),
            ("fold inside", "outside", "inside"),
            ("fold outside", "inside", "outside"),
        ],
    ),
]

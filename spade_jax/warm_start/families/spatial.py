"""Spatial reasoning: turning, mirroring, above and below."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Spatial Reasoning"

FAMILIES = [
    Theme(
        "Compass",
        SKILL,
        [
            ("turn right from north", "east"),
            ("turn left from north", "west"),
            ("turn right from east", "south"),
            ("turn left from east", "north"),
            ("halfway north to east", "northeast"),
            ("halfway north to west", "northwest"),
        ],
    ),
    Theme(
        "Mirror",
        SKILL,
        [
            ("mirror of b", "d"),
            ("mirror of d", "b"),
            ("mirror of p", "q"),
            ("mirror of q", "p"),
            ("mirror of S", "Z"),
            ("mirror of Z", "S"),
        ],
    ),
    Theme(
        "Shelf",
        SKILL,
        [
            ("above the cup", "plate"),
            ("below the cup", "spoon"),
            ("above the book", "lamp"),
            ("below the book", "shoe"),
            ("above the pot", "lid"),
            ("below the pot", "stove"),
        ],
    ),
    Theme(
        "Tunnel",
        SKILL,
        [
            ("bends left", "port"),
            ("bends right", "starboard"),
            ("slopes up", "climb"),
            ("slopes down", "dive"),
            ("gets narrow", "slow"),
            ("gets wide", "fast"),
        ],
    ),
    Theme(
        "Fold",
        SKILL,
        [
            ("fold top", "bottom"),
            ("fold bottom", "top"),
            ("fold front", "back"),
            ("fold back", "front"),
            ("fold inside", "outside"),
            ("fold outside", "inside"),
        ],
    ),
]

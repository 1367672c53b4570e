"""Mathematical reasoning: which operation, which number comes next to, half and double."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Mathematical Reasoning"

FAMILIES = [
    Theme(
        "Balance",
        SKILL,
        [
            ("sum too low", "plus"),
            ("sum too high", "minus"),
            ("product too low", "times"),
            ("product too high", "divide"),
            ("area from side", "square"),
            ("side from area", "root"),
        ],
    ),
    Theme(
        "Neighbour",
        SKILL,
        [
            ("beside 3", "4"),
            ("beside 5", "6"),
            ("beside 8", "9"),
            ("beside 6", "7"),
            ("beside 2", "3"),
            ("beside 7", "8"),
        ],
    ),
    Theme(
        "Scale",
        SKILL,
        [
            ("scale 2", "4"),
            ("scale 4", "8"),
            ("scale 6", "12"),
            ("scale 8", "16"),
            ("scale 10", "20"),
            ("scale 12", "24"),
        ],
    ),
    Theme(
        "Compare",
        SKILL,
        [
            ("9 or 2", "9"),
            ("4 or 7", "7"),
            ("1 or 5", "5"),
            ("8 or 3", "8"),
            ("6 or 4", "6"),
            ("3 or 1", "3"),
        ],
    ),
    Theme(
        "Parity",
        SKILL,
        [
            ("12 and 7", "12"),
            ("9 and 14", "14"),
            ("16 and 11", "16"),
            ("5 and 18", "18"),
            ("13 and 10", "10"),
            ("20 and 15", "20"),
        ],
    ),
]

"""Mathematical reasoning: which operation, which number comes next to, half and double."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Mathematical Reasoning"

FAMILIES = [
    Theme(
        "Balance",
        SKILL,
        "trail",
        [
            ("sum too low", "plus", "minus"),
            ("sum too high", "minus", "plus"),
            ("product too low", "times", "divide"),
            ("product too high", "divide", "times"),
            ("area from side", "square", "root"),
            ("side from area", "root", "square"),
        ],
    ),
    Theme(
        "Neighbour",
        SKILL,
        "streak",
        [
            ("beside 3", "4", "2"),
            ("beside 5", "6", "4"),
            ("beside 8", "9", "7"),
            ("beside 6", "7", "5"),
            ("beside 2", "3", "1"),
            ("beside 7", "8", "6"),
        ],
    ),
    Theme(
        "Scale",
        SKILL,
        "lives",
        [
            ("scale 2", "4", "1"),
            ("scale 4", "8", "2"),
            ("scale 6", "12", "3"),
            ("scale 8", "16", "4"),
            ("scale 10", "20", "5"),
            ("scale 12", "24", "6"),
        ],
    ),
    Theme(
        "Compare",
        SKILL,
        "trail",
        [
            ("9 or 2", "9", "2"),
            ("4 or 7", "7", "4"),
            ("1 or 5", "5", "1"),
            ("8 or 3", "8", "3"),
            ("6 or 4", "6", "4"),
            ("3 or 1", "3", "1"),
        ],
    ),
    Theme(
        "Parity",
        SKILL,
        "streak",
        [
            ("12 and 7", "12", "7"),
            ("9 and 14", "14", "9"),
            ("16 and 11", "16", "11"),
            ("5 and 18", "18", "5"),
            ("13 and 10", "10", "13"),
            ("20 and 15", "20", "15"),
        ],
    ),
]

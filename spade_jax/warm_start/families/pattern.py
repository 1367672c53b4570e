"""Pattern recognition: what comes next."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Pattern Recognition"

FAMILIES = [
    Theme(
        "Letters",
        SKILL,
        [
            ("a b c", "d"),
            ("d e f", "g"),
            ("g h i", "j"),
            ("j k l", "m"),
            ("m n o", "p"),
            ("p q r", "s"),
        ],
    ),
    Theme(
        "Steps",
        SKILL,
        [
            ("2 4 6", "8"),
            ("1 3 5", "7"),
            ("10 20 30", "40"),
            ("3 6 9", "12"),
            ("5 10 15", "20"),
            ("9 8 7", "6"),
        ],
    ),
    Theme(
        "Rhythm",
        SKILL,
        [
            ("loud soft loud", "hush"),
            ("soft loud soft", "boom"),
            ("long short long", "dit"),
            ("short long short", "dah"),
            ("high low high", "do"),
            ("low high low", "la"),
        ],
    ),
    Theme(
        "Lights",
        SKILL,
        [
            ("red then amber", "green"),
            ("green then amber", "red"),
            ("dusk then night", "dawn"),
            ("dawn then noon", "dusk"),
            ("new then half", "full"),
            ("full then half", "new"),
        ],
    ),
    Theme(
        "Echo",
        SKILL,
        [
            ("up up down up up", "sink"),
            ("down down up down down", "rise"),
            ("in in out in in", "leave"),
            ("out out in out out", "enter"),
            ("on on off on on", "douse"),
            ("off off on off off", "light"),
        ],
    ),
]

"""Pattern recognition: what comes next."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Pattern Recognition"

FAMILIES = [
    Theme(
        "Letters",
        SKILL,
        "trail",
        [
            ("a b c", "d", "z"),
            ("d e f", "g", "c"),
            ("g h i", "j", "f"),
            ("j k l", "m", "i"),
            ("m n o", "p", "l"),
            ("p q r", "s", "o"),
        ],
    ),
    Theme(
        "Steps",
        SKILL,
        "streak",
        [
            ("2 4 6", "8", "0"),
            ("1 3 5", "7", "9"),
            ("10 20 30", "40", "5"),
            ("3 6 9", "12", "1"),
            ("5 10 15", "20", "25"),
            ("9 8 7", "6", "10"),
        ],
    ),
    Theme(
        "Rhythm",
        SKILL,
        "lives",
        [
            ("loud soft loud", "hush", "boom"),
            ("soft loud soft", "boom", "hush"),
            ("long short long", "dit", "dah"),
            ("short long short", "dah", "dit"),
            ("high low high", "do", "la"),
            ("low high low", "la", "do"),
        ],
    ),
    Theme(
        "Lights",
        SKILL,
        "trail",
        [
            ("red then amber", "green", "red"),
            ("green then amber", "red", "green"),
            ("dusk then night", "dawn", "dusk"),
            ("dawn then noon", "dusk", "dawn"),
            ("new then half", "full", "new"),
            ("full then half", "new", "full"),
        ],
    ),
    Theme(
        "Echo",
        SKILL,
        "streak",
        [
            ("up up down up up", "sink", "rise"),
            ("down down up down down", "rise", "sink"),
            ("in in out in in", "leave", "enter"),
            ("out out in out out", "enter", "leave"),
            ("on on off on on", "douse", "light"),
            ("off off on off off", "light", "douse"),
        ],
    ),
]

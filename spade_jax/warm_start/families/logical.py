"""Logical deduction: whom to believe and what follows."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Logical Deduction"

FAMILIES = [
    Theme(
        "Guard",
        SKILL,
        "trail",
        [
            ("knight says left", "left", "right"),
            ("knave says left", "right", "left"),
            ("knight says up", "up", "down"),
            ("knave says up", "down", "up"),
            ("knight says in", "in", "out"),
            ("knave says in", "out", "in"),
        ],
    ),
    Theme(
        "Negate",
        SKILL,
        "streak",
        [
            ("not hot", "cold", "hot"),
            ("not cold", "hot", "cold"),
            ("not wet", "dry", "wet"),
            ("not dry", "wet", "dry"),
            ("not early", "late", "early"),
            ("not late", "early", "late"),
        ],
    ),
    Theme(
        "Witness",
        SKILL,
        "lives",
        [
            ("Ann saw it", "Ann", "Bob"),
            ("Bob saw it", "Bob", "Ann"),
            ("Cal saw it", "Cal", "Dee"),
            ("Dee saw it", "Dee", "Cal"),
            ("Eve saw it", "Eve", "Fay"),
            ("Fay saw it", "Fay", "Eve"),
        ],
    ),
    Theme(
        "Infer",
        SKILL,
        "trail",
        [
            ("rain means mud: rain", "mud", "dust"),
            ("drought means dust: drought", "dust", "mud"),
            ("frost means ice: frost", "ice", "dew"),
            ("dawn means dew: dawn", "dew", "ice"),
            ("storm means waves: storm", "waves", "calm"),
            ("peace means calm: peace", "calm", "waves"),
        ],
    ),
    Theme(
        "Order",
        SKILL,
        "streak",
        [
            ("elder of Max and Ned", "Max", "Ned"),
            ("younger of Max and Ned", "Ned", "Max"),
            ("elder of Oli and Pia", "Oli", "Pia"),
            ("younger of Oli and Pia", "Pia", "Oli"),
            ("elder of Ria and Sam", "Ria", "Sam"),
            ("younger of Ria and Sam", "Sam", "Ria"),
        ],
    ),
]

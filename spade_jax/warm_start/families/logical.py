"""Logical deduction: whom to believe and what follows."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Logical Deduction"

FAMILIES = [
    Theme(
        "Guard",
        SKILL,
        [
            ("knight says left", "left"),
            ("knave says left", "right"),
            ("knight says up", "up"),
            ("knave says up", "down"),
            ("knight says in", "in"),
            ("knave says in", "out"),
        ],
    ),
    Theme(
        "Negate",
        SKILL,
        [
            ("not hot", "cold"),
            ("not cold", "hot"),
            ("not wet", "dry"),
            ("not dry", "wet"),
            ("not early", "late"),
            ("not late", "early"),
        ],
    ),
    Theme(
        "Witness",
        SKILL,
        [
            ("Ann saw it", "Ann"),
            ("Bob saw it", "Bob"),
            ("Cal saw it", "Cal"),
            ("Dee saw it", "Dee"),
            ("Eve saw it", "Eve"),
            ("Fay saw it", "Fay"),
        ],
    ),
    Theme(
        "Infer",
        SKILL,
        [
            ("rain means mud: rain", "mud"),
            ("drought means dust: drought", "dust"),
            ("frost means ice: frost", "ice"),
            ("dawn means dew: dawn", "dew"),
            ("storm means waves: storm", "waves"),
            ("peace means calm: peace", "calm"),
        ],
    ),
    Theme(
        "Order",
        SKILL,
        [
            ("elder of Max and Ned", "Max"),
            ("younger of Max and Ned", "Ned"),
            ("elder of Oli and Pia", "Oli"),
            ("younger of Oli and Pia", "Pia"),
            ("elder of Ria and Sam", "Ria"),
            ("younger of Ria and Sam", "Sam"),
        ],
    ),
]

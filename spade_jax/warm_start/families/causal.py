"""Causal inference: which effect has which cause."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Causal Inference"

FAMILIES = [
    Theme(
        "Effect",
        SKILL,
        [
            ("fire", "smoke"),
            ("frost", "ice"),
            ("flood", "mud"),
            ("drought", "dust"),
            ("quake", "cracks"),
            ("wind", "waves"),
        ],
    ),
    Theme(
        "Cause",
        SKILL,
        [
            ("lamp dark", "switch"),
            ("house dark", "mains"),
            ("one pipe dry", "tap"),
            ("all pipes dry", "pump"),
            ("one wheel slow", "brake"),
            ("all wheels slow", "engine"),
        ],
    ),
    Theme(
        "Remedy",
        SKILL,
        [
            ("fever", "rest"),
            ("stiffness", "run"),
            ("thirst", "drink"),
            ("hunger", "eat"),
            ("glare", "hat"),
            ("gloom", "torch"),
        ],
    ),
    Theme(
        "Valve",
        SKILL,
        [
            ("pressure rising", "open"),
            ("pressure falling", "close"),
            ("level rising", "pump out"),
            ("level falling", "pump in"),
            ("heat rising", "vent"),
            ("heat falling", "seal"),
        ],
    ),
    Theme(
        "Lever",
        SKILL,
        [
            ("red lamp", "pull"),
            ("blue lamp", "push"),
            ("high hum", "lift"),
            ("deep hum", "drop"),
            ("long hiss", "twist"),
            ("short hiss", "tap"),
        ],
    ),
]

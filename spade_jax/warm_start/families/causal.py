"""Causal inference: which effect has which cause."""

from spade_jax.warm_start.families.reaction import Theme

SKILL = "Causal Inference"

FAMILIES = [
    Theme(
        "Effect",
        SKILL,
        "trail",
        [
            ("fire", "smoke", "ice"),
            ("frost", "ice", "smoke"),
            ("flood", "mud", "dust"),
            ("drought", "dust", "mud"),
            ("quake", "cracks", "waves"),
            ("wind", "waves", "cracks"),
        ],
    ),
    Theme(
        "Cause",
        SKILL,
        "streak",
        [
            ("lamp dark", "switch", "mains"),
            ("house dark", "mains", "switch"),
            ("one pipe dry", "tap", "pump"),
            ("all pipes dry", "pump", "tap"),
            ("one wheel slow", "brake", "engine"),
            ("all wheels slow", "engine", "brake"),
        ],
    ),
    Theme(
        "Remedy",
        SKILL,
        "lives",
        [
            ("fever", "rest", "run"),
            ("stiffness", "run", "rest"),
            ("thirst", "drink", "eat"),
            ("hunger", "eat", "drink"),
            ("glare", "hat", "torch"),
            ("gloom", "torch", "hat"),
        ],
    ),
    Theme(
        "Valve",
        SKILL,
        "trail",
        [
            ("pressure rising", "open", "close"),
            ("pressure falling", "close", "open"),
            ("level rising", "pump out", "pump in"),
            ("level falling", "pump in", "pump out"),
            ("heat rising", "vent", "seal"),
            ("heat falling", "seal", "vent"),
        ],
    ),
    Theme(
        "Lever",
        SKILL,
        "streak",
        [
            ("red lamp", "pull", "push"),
            ("blue lamp", "push", "pull"),
            ("high hum", "lift", "drop"),
            ("deep hum", "drop", "lift"),
            ("long hiss", "twist", "tap"),
            ("short hiss", "tap", "twist"),
        ],
    ),
]

"""Three environments written by hand, as text for people and tests; never imported."""

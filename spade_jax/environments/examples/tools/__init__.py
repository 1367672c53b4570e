"""Three tool environments written by hand, as text for people and tests; never imported."""

"""Nouns: what an event, a state and a clock value are."""

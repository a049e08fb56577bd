"""The shipped test kit: events and histories to test monitors with."""

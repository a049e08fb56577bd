"""The shipped test kit."""

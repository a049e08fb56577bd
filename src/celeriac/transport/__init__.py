"""Pipes: one small protocol over any broker, and its implementations."""

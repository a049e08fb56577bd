"""Shells: the rules of :mod:`celeriac.core`, with locks, clocks and loggers around them."""

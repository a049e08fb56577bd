"""Benchmarks, each side by side with its peer in one run: ``make bench NAME=fold``."""

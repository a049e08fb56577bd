"""Disk: what outlives a process."""

"""Ways to run tasks side by side."""

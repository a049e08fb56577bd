"""Other programs: started, awaited, watched over and ended, so that none outlives who started it."""

"""What can be heard and seen, made on the spot: sounds.py, and films.py, which has videos."""

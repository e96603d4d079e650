"""Models that pool: what they make of a prompt is a vector, not text.

embedding.py   models that embed
"""

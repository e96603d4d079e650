"""Models that pool: what they make of a prompt is a vector, not text.

backend.py      what they share
embedding.py    models that embed
scoring.py      models that score pairs of texts, or classify texts
activation.py   from logits to scores
pairs.py        a prompt of a pair, cut to its limits
rerankers.py    which models rank, and by which prompts
"""

"""More than one candidate for an answer.

best_of.py      the likeliest of several sequences, on any engine
beam.py         beam search by itself: no engine, no text (vllm/beam.py runs it)
beam_stops.py   stop strings on prefixes that several beams share
"""

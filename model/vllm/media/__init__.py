"""Images, audio and videos on vLLM: decoding (decoder.py; audio and videos in a child process: child_process.py,
decoding.py, preloaded.py), their way into vLLM's renderer (connector.py), and what the core has of them
(image_cache.py).
"""

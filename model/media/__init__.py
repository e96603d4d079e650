"""Images, audio and videos of requests: where they stand in one (parts.py), which URLs may be fetched (url_policy.py),
fetching (fetch.py) over addresses that may be reached (network.py), what an image must be (images.py).

The limits are options (options/media_rules.py); process/prepare.py calls all this before the engine sees a request.
"""

"""Images of requests: which URLs may be fetched (url_policy.py), fetching (fetch.py), what an image must be
(images.py).

The limits are options (options/image_rules.py); process/prepare.py calls all this before the engine sees a request.
"""

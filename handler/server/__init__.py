"""The local server: the same service as behind DJL, on HTTP.

app.py             the application: routes, the key, requests to the service
paths.py           the paths of dialects, as the application routes them
access.py          who is served: the API key, and which web pages
adapters.py        the management API of adapters
host_messages.py   what comes and goes in it
cancel.py          the route that ends a running request
streams.py         wakes the event loop once a step, for all streams
hooks.py           hooks of AWS's library for containers, where a model directory has some
connections/       uvicorn's connections; requests of the simplest form, from bytes to bytes
body_reading.py    how bodies are read, and how much of them is held
openapi.py         /openapi.json
playground/        the page at GET /
sockets.py         the port, taken before the engine starts
run.py             what listens: uvicorn, with its own limits
shutdown.py        how it ends
"""

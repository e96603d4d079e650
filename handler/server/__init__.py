"""The local server: the same service as behind DJL, on HTTP.

app.py             the application: routes, the key, requests to the service
streams.py         an answer as it comes
bodies.py          how bodies are read, and how much of them is held
openapi.py         /openapi.json
run.py             what listens: uvicorn, with its own limits
shutdown.py        how it ends
"""

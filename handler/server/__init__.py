"""The local server: the same service as behind DJL, on HTTP.

app.py             the application: routes, the key, requests to the service
wakeups.py         wakes the event loop once a step, for all streams
body_reading.py    how bodies are read, and how much of them is held
openapi.py         /openapi.json
run.py             what listens: uvicorn, with its own limits
shutdown.py        how it ends
"""

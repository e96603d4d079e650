"""Connections of the local server's clients.

connection.py    uvicorn's, which hands on requests of the simplest form, and takes records as they come
direct.py        these requests, from a connection's bytes to its bytes
waiting.py       which of those that wait for a request gives way to others
"""

"""Stateful sessions: made and closed by requests, named by a header, kept in a folder that all workers share.

requests.py     a request's session: the header, NEW_SESSION, CLOSE
store.py        the folder: which sessions there are, until when, how much they may hold
ledger.py       the file that counts them, under a lock
session.py      one session: its values, for user code
values.py       a value as a file
s3.py           the copy in S3: restored at the start, written each minute and at the stop

What user code sees is formatters/sessions.py; which requests ask for one, formatters/control.py.
"""

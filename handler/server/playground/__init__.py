"""The page that the local server shows at `GET /`: a conversation, and the request that it is, as it is sent and answered.

files.py       the page's files, a fixed list, and the headers that they are sent with
facts.py       /playground/setup.json: what the page must know of the model, its dialects among it
examples.py    an example request for each route, what of it the page's form shows, and what a conversation may begin with:
               a new dialect is an entry here
page/          HTML, CSS and JavaScript modules as browsers read them; main.js says what each is for

Nothing is built, and nothing is fetched from elsewhere. The page asks what any client may ask; it has no rights of its
own.
"""

"""The page that the local server shows at `GET /`: a conversation, and the request that it is.

files.py       the page's files, a fixed list, and the headers that they are sent with
facts.py       /playground/setup.json: what the page must know of the model, its dialects among it
examples.py    an example request for each route, and what of it the page's form shows: a new dialect is an entry here;
               what a conversation may begin with
page/          HTML, CSS and JavaScript modules as browsers read them; main.js says what each is for

Nothing is built, and nothing is fetched from elsewhere. The page asks what any client may ask; it has no rights of its
own.
"""

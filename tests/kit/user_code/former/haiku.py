# mypy: ignore-errors
# pyright: reportAttributeAccessIssue=false
# haiku.py, in the model directory, with option.output_formatter=haiku:Haiku
from lmi.formatters import Answer, Call, Route
from lmi.formatters.base import JSON, encode
from lmi.model.errors import PayloadError
from lmi.model.events import Delta, Failed
from lmi.model.generation import Generation, Sampling


class Reply:
    """One answer in the making: `feed` gets each event and returns what is ready to be sent."""

    status, content_type, headers, failure, finished = 200, JSON, {}, None, False

    def __init__(self):
        self.text = ""

    def feed(self, event, prompt=0):
        if isinstance(event, Failed):
            self.finished, self.failure, self.status = True, event.error, event.error.status
            return [encode({"problem": event.error.message})]
        if isinstance(event, Delta):
            self.text += event.text
            if event.finish:
                self.finished = True
                return [encode({"haiku": self.text, "why_it_ended": event.finish.reason})]
        return []


class Haiku:
    NAME = "haiku"  # for option.dialect, and dialect=haiku in the custom attributes
    MARK = "about"  # the field that tells it, for messages
    ROUTES = (Route("/haiku"),)  # paths of the local server

    def matches(self, payload, request, settings):
        return "about" in payload

    def parse(self, payload, request, settings):
        about = payload.get("about")
        if not isinstance(about, str):
            raise PayloadError.of("about", about, "a string")
        generation = Generation(
            request_id=request.request_id,
            prompt=f"Write a haiku about {about}.",
            sampling=Sampling(temperature=0.7, max_tokens=60),
        )
        return Call((generation,), Reply())

    def refuse(self, error, payload, request, settings):
        return Answer(encode({"problem": error.message}), error.status, failure=error)

"""The room of all dialects' conversations: what clients send as messages becomes a Conversation here.

content.py     what a message says: texts, images, and the types of parts that a dialect declares
builder.py     messages, answers with their reasoning and calls, results
media.py       the URLs of images, audio and videos
carried.py     reasoning that clients carry without showing it
tools.py       the tools that are offered, and which of them may or must be called; custom_tools.py: custom ones
template_arguments.py   variables of the chat template, effort and thinking among them
"""

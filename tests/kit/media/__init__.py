"""What can be heard and seen, made on the spot: sounds.py, spoken.py, which has sentences, and films.py, which has
videos; and models that take them: audio_chat.py, video_chat.py, and speech.py, which writes down what is said.
"""

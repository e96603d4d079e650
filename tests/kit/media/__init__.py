"""What can be heard and seen, made on the spot: sounds.py, spoken.py, which has sentences, and films.py, which has
videos; and models that take them: audio_chat.py, video_chat.py, omni.py, voxtral.py, speech.py, which writes down what
is said, asr_chat.py, which does both, and asr_files.py, which are without weights.
"""

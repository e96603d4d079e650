"""Hostile requests: samples, what is made of them, and what must hold for every answer."""

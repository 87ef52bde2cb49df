"""Scenes learned from photos: wrong pixels on purpose, maps of the pixels that a training came to doubt."""

"""The main job on real input: hash every file of a folder with several workers, one of which is frozen on the way."""

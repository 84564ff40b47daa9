"""Measurements of Fencerow on throwaway servers; never a test, never an existing database."""

"""Fencerow: a PostgreSQL job queue in which every claim is a fenced lease."""

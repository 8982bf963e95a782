"""Clients, clusters and workers: their start, their memory, their versions and signs of life."""

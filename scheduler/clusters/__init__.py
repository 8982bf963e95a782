"""Clients, clusters and their workers: how they start, what they have, whether they answer."""

"""Where the checkout is, for tests that read its files or start processes of their own."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""

"""Rows given their nearest rows: what a coreset leaves is local, and the nearest rows know it (§9)."""

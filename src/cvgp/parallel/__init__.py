"""The group of processes that work on one fit."""

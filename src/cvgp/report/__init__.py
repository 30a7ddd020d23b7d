"""A page about a fitted model: one file of HTML with charts, tables and cautions, that needs no network."""

from cvgp.report.page import Report

__all__ = ["Report"]

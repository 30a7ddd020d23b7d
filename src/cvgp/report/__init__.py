"""A page about a fitted model: one file of HTML with charts, tables and warnings, that needs no network."""

from cvgp.report.page import Report, make_report

__all__ = ["Report", "make_report"]

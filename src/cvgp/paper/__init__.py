"""The paper's systems, data sets, protocol, tables and figures, behind `cvgp paper`.

``from cvgp.paper.baselines import SVGP`` gives one of the compared systems by itself.
"""

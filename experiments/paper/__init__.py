"""The paper's systems and studies; ``from experiments.paper.methods import SVGP`` gives one of the systems."""

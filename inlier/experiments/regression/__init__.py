"""Linear regression with outliers (figures 2 and 3a).

``data`` draws the problems, ``runner`` runs the stochastic methods, ``direct`` has those that take no steps,
and ``experiment`` and ``figures`` make the experiment of them.
"""

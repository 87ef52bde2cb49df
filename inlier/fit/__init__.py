"""``inlier fit`` and ``inlier predict``: a robust model, ranked suspects and a report, without code.

A table goes through ``_tables`` (read), ``_columns`` and ``_targets`` (infer types), ``_pipeline`` (fit),
``_holdout`` (compare with the unweighted model) and ``_ranking`` (suspects); ``_table_fit`` runs these steps.
Images go through ``_image_data`` (read) and ``inlier._vision`` (train); ``_image_fit`` runs these steps.
``_outputs`` writes folders and files atomically, ``_predict`` and ``_predict_images`` apply a fitted model.

From Python, the models that ``inlier fit`` wrote are loaded by:

- :func:`load_pipeline`: the scikit-learn pipeline of a table;
- :func:`load_network`: the network of images.
"""

from __future__ import annotations

from inlier.fit._models import load_pipeline
from inlier.fit._networks import load_network

__all__ = ["load_network", "load_pipeline"]

"""Image classification under label noise: ``experiment`` (rows and metrics), ``methods`` and ``figures``."""

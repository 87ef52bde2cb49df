"""Images: networks, data in memory, whole-batch augmentation, label noise."""

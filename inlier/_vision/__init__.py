"""Images, networks and the trainer that ``inlier fit`` and the experiments share.

:mod:`~inlier._vision.images` decodes and caches images, :mod:`~inlier._vision.batches` shuffles and augments
them, :mod:`~inlier._vision.networks` has the networks, :mod:`~inlier._vision.training` trains them with any
method at the loss, and :mod:`~inlier._vision.distributed` is what it needs of ``torch.distributed``.
"""

"""Datasets of the experiments.

``cifar`` reads CIFAR-10 and the human labels of CIFAR-10N, ``label_noise`` makes noisy labels, ``corruption``
corrupts images with a mask of the corrupted pixels.
"""

"""The paper's experiments, their datasets and baselines; only ``inlier reproduce`` imports them."""

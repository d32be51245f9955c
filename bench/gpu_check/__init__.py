"""`make gpu-check`: what the trainer does on one GPU, with a verdict and figures for each check."""

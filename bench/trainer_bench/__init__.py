"""`make bench-trainer`: the trainer's speed, as ratios of measurements in one run."""

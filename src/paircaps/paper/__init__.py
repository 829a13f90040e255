"""The paper's experiments: their numbers, plan, trainings and report."""

"""The paper's experiments: a recipe each, and what to make of their results."""

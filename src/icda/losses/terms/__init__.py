"""What losses are made of: the terms of their formulas, each with its own tests."""

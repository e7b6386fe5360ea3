"""Builders of bias: what they take from clean data, they take from a seed."""

"""Questions of our own, beside the paper's tables."""

"""The proving ground of the audit's verdicts: known biases planted in real features, and what the audit says of them."""

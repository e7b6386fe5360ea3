"""The mathematics as pure functions of tensors: one readable reference a formula, fast forms behind the same name."""

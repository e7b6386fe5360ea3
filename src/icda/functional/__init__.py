"""The mathematics as pure functions of tensors: one readable reference for each formula, fast forms behind the same name."""

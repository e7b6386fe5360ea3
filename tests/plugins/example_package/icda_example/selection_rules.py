from icda.selection import SelectionRule


class Compromise(SelectionRule):
    def score(self, metrics) -> float:
        return (metrics["accuracy"] + metrics["worst_class_accuracy"]) / 2


compromise = Compromise(
    "validation_compromise",
    "accuracy",
    description="highest mean of the accuracy and the worst class's",
)

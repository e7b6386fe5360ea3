"""The trainer from Python: a task by name, a method by name, a result as a dict."""

import tempfile

from icda.training import TrainConfig, train

with tempfile.TemporaryDirectory() as folder:
    for method in ("cross_entropy", "icda"):
        config = TrainConfig(task="digits_lt", method=method, epochs=10, out=f"{folder}/{method}")
        result = train(config)
        metrics = result["metrics"]
        print(f"{method:>13}: accuracy {metrics['accuracy']:.3f}, worst class {metrics['worst_class_accuracy']:.3f}")

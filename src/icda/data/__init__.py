"""Samples come in here: tasks by name, a user's own images and texts, and batches made of them."""

from icda.data.loader import BatchLoader, balanced_weights
from icda.data.own.tasks import csv_task, data_task, folder_task
from icda.data.registry import TASKS, create_task
from icda.data.task import Batch, Source, Split, Task
from icda.data.torch_datasets import dataset_task

__all__ = ["TASKS", "Batch", "BatchLoader", "Source", "Split", "Task"]
__all__ += ["balanced_weights", "create_task", "csv_task", "data_task", "dataset_task", "folder_task"]

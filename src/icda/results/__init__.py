"""What a run leaves behind: the names of its files, and its result with a type, a reader and a writer."""

from icda.results.files import UnwritableError, read_json, write_atomically
from icda.results.run_result import SCHEMA_VERSION, EpochRecord, Figure, RunResult

__all__ = ["SCHEMA_VERSION", "EpochRecord", "Figure", "RunResult", "UnwritableError", "read_json", "write_atomically"]

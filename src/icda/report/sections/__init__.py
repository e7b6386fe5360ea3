"""The parts of the report page: each a function from a run to HTML, empty when the run has nothing for it."""

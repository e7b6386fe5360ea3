"""Several commands in one process, since importing torch takes longer than they do: `python commands.py '[["list"]]'`.

Prints the exit code, the output and the complaints of each as JSON.
"""

import contextlib
import io
import json
import sys

from icda.cli.main import main


def run(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    print(json.dumps([run(words) for words in json.loads(sys.argv[1])]))

"""Several files of a folder that are replaced together."""

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from icda.results.claims import claimed

NEXT = ".next"  # folder of new files that are whole, on their way to their places


@contextmanager
def renewed(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """A folder for new files, which take the place of the old ones all together or not at all.

    Old files of these `names` that have no successor go. All stay until every new one is on the disk. Then the folder of
    the new ones gets the name `NEXT`: from that moment on they count, and moving them to their places is finished by
    whoever comes next if this process is killed.
    """
    with claimed(folder):
        settle(folder)
        aside = Path(tempfile.mkdtemp(suffix=".part", prefix=".", dir=folder))
        try:
            yield aside
            for name in names:
                if not (aside / name).exists():
                    (aside / name).touch()  # an old file of this name goes
            aside.rename(folder / NEXT)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        settle(folder)


def settle(folder: Path) -> None:
    """Move new files that are whole to their places, and remove what killed processes left half written."""
    for scrap in folder.glob(".*.part"):
        if scrap.is_dir() and not scrap.is_symlink():
            shutil.rmtree(scrap, ignore_errors=True)
    aside = folder / NEXT
    if not aside.is_dir() or aside.is_symlink():
        return
    for path in sorted(aside.iterdir()):
        if path.stat().st_size:
            path.replace(folder / path.name)
        else:
            (folder / path.name).unlink(missing_ok=True)
            path.unlink()
    shutil.rmtree(aside)


def place_of(folder: Path, name: str) -> Path:
    """Where the newest whole file of this name stands."""
    aside = folder / NEXT / name
    return aside if aside.is_file() else folder / name

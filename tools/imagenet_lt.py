"""Write the tables of ImageNet-LT that `icda embed` reads, from OLTR's lists:

python tools/imagenet_lt.py LISTS IMAGES
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from icda.data.datasets.imagenet_lt import PARTS, checked_list, list_file
from icda.data.registry import check_files


def write_tables(lists: Path, images: Path, out: Path) -> list[Path]:
    """Write train.csv, val.csv and test.csv for `icda embed`: the images of OLTR's lists by their place in `images`."""
    check_files(lists, "ImageNet-LT", map(list_file, PARTS))
    out.mkdir(parents=True, exist_ok=True)
    tables = []
    for part in PARTS:
        names, labels = checked_list(lists, part)
        tables.append(out / f"{part}.csv")
        with tables[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["image", "label"])
            paths = [str(images.absolute() / name) for name in names]
            writer.writerows(zip(paths, labels.tolist(), strict=True))
    return tables


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=Path, help="folder with OLTR's lists; the tables are written beside them")
    parser.add_argument("images", type=Path, help="folder of ImageNet, with train and val in it")
    options = parser.parse_args(arguments)
    for table in write_tables(options.lists, options.images, options.lists):
        print(f"icda embed {table} --allow-outside --out {table.with_suffix('.npz')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

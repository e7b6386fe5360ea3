"""The pictures of the documentation, from training to file, with one command."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from icda.explain.figures import FigureOptions, TrainedRun, make_figure
from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda_bench.ledger_tables import SHORT_NAMES
from icda_bench.options import Root

DIGITS = TrainConfig(task="digits_lt", epochs=30)
# Small enough for a CPU: a minute per epoch on one core, four at worst on a busy one.
WATERBIRDS = TrainConfig(
    task="waterbirds_64px", model="resnet8", epochs=7, batch_size=64, learning_rate=0.05, schedule="cosine"
)
HEAT = FigureOptions(samples=8, measured=800)
PICTURES = FigureOptions(samples=6)
LARGEST_PICTURE = 400_000  # bytes: a page of documentation holds several


@dataclass
class Arguments:
    """Train CE, ISDA, RISDA and ICDA with one recipe, and draw margins, variances, Grad-CAM and counterfactuals."""

    waterbirds: bool = True
    """Also the pictures of Waterbirds at 64 pixels, which take about ten minutes of training."""
    root: Root = None
    out: Path = Path("runs/figures")
    """Folder for the runs; finished ones are kept."""
    pictures: Path = Path("runs/figures")
    """Folder for the pictures (docs/figures is ours)."""
    tables: Path = Path("runs/figures")
    """Folder for their numbers (benchmarks/results is ours)."""


def make_figures(options: Arguments) -> list[Path]:
    """Train what the figures need, one recipe per task, and draw them; returns the pictures.

    Margins and mapped variances are of CE, ISDA, RISDA and ICDA on the embedded long-tailed digits; Grad-CAM and
    counterfactual pictures of CE and ICDA on Waterbirds at 64 pixels. Finished runs are read, unfinished ones go on.
    """
    digits = trained_runs(DIGITS, ("cross_entropy", "isda", "risda", "icda"), options.out)
    jobs: list[tuple[str, list[TrainedRun], str, FigureOptions | None]]
    jobs = [("margins", digits, "margins", None), ("variance", digits, "variances", None)]
    if options.waterbirds:
        birds = trained_runs(replace(WATERBIRDS, root=options.root), ("cross_entropy", "icda"), options.out)
        jobs += [("gradcam", birds, "gradcam", HEAT), ("counterfactual", birds[1:], "counterfactuals", PICTURES)]
    drawn = []
    for figure, runs, name, drawing in jobs:
        picture, *rows = make_figure(figure, runs, options.pictures / f"{name}.png", drawing)
        shrink(picture)
        drawn.append(picture)
        for table in rows:
            home = options.tables / f"figure_{table.name}"
            home.parent.mkdir(parents=True, exist_ok=True)
            table.replace(home)
    return drawn


def trained_runs(recipe: TrainConfig, methods: Sequence[str], out: str | Path) -> list[TrainedRun]:
    """Runs of several methods with one recipe, trained where they are not finished yet."""
    runs = []
    for method in methods:
        config = replace(recipe, method=method, out=f"{out}/{{task}}/{{method}}/seed{{seed}}")
        result = train(config, resume=True)
        _, task, networks, trained = load_folder(config.folder())
        runs.append(TrainedRun(SHORT_NAMES[method], task, networks, trained, result["history"]))
    return runs


def shrink(picture: Path, largest: int = LARGEST_PICTURE) -> None:
    """Make a PNG that is too large smaller: 256 colours instead of millions."""
    if picture.stat().st_size > largest:
        with Image.open(picture) as image:
            few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(picture, optimize=True)


def run(options: Arguments) -> None:
    print(*make_figures(options), sep="\n")

"""The command line: commands only, each of which parses, calls and prints.

A command imports what it needs when it runs, so that ``inlier --help`` is instant.
"""

from __future__ import annotations

import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

try:
    import typer
except ModuleNotFoundError:
    # The script is installed without the extra too; then it prints this line.
    sys.exit('inlier: the command line needs typer, which is not installed: pip install "inlier[cli]"')

from inlier import _terminal as terminal

if TYPE_CHECKING:
    from inlier.experiments.sweep import Experiment

EXTRA = (
    *(
        "PIL",
        "datasets",
        "jinja2",
        "joblib",
        "matplotlib",
        "pandas",
        "pint",
        "pyarrow",
        "rich",
        "safetensors",
    ),
    *("pydantic", "sklearn", "skops", "skrub", "typer"),
)
"""The packages of the extra ``cli``, by import name."""

MAX_ROWS, MAX_GIGABYTES = 20_000_000, 8.0
"""How much is read at most, unless an option says otherwise."""

# Click's UsageError: typer exports only its subclasses, and newer releases of typer vendor click.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])

app = typer.Typer(
    help="Train models on data of which an unknown part is wrong.",
    epilog="Example:  inlier fit houses.csv --target price",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

scene = typer.Typer(help="Inspect scenes learned from images.")
app.add_typer(scene, name="scene")


def _print_version(requested: bool) -> None:
    if requested:
        from inlier import __version__

        typer.echo(f"inlier {__version__}")
        raise typer.Exit


Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a running cluster.",
        show_default="DASK_SCHEDULER_ADDRESS or RAY_ADDRESS, else a local one",
    ),
]


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


@app.command(epilog="Example:  inlier fit houses.csv --target price")
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A table (a CSV, Parquet or Excel file, or a folder of Parquet files), or images: a folder with "
            "a subfolder for each class, or a Parquet file with the columns img and label.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="The column to predict; required for a table.", show_default=False)
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            help="auto, regression or classification. auto: classes are text, true and false, and integers "
            "of at most 10 distinct values, each with 10 rows on average."
        ),
    ] = "auto",
    model: Annotated[
        str | None, typer.Option(help="For a table: linear or boosting.", show_default="linear")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="For images: the number of epochs.", show_default="by the number of images"),
    ] = None,
    inlier_fraction: Annotated[
        str, typer.Option(help="The fraction of correct samples, like 0.8, or auto to estimate it.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Output folder.", show_default="runs/NAME-fit")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    drop: Annotated[list[str] | None, typer.Option(help="A column to ignore; may be repeated.")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of a CSV file, like cp1252.", show_default="found")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Refuse tables of more rows.")] = MAX_ROWS,
    max_gigabytes: Annotated[float, typer.Option(help="Refuse files of more, uncompressed.")] = MAX_GIGABYTES,
    errors: Annotated[
        str, typer.Option(help="inputs: also search the cells of the other columns for errors.")
    ] = "target",
    encoder: Annotated[
        str | None,
        typer.Option(
            help="A pretrained encoder: sentence-transformers:NAME_OR_FOLDER for texts; timm:NAME, "
            "timm:NAME=FILE.safetensors, timm:FOLDER or a folder with alexnet_features.safetensors for images.",
            show_default="TF-IDF; a network from scratch",
        ),
    ] = None,
    decisions: Annotated[
        Path | None,
        typer.Option(help="Decisions about rows, as the report downloads them.", show_default="none"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output.")] = False,
    backend: Annotated[
        str | None,
        typer.Option(
            help="Read a folder of Parquet files in passes, in bounded memory: stream (this process), or a dask or "
            "ray cluster.",
            show_default="in memory; stream for a folder beyond --max-rows or --max-gigabytes",
        ),
    ] = None,
    address: Address = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Workers of a cluster that is started here.", show_default="one per core"),
    ] = None,
    on_error: Annotated[
        str, typer.Option(help="raise or skip: what to do with a part of a folder that cannot be used.")
    ] = "raise",
) -> None:
    """Fit a table or images of which an unknown part is wrong: a model, a ranking of suspects, a report.

    docs/guides/fit.md describes how columns and images are treated.
    """
    folder, left = Path(), "nothing was written"
    from inlier._clusters import ClusterError

    try:
        fraction = terminal.parse_fraction(inlier_fraction)
        from inlier.fit._command import default_output_folder, plan_fit
        from inlier.fit._tables import Limits, exceeds

        folder, limits = out or default_output_folder(data), Limits(max_rows, max_gigabytes)
        if backend is None and exceeds(data, limits, drop or ()):
            backend = "stream"
        common: dict[str, Any] = {
            "target": target,
            "task": task,
            "model": model,
            "inlier_fraction": fraction,
            "seed": seed,
            "drop": drop or (),
            "overwrite": overwrite,
        }
        if backend is not None:
            from joblib import cpu_count

            from inlier.distributed._command import plan_folder_fit

            left = "the same command resumes where it was"
            steps, run = plan_folder_fit(
                data,
                folder,
                **common,
                backend=backend,
                address=address,
                workers=workers or cpu_count(),
                on_error=on_error,
                epochs=epochs is not None,
                encoding=encoding is not None,
                decisions=decisions is not None,
                encoder=encoder is not None,
                errors=errors != "target",
            )
        else:
            steps, run = plan_fit(
                data,
                folder,
                **common,
                epochs=epochs,
                encoding=encoding,
                limits=limits,
                decisions=decisions,
                encoder=encoder,
                errors=errors,
            )
        with terminal.progress_bar(steps) as progress:
            result = run(progress)
    except ClusterError as error:
        terminal.exit_with(str(error), 1)
    except (KeyboardInterrupt, ImportError, ValueError, OSError) as error:
        terminal.exit_unwritten(error, folder, left)
    for line in result.notes:
        typer.echo(line)
    for heading, text in result.summary:
        typer.echo(f"{typer.style(f'{heading:<16}', bold=True)} {text}")


@app.command(epilog="Example:  inlier predict runs/houses-fit new.csv --out predictions.csv")
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of inlier fit.")],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A table with the columns of the fit; or images: a folder, an image file, "
            "or a Parquet file.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The file of predictions: Parquet if it ends in .parquet, else CSV.")
    ] = Path("predictions.csv"),
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of a CSV file, like cp1252.", show_default="found")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Refuse tables of more rows.")] = MAX_ROWS,
    max_gigabytes: Annotated[float, typer.Option(help="Refuse files of more, uncompressed.")] = MAX_GIGABYTES,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of this name.")] = False,
) -> None:
    """Predict the rows of a table, or images, with a model of inlier fit."""
    try:
        from inlier.fit._predict import predict as run
        from inlier.fit._tables import Limits

        predictions = run(folder, data, out, overwrite, encoding, Limits(max_rows, max_gigabytes))
    except (KeyboardInterrupt, ImportError, ValueError, OSError) as error:
        terminal.exit_unwritten(error, out)
    if predictions.ignored:
        typer.echo(f"columns not used: {', '.join(map(repr, predictions.ignored))}")
    if predictions.skipped:
        typer.echo(f"skipped: {predictions.skipped}")
    if predictions.unread:
        typer.echo(f"cells that do not fit their column, taken as missing: {predictions.unread:,}")
    typer.echo(f"{predictions.count:,} {predictions.unit} predicted: {predictions.out}")


@app.command(epilog="Example:  inlier fix runs/houses-fit decisions.csv")
def fix(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of inlier fit.")],
    decisions: Annotated[
        Path, typer.Argument(metavar="DECISIONS", help="Decisions about rows, as the report downloads them.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The new file.", show_default="NAME-fixed beside the data")
    ] = None,
) -> None:
    """Write the data of a fit with accepted corrections and without what was dropped, never over the original.

    Of a folder of images, this is a list of its files with their labels.
    """
    try:
        from inlier.fit._fix import fix as run

        written, fixed, dropped, unit = run(folder, decisions, out)
    except (KeyboardInterrupt, ImportError, ValueError, OSError) as error:
        terminal.exit_unwritten(error, out)
    typer.echo(f"{fixed:,} {unit}{'' if fixed == 1 else 's'} fixed, {dropped:,} dropped: {written}")


@app.command(
    epilog="Example:  inlier reproduce regression --preset cpu --methods sgd,adaptive-gm --rates 0,0.2,0.4"
)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="classification, regression, scene, theory, or your own experiment as "
            "package.module:ATTRIBUTE.",
        ),
    ],
    preset: Annotated[str, typer.Option(help="paper, cpu or smoke: how much to compute.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Output folder.", show_default="runs/NAME-PRESET")] = None,
    rates: Annotated[str | None, typer.Option(help="Outlier rates, separated by commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of trials.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes.", show_default="one per core")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Where to run: loky (local processes), or a dask or ray cluster.")
    ] = "loky",
    address: Address = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the data, for experiments that need any.", show_default="the Hugging Face hub"
        ),
    ] = None,
) -> None:
    """Run an experiment, and write its tables and figures to the output folder.

    An interrupted run resumes with the same command.
    """
    from inlier.experiments.sweep import SweepError, plan
    from inlier.experiments.sweep._engines import BACKENDS

    try:
        if backend not in BACKENDS:
            raise ValueError(f"backend {backend!r} is unknown; choose from {', '.join(BACKENDS)}")
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs {jobs} is too few; choose 1 or more")
        planned = plan(
            _load(name), preset, terminal.parse_names(methods), terminal.parse_numbers(rates), seeds, data
        )
    except ValueError as error:
        terminal.exit_with(str(error), 2)

    from joblib import cpu_count

    from inlier.experiments.sweep._distributed import follow, is_follower
    from inlier.experiments.sweep._reproduce import Stopped
    from inlier.experiments.sweep._reproduce import reproduce as run
    from inlier.experiments.sweep._results import summary_table
    from inlier.experiments.sweep._sweep import compute_at

    console = terminal.open_console()
    folder = out or Path("runs", f"{planned.experiment.name}-{preset}")
    command = shlex.join(["inlier", *sys.argv[1:]])
    if is_follower():
        follow(compute_at(planned.experiment, folder, data))
        return
    try:
        reproduction = run(
            planned, folder, command, jobs or cpu_count(), backend, address, console, data=data
        )
    except Stopped as stop:
        terminal.exit_with(f"stopped; {stop}. To resume, run the same command: {command}", 130)
    except SweepError as error:
        terminal.exit_with(str(error), 1)
    console.print(summary_table(reproduction.results))
    for path in reproduction.figures:
        typer.echo(f"figure: {path}")
    typer.echo(f"results: {folder / 'results.parquet'}, explained in {folder / 'README.md'}")
    if reproduction.results.failed:
        first = reproduction.results.failed[0]
        terminal.exit_with(
            f"{len(reproduction.results.failed)} rows failed (the same command tries them again), "
            f"{first.row.method} at rate {first.row.rate:g} first: {first.error}",
            1,
        )


@scene.command(epilog="Example:  inlier scene suspects outputs/fox/robust-nerfacto/2025-01-31_120000")
def suspects(
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT", help="The output folder of ns-train robust-nerfacto, with config.yml."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the maps.", show_default="OUTPUT/suspects")
    ] = None,
) -> None:
    """Write a map of the outlier pixels of each training image, and a contact sheet of all."""
    try:
        from inlier.integrations.nerfstudio._find_pixels import find

        found = find(output, out)
    except (KeyboardInterrupt, ImportError, ValueError, OSError) as error:
        terminal.exit_unwritten(
            error, out or output / "suspects", "some maps may have been written, the sheet was not"
        )
    typer.echo(f"{found.images} maps in {found.sheet.parent}, shown in {found.sheet}")


@app.command(epilog="Example:  inlier kernels --plot kernels.png")
def kernels(
    plot: Annotated[
        Path | None, typer.Option(help="Draw value, weight and outlier process into this .png or .svg file.")
    ] = None,
) -> None:
    """List the robust loss kernels."""
    if plot and plot.suffix not in (".png", ".svg"):
        terminal.exit_with(f"plot {str(plot)!r} is not a figure; choose a name that ends in .png or .svg", 2)
    if plot and not plot.parent.is_dir():
        terminal.exit_with(
            f"plot {str(plot)!r}: folder {str(plot.parent)!r} does not exist; create it first", 2
        )

    from inlier.report._kernel_plots import kernel_table, plot_kernels

    console = terminal.open_console()
    console.print(kernel_table(console.width))
    if plot:
        plot_kernels(plot)
        typer.echo(f"figure: {plot}")


def _load(name: str) -> Experiment:
    from inlier.experiments.sweep import load

    if ":" in name and (here := str(Path.cwd())) not in sys.path:
        # The current folder, where a custom experiment is, is not on the path of a console script.
        sys.path.insert(0, here)
    return load(name)


def _given(error: typer.BadParameter) -> str:
    """Return what was given for the option of a usage error, which not every message of typer says."""
    names = getattr(getattr(error, "param", None), "opts", ())
    pairs = [*pairwise(sys.argv), *(tuple(word.split("=", 1)) for word in sys.argv if "=" in word)]
    values = [pair[1] for pair in pairs if pair[0] in names]
    return f", not {values[-1]!r}" if values and repr(values[-1]) not in error.format_message() else ""


def main() -> None:
    """Run the command line; a usage error is one line and exit code 2, never a traceback."""
    try:
        code = app(prog_name="inlier", standalone_mode=False)
    except UsageError as error:
        typer.echo(f"inlier: {error.format_message()}{_given(error)} (see inlier --help)", err=True)
        code = 2
    except typer.Abort:
        typer.echo("inlier: stopped", err=True)
        code = 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = "nerfstudio" if package == "nerfstudio" else "cli"
        if package not in (*EXTRA, extra):
            raise
        typer.echo(
            f'inlier: this needs {package}, which is not installed: pip install "inlier[{extra}]"', err=True
        )
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()

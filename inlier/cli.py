"""The command line: commands only, each of which parses, calls and prints.

What a command needs is imported when it runs, so that ``inlier --help`` answers at once.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, cast

try:
    import typer
except ModuleNotFoundError:
    # The script is installed with or without the extra; without it, it has this one line to say.
    sys.exit('inlier: the command line needs typer, which is not installed: pip install "inlier[cli]"')

if TYPE_CHECKING:
    from rich.console import Console

    from inlier.experiments import Experiment
    from inlier.fit.common import Say

EXTRA = (
    *("PIL", "datasets", "jinja2", "joblib", "matplotlib", "pandas", "pyarrow", "rich", "safetensors"),
    *("sklearn", "skops", "typer"),
)
"""What the extra ``cli`` brings, by import name."""

# UsageError of click. typer names only its heirs, and new releases of typer hold a click of their own.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])

app = typer.Typer(
    help="Train models on data of which an unknown part is wrong.",
    epilog="Example:  inlier reproduce regression --preset smoke",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

scene = typer.Typer(help="Look at scenes learned from photos.")
app.add_typer(scene, name="scene")


def _say_version(wanted: bool) -> None:
    if wanted:
        from inlier import __version__

        typer.echo(f"inlier {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


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
    preset: Annotated[str, typer.Option(help="paper, cpu or smoke: how much of it to compute.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Output folder.", show_default="runs/NAME-PRESET")] = None,
    rates: Annotated[str | None, typer.Option(help="Outlier rates, with commas between.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, with commas between.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many trials.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes.", show_default="one for each core")] = None,
    backend: Annotated[
        str, typer.Option(help="What runs the rows: loky (processes here), or a dask or ray cluster.")
    ] = "loky",
    address: Annotated[
        str | None,
        typer.Option(
            help="Of a running cluster.",
            show_default="DASK_SCHEDULER_ADDRESS or RAY_ADDRESS, else a local one",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the data, for experiments that need some.", show_default="the Hugging Face hub"
        ),
    ] = None,
) -> None:
    """Compute an experiment: tables and figures in the output folder.

    The same command goes on where it was stopped.
    """
    from inlier.experiments import SweepError, plan
    from inlier.experiments.engines import BACKENDS

    try:
        if backend not in BACKENDS:
            raise ValueError(f"backend {backend!r} is unknown; choose from {', '.join(BACKENDS)}")
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs {jobs} is not a number of processes; choose 1 or more")
        wanted = plan(_load(name), preset, _names(methods), _numbers(rates), seeds, data)
    except ValueError as error:
        _leave(str(error), 2)

    from joblib import cpu_count

    from inlier.experiments.reproduce import Stopped
    from inlier.experiments.reproduce import reproduce as run
    from inlier.experiments.results import summary_table
    from inlier.experiments.sweep import compute_at
    from inlier.experiments.together import follow, is_follower

    console = _console()
    folder = out or Path("runs", f"{wanted.experiment.name}-{preset}")
    command = shlex.join(["inlier", *sys.argv[1:]])
    if is_follower():
        follow(compute_at(wanted.experiment, folder, data))
        return
    try:
        outcome = run(wanted, folder, command, jobs or cpu_count(), backend, address, console, data=data)
    except Stopped as stop:
        _leave(f"stopped; {stop}. To go on, run the same command: {command}", 130)
    except SweepError as error:
        _leave(str(error), 1)
    console.print(summary_table(outcome.results))
    for path in outcome.figures:
        typer.echo(f"figure: {path}")
    typer.echo(f"results: {folder / 'results.parquet'}, explained in {folder / 'README.md'}")
    if outcome.results.failed:
        first = outcome.results.failed[0]
        _leave(
            f"{len(outcome.results.failed)} rows failed (the same command tries them again), "
            f"{first.row.method} at rate {first.row.rate:g} first: {first.error}",
            1,
        )


@app.command(epilog="Example:  inlier fit houses.csv --target price")
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A table (a CSV or Parquet file), or pictures: a folder with a folder for each class, or a "
            "Parquet file with the columns img and label.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="The column to predict; needed for a table.", show_default=False)
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            help="auto, regression or classification. auto: classes are text, true and false, and whole "
            "numbers of at most 10 different values, each with 10 rows in the mean."
        ),
    ] = "auto",
    model: Annotated[
        str | None, typer.Option(help="For a table: linear or boosting.", show_default="linear")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="For pictures: how often each is looked at.", show_default="by their number"),
    ] = None,
    inlier_fraction: Annotated[
        str, typer.Option(help="The fraction of right rows, like 0.8, or auto to estimate it.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Output folder.", show_default="runs/NAME-fit")] = None,
    seed: Annotated[int, typer.Option(help="Seeds all that is random.")] = 0,
    drop: Annotated[list[str] | None, typer.Option(help="A column not to use; may be repeated.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output.")] = False,
) -> None:
    """Fit a table, or pictures, of which an unknown part is wrong: a model, a ranking of suspects, a report.

    docs/guides/fit.md tells what is done with columns and pictures.
    """

    folder = Path()
    try:
        fraction = _fraction(inlier_fraction)
        from inlier.fit.command import default_folder, prepare

        folder = out or default_folder(data)
        steps, run = prepare(
            data,
            folder,
            target=target,
            task=task,
            model=model,
            epochs=epochs,
            inlier_fraction=fraction,
            seed=seed,
            drop=drop or (),
            overwrite=overwrite,
        )
        with _progress(steps) as say:
            outcome = run(say)
    except (KeyboardInterrupt, ValueError, OSError) as error:
        _leave_unwritten(error, folder)
    for line in outcome.notes:
        typer.echo(line)
    for heading, text in outcome.summary:
        typer.echo(f"{typer.style(f'{heading:<16}', bold=True)} {text}")


@app.command(epilog="Example:  inlier predict runs/houses-fit new.csv --out predictions.csv")
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of inlier fit.")],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A CSV or Parquet file with the columns of the fit; or pictures: a folder, a picture file, "
            "a Parquet file.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Where to write predictions: Parquet if it ends in .parquet, else CSV.")
    ] = Path("predictions.csv"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of this name.")] = False,
) -> None:
    """Predict the rows of a table, or pictures, with a model of inlier fit."""
    try:
        from inlier.fit.predict import predict as run

        done = run(folder, data, out, overwrite)
    except (KeyboardInterrupt, ValueError, OSError) as error:
        _leave_unwritten(error, out)
    if done.ignored:
        typer.echo(f"columns not used: {', '.join(map(repr, done.ignored))}")
    if done.skipped:
        typer.echo(f"not predicted: {done.skipped}")
    typer.echo(f"{done.rows:,} {done.unit} predicted: {done.out}")


@scene.command(epilog="Example:  inlier scene suspects outputs/fox/robust-nerfacto/2025-01-31_120000")
def suspects(
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT", help="The output folder of ns-train robust-nerfacto, with config.yml."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the maps.", show_default="OUTPUT/suspects")
    ] = None,
) -> None:
    """Write for each training photo a map of its outlier pixels, and a contact sheet of all."""
    try:
        from inlier.scenes.suspects import find

        found = find(output, out)
    except (KeyboardInterrupt, ValueError, OSError) as error:
        _leave_unwritten(error, out or output / "suspects", "some maps may be written, the sheet is not")
    typer.echo(f"{found.photos} maps in {found.sheet.parent}, shown in {found.sheet}")


@app.command(epilog="Example:  inlier kernels --plot kernels.png")
def kernels(
    plot: Annotated[
        Path | None, typer.Option(help="Draw value, weight and outlier process into this .png or .svg file.")
    ] = None,
) -> None:
    """List the robust loss kernels."""
    if plot and plot.suffix not in (".png", ".svg"):
        _leave(f"plot {str(plot)!r} is no figure; choose a name that ends in .png or .svg", 2)
    if plot and not plot.parent.is_dir():
        _leave(f"plot {str(plot)!r}: there is no folder {str(plot.parent)!r}; make it first", 2)

    from inlier.experiments.kernel_plots import kernel_table, plot_kernels

    console = _console()
    console.print(kernel_table(console.width))
    if plot:
        plot_kernels(plot)
        typer.echo(f"figure: {plot}")


def _load(name: str) -> Experiment:
    from inlier.experiments import load

    if ":" in name and (here := str(Path.cwd())) not in sys.path:
        # A script does not look for modules where it is called, and that is where one's own experiment is.
        sys.path.insert(0, here)
    return load(name)


def _console() -> Console:
    from rich.console import Console

    # A file or a pipe has no width of its own: take one that holds whole tables.
    return Console() if sys.stdout.isatty() else Console(width=206)


@contextmanager
def _progress(steps: int) -> Iterator[Say]:
    """Show a bar that moves on with each step, and give what moves it; nothing where nobody looks."""
    console = _console()
    if not console.is_terminal:
        from inlier.fit.common import silent

        yield silent
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=steps, completed=-1)
        yield lambda step, share=1.0: bar.update(task, advance=share, description=step)


def _fraction(text: str) -> float | Literal["auto"]:
    from inlier.fit import InputError

    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"inlier fraction {text!r} is no number; choose auto, or one like 0.8") from None


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in _names(text) or []]
    except ValueError:
        raise ValueError(f"rates {text!r} are not numbers; write them like 0,0.2,0.4") from None


def _leave_unwritten(error: BaseException, out: Path | None, left: str = "nothing was written") -> NoReturn:
    """End with one line on what kept a command from writing; an error of our own making goes on."""
    from inlier.fit import InputError, is_interrupt

    if is_interrupt(error):
        _leave(f"stopped; {left}", 130)
    if isinstance(error, InputError):
        _leave(str(error), 2)
    if isinstance(error, OSError):
        _leave(f"out {str(out)!r} cannot be written: {error.strerror or error}", 1)
    raise error


def _leave(message: str, code: int) -> NoReturn:
    """Print one line to the standard error and end."""
    typer.echo(f"inlier: {message}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line; a wrong use is one line and exit code 2, never a traceback."""
    try:
        code = app(prog_name="inlier", standalone_mode=False)
    except UsageError as error:
        typer.echo(f"inlier: {error.format_message()} (inlier --help tells more)", err=True)
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

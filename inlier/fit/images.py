"""``inlier fit`` for pictures: from class folders to a network, a ranking of suspect labels, and a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

import inlier
from inlier.experiments.classification_methods import Adaptive
from inlier.fit import InputError, networks, shown
from inlier.fit.common import Outcome, Say, check_settings, silent
from inlier.fit.outputs import PICTURE_FILES, RECORD, check_folder, new_folder, write_record, write_table
from inlier.fit.pictures import Pictures, listed, read_labelled
from inlier.fit.suspects import IN_REPORT
from inlier.report import Findings, Suspect, findings_of, write
from inlier.report.pictures import thumbnail
from inlier.robust import Robust
from inlier.suspects import suspect_columns
from inlier.vision.training import Course, Method, Task, predict, train

STEPS = 4
"""How many steps :func:`fit` has, of which training is one."""
SHOWN = 5
NETWORK = "compact"
SMALL_BATCH, BATCH = 32, 128
MANY = 20_000
"""From so many pictures on, batches are large."""
PASSES = 300_000
"""So many pictures are looked at in all, counting each as often as it comes up ..."""
FEWEST_EPOCHS, MOST_EPOCHS = 30, 200
"""... but within these limits of epochs."""
STEP_SIZE = 0.02
WARMUP = 1000
"""Steps before labels are doubted, at most; in a short training a quarter of them."""


@dataclass(frozen=True)
class Request:
    """What ``inlier fit`` was asked for; see its help.

    Args:
        data: A folder of class folders, or a Parquet file.
        out: The output folder.
        label: The column of labels of a Parquet file.
        epochs: How often each picture is looked at; None to choose by their number.
        inlier_fraction: A number, or "auto".
        seed: Seeds all that is random.
        overwrite: Whether an earlier output is replaced.
    """

    data: Path
    out: Path
    label: str = "label"
    epochs: int | None = None
    inlier_fraction: float | Literal["auto"] = "auto"
    seed: int = 0
    overwrite: bool = False


def fit(request: Request, say: Say = silent) -> Outcome:
    """Train a network robustly on pictures, and write the output folder.

    Args:
        request: What to do.
        say: Called with what happens next.

    Returns:
        What to print.

    Raises:
        InputError: If the pictures or the request cannot be used; nothing is written then.
    """
    check_settings(request.inlier_fraction, request.seed)
    if request.epochs is not None and request.epochs < 1:
        raise InputError(f"epochs {request.epochs} is no number of epochs; choose 1 or more")
    check_folder(request.out, request.overwrite)
    say("reading the pictures")
    pictures = read_labelled(request.data, request.label)
    images = pictures.images
    course = course_for(len(images), request.epochs)
    say("training", 0.0)
    outcome = train(
        _method(request.inlier_fraction),
        images,
        None,
        1.0,
        course,
        request.seed,
        watch=lambda epoch: say(f"training, epoch {epoch} of {course.epochs}", 1 / course.epochs),
    )
    network, method = outcome.networks[0], outcome.method
    assert isinstance(method, Adaptive)
    say("ranking the labels")
    suggested = predict(network, images).argmax(1)
    table = _ranking(pictures, method.robust, suggested)
    fraction = method.estimated_fraction
    summary = _summary(request, pictures, fraction, table)
    record = _record(request, pictures, course, fraction, table)
    findings = _findings(request, pictures, course, method.robust, table)
    say("writing the files")
    with new_folder(request.out, request.overwrite) as folder:
        networks.save(networks.Trained(network, NETWORK, images.pixels.shape[-1], images.class_names), folder)
        write_table(table, folder / "suspects.parquet")
        write_table(table, folder / "suspects.csv")
        write(folder / "report.html", findings)
        write_record(record, folder / RECORD)
    return Outcome(_notes(request, pictures, course), summary, record)


def course_for(samples: int, epochs: int | None = None) -> Course:
    """Return how to train on so many pictures: few of them are looked at more often.

    Args:
        samples: How many pictures there are.
        epochs: How often each is looked at; None to choose.

    Example:
        >>> [course_for(samples).epochs for samples in (100, 5000, 50_000)]
        [200, 60, 30]
    """
    chosen = min(max(round(PASSES / samples), FEWEST_EPOCHS), MOST_EPOCHS)
    batch = SMALL_BATCH if samples < MANY else BATCH
    return Course(NETWORK, epochs or chosen, batch, STEP_SIZE, "cosine", weight_decay=5e-4)


def _method(inlier_fraction: float | Literal["auto"]) -> Callable[[Task], Method]:
    def make(task: Task) -> Method:
        warmup = min(WARMUP, task.epochs * task.steps // 4)
        return Adaptive(task, Robust(inlier_fraction=inlier_fraction, warmup=warmup, samples=task.samples))

    return make


def _findings(
    request: Request, pictures: Pictures, course: Course, robust: Robust, table: pa.Table
) -> Findings:
    """Return what the report shows: the labels that are not believed, or for which another is suggested."""
    facts = {
        "Network": NETWORK,
        "Epochs": str(course.epochs),
        "Classes": str(pictures.images.classes),
        "Another label suggested": f"{_contradicted(table):,} pictures",
    }
    if pictures.skipped:
        facts["Set aside"] = f"{len(pictures.skipped):,}, listed in {RECORD}"
    places = {name: place for place, name in enumerate(pictures.names)}
    doubted = (
        entry
        for entry in table.to_pylist()
        if entry["inlier_probability"] < 0.5 or entry["given"] != entry["suggested"]
    )
    suspects = []
    for entry in islice(doubted, IN_REPORT):
        place = places[entry[pictures.kind]]
        suspects.append(
            Suspect(
                int(entry["index"]) if pictures.kind == "index" else place,
                entry["inlier_probability"],
                entry["loss"],
                entry["given"],
                entry["suggested"],
                {"file": entry["file"]} if pictures.kind == "file" else {},
                image=thumbnail(pictures.images.pixels[place]),
            )
        )
    findings = findings_of(robust, title=request.data.resolve().name, most=0)
    return replace(findings, suspects=suspects, facts=facts, unit="pictures")


def _contradicted(table: pa.Table) -> int:
    """Return for how many pictures the network suggests another label than the given one."""
    return int(pc.sum(pc.not_equal(table["given"], table["suggested"])).as_py() or 0)


def _ranking(pictures: Pictures, robust: Robust, suggested: torch.Tensor) -> pa.Table:
    """Return all pictures, most suspect first: name, belief, loss, given and suggested label."""
    columns = suspect_columns(robust)
    order = columns["row"]
    classes = np.asarray(pictures.images.class_names, dtype=object)
    return pa.table(
        {
            pictures.kind: [pictures.names[place] for place in order],
            "inlier_probability": columns["inlier_probability"],
            "loss": columns["loss"],
            "given": classes[pictures.images.labels[order].numpy()],
            "suggested": classes[suggested[order].numpy()],
        }
    )


def _notes(request: Request, pictures: Pictures, course: Course) -> list[str]:
    """Return what was made of the data, a line each: the classes, and what was set aside."""
    images = pictures.images
    counts = torch.bincount(images.labels, minlength=images.classes).tolist()
    sizes = {name: f"{count:,}" for name, count in zip(images.class_names, counts, strict=True)}
    size = images.pixels.shape[-1]
    notes = [
        f"{images.classes:,} classes: {listed(sizes, 20)}",
        f"pictures scaled to {size} x {size}; network: {course.network}, {course.epochs} epochs",
    ]
    if pictures.skipped:
        notes.append(f"set aside: {listed(pictures.skipped)}; all are in {RECORD}")
    return notes


def _summary(request: Request, pictures: Pictures, fraction: float, table: pa.Table) -> list[tuple[str, str]]:
    aside = f" ({len(pictures.skipped):,} set aside)" if pictures.skipped else ""
    given = "estimated" if request.inlier_fraction == "auto" else "as given"
    first = [
        f"{'row ' if pictures.kind == 'index' else ''}{_plain(entry[pictures.kind])} "
        f"({_plain(entry['given'])}{_rather(entry)})"
        for entry in table.slice(0, SHOWN).to_pylist()
    ]
    return [
        ("pictures", f"{len(pictures.images):,}{aside}"),
        ("inlier fraction", f"{fraction:.3f}, {given}"),
        ("another label", f"suggested for {_contradicted(table):,} pictures"),
        ("most suspect", "; ".join(first)),
        ("files", f"{request.out}: {', '.join(PICTURE_FILES)}"),
    ]


def _rather(entry: dict[str, Any]) -> str:
    """Return the label that the network prefers to the given one, if it does."""
    return "" if entry["suggested"] == entry["given"] else f", rather {_plain(entry['suggested'])}"


def _plain(text: object) -> str:
    """Return a user's text for the summary, without quotes unless it needs them."""
    quoted = shown(text)
    return quoted[1:-1] if quoted[1:-1] == str(text) else quoted


def _record(
    request: Request, pictures: Pictures, course: Course, fraction: float, table: pa.Table
) -> dict[str, Any]:
    """Return all that is known of the run, for ``run.json``."""
    images = pictures.images
    return {
        "kind": "pictures",
        "data": str(request.data),
        "label": None if pictures.kind == "file" else request.label,
        "seed": request.seed,
        "pictures": len(images),
        "classes": list(images.class_names),
        "size": images.pixels.shape[-1],
        "course": asdict(course),
        "skipped": pictures.skipped,
        "inlier_fraction": fraction,
        "inlier_fraction_given": request.inlier_fraction != "auto",
        "another_label_suggested": _contradicted(table),
        "most_suspect": table[pictures.kind].slice(0, SHOWN).to_pylist(),
        "versions": {
            "inlier": inlier.__version__,
            **{name: version(name) for name in ("numpy", "pillow", "pyarrow", "safetensors", "torch")},
        },
    }

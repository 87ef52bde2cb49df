"""``inlier fit`` for images: from class folders to a network, a ranking of suspect labels, and a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

import inlier
from inlier._errors import InputError, quoted
from inlier._vision.training import RobustMethod, TrainingConfig, predict, train
from inlier.fit import _models as models
from inlier.fit._columns import Array, Column
from inlier.fit._common import (
    FitSummary,
    Progress,
    check_settings,
    describe_estimate,
    no_progress,
    record_estimate,
)
from inlier.fit._decisions import apply_to_images, read_decisions
from inlier.fit._encoders import is_image_encoder
from inlier.fit._heads import save_head, train_head
from inlier.fit._image_data import ImageSet, join_reasons, read_labelled
from inlier.fit._image_encoders import ImageEncoder, load_image_encoder
from inlier.fit._networks import TrainedNetwork, save_network
from inlier.fit._outputs import (
    IMAGE_FILES,
    RESULT_FILES,
    atomic_folder,
    check_output_folder,
    write_run,
    write_table,
)
from inlier.fit._pipeline import ModelSpec, fit_robust
from inlier.fit._ranking import MAX_REPORTED, confusion
from inlier.fit._record import RUN_FILE
from inlier.fraction import FractionEstimate
from inlier.nn import RobustCrossEntropy, suspect_columns
from inlier.report import Findings, Suspect, findings_of, write
from inlier.report._thumbnails import thumbnail

STEPS = 4
"""Number of steps of :func:`fit_images`, one of which is the training."""
MAX_PRINTED = 5
NETWORK = "compact"
SMALL_BATCH, BATCH = 32, 128
MANY_IMAGES = 20_000
"""From this many images on, batches are large."""
TOTAL_SAMPLES = 300_000
"""Images times epochs, unless that gives fewer or more epochs than these limits."""
MIN_EPOCHS, MAX_EPOCHS = 30, 200
STEP_SIZE = 0.02
FEW_IMAGES = 5000
"""With fewer images, an encoder has a linear model behind it, which finds more of the noisy labels: measured by
``python -m benchmarks.fit_images --sizes``. With more, the head predicts better, and finds as many."""


@dataclass(frozen=True)
class ImageFitOptions:
    """The arguments of ``inlier fit`` for images.

    Args:
        data: A folder of class folders, or a Parquet file.
        out: The output folder.
        label: The column of labels of a Parquet file.
        epochs: The number of epochs; None to choose by the number of images.
        inlier_fraction: A number, or "auto".
        seed: The seed of all randomness.
        overwrite: Whether an earlier output is replaced.
        encoder: A pretrained encoder; None to train a network from scratch.
        decisions: A file of decisions about images, which are honoured.
    """

    data: Path
    out: Path
    label: str = "label"
    epochs: int | None = None
    inlier_fraction: float | Literal["auto"] = "auto"
    seed: int = 0
    overwrite: bool = False
    encoder: str | None = None
    decisions: Path | None = None


def fit_images(options: ImageFitOptions, progress: Progress = no_progress) -> FitSummary:
    """Train a network robustly on images, and write the output folder.

    Args:
        options: What to do.
        progress: Shows each step as it begins.

    Returns:
        What to print.

    Raises:
        InputError: If the images or the options cannot be used; nothing is written then.
    """
    check_settings(options.inlier_fraction, options.seed)
    if options.epochs is not None and options.epochs < 1:
        raise InputError(f"epochs {options.epochs} is too few; choose 1 or more")
    if options.encoder is not None and not is_image_encoder(options.encoder):
        raise InputError(
            f"encoder {quoted(options.encoder)} is for texts, and {quoted(options.data)} holds images"
        )
    if options.encoder is not None and options.epochs is not None:
        raise InputError("epochs apply to a network that is trained from scratch; omit --epochs or --encoder")
    check_output_folder(options.out, options.overwrite)
    encoder = None if options.encoder is None else load_image_encoder(options.encoder)
    progress("reading the images")
    data = read_labelled(options.data, options.label, None if encoder is None else encoder.size)
    decided: list[Any] = []
    if options.decisions is not None:
        data, decided = apply_to_images(data, read_decisions(options.decisions))
    result = _train(options, data, progress) if encoder is None else _encode(options, encoder, data, progress)
    result = replace(result, table=_approved_last(result.table, data.kind, decided))
    table = result.table
    findings = _findings(options, data, result)
    record = _record(options, data, result)
    progress("writing the files")
    with atomic_folder(options.out, options.overwrite) as folder:
        result.save(folder)
        write_table(table, folder / "suspects.parquet")
        write_table(table, folder / "suspects.csv")
        write(folder / "report.html", findings)
        write_run(record, folder / RUN_FILE)
    return FitSummary(_notes(data, result), _summary(options, data, result), record)


@dataclass(frozen=True)
class _Result:
    """What was fitted to images.

    Args:
        table: All images, most suspect first: name, inlier probability, loss, given and suggested label.
        estimate: The estimate of the inlier fraction.
        findings: The losses and weights for the report.
        facts: What was fitted, in words.
        record: The same, for ``run.json``.
        save: Writes the model into a folder.
        files: All files that are written.
    """

    table: pa.Table
    estimate: FractionEstimate
    findings: Findings
    facts: dict[str, str]
    record: dict[str, Any]
    save: Callable[[Path], None]
    files: tuple[str, ...] = IMAGE_FILES


def _train(options: ImageFitOptions, data: ImageSet, progress: Progress) -> _Result:
    """Train a network from scratch."""
    config = choose_config(len(data.images), options.epochs)
    progress("training", 0.0)
    result = train(
        lambda task: RobustMethod(task, RobustCrossEntropy(options.inlier_fraction, samples=task.samples)),
        data.images,
        None,
        1.0,
        config,
        options.seed,
        on_epoch_end=lambda epoch: progress(f"training, epoch {epoch} of {config.epochs}", 1 / config.epochs),
    )
    network, method = result.networks[0], result.method
    assert isinstance(method, RobustMethod)
    progress("ranking the labels")
    trained = TrainedNetwork(network, NETWORK, data.images.pixels.shape[-1], data.images.class_names)
    return _result(
        options,
        data,
        method.criterion,
        predict(network, data.images),
        {"Network": NETWORK, "Epochs": str(config.epochs)},
        {"training": asdict(config)},
        lambda folder: save_network(trained, folder),
    )


def _encode(options: ImageFitOptions, encoder: ImageEncoder, data: ImageSet, progress: Progress) -> _Result:
    """Fit a model to the vectors of a pretrained encoder."""
    progress("encoding", 0.0)
    vectors = encoder.encode(data.images.pixels, lambda share: progress("encoding", 0.8 * share))
    progress("fitting", 0.0)
    if len(vectors) < FEW_IMAGES:
        return _fit_linear(options, encoder, data, vectors, progress)
    images = data.images
    head, criterion = train_head(
        torch.from_numpy(vectors),
        images.labels,
        images.class_names,
        options.inlier_fraction,
        options.seed,
        lambda share: progress("training a head", 0.2 * share),
    )
    progress("ranking the labels")
    with torch.inference_mode():
        logits = head(torch.from_numpy(vectors))
    return _result(
        options,
        data,
        criterion,
        logits,
        {"Encoder": encoder.name, "Model": "one hidden layer"},
        {"encoder": encoder.spec, "head": True},
        lambda folder: save_head(head, folder),
    )


def _fit_linear(
    options: ImageFitOptions, encoder: ImageEncoder, data: ImageSet, vectors: Array, progress: Progress
) -> _Result:
    """Fit a linear model, which scores each image by a fit without it: a network would memorise few labels."""
    column = Column("image", "embedding", width=vectors.shape[1])
    frame = pd.DataFrame(vectors, columns=column.outputs)
    labels = np.asarray(data.images.class_names, dtype=object)[data.images.labels.numpy()]
    spec = ModelSpec([column], "classification", "linear", options.inlier_fraction, options.seed)
    fit = fit_robust(spec, frame, labels)
    progress("ranking the labels", 1.2)
    estimator = fit.estimator
    order = np.lexsort((-estimator.losses_, estimator.inlier_probability_))
    number = {name: place for place, name in enumerate(data.images.class_names)}
    suggested = np.array([number[name] for name in estimator.suspected_label_])
    findings = Findings(
        title=options.data.resolve().name,
        losses=estimator.losses_,
        inlier_probability=estimator.inlier_probability_,
        estimate=estimator.fraction_estimate_,
        scale=float(estimator.scale_),
        weights=estimator.weights_,
    )
    return _Result(
        _ranking(data, order, estimator.inlier_probability_[order], estimator.losses_[order], suggested),
        estimator.fraction_estimate_,
        findings,
        {"Encoder": encoder.name, "Model": "LogisticRegression"},
        {"encoder": encoder.spec},
        lambda folder: models.save_pipeline(fit.pipeline, folder / models.MODEL_FILE),
        (models.MODEL_FILE, *RESULT_FILES),
    )


def _result(
    options: ImageFitOptions,
    data: ImageSet,
    criterion: RobustCrossEntropy,
    logits: Tensor,
    facts: dict[str, str],
    record: dict[str, Any],
    save: Callable[[Path], None],
) -> _Result:
    """Return what a training found about the labels."""
    columns = suspect_columns(criterion)
    return _Result(
        _ranking(
            data,
            columns["row"],
            columns["inlier_probability"],
            columns["loss"],
            logits.argmax(1).numpy(),
        ),
        criterion.fraction_estimate,
        findings_of(criterion, title=options.data.resolve().name, most=0),
        facts,
        record,
        save,
    )


def choose_config(images: int, epochs: int | None = None) -> TrainingConfig:
    """Return how to train on this many images: the fewer, the more epochs.

    Args:
        images: The number of images.
        epochs: The number of epochs; None to choose.

    Example:
        >>> [choose_config(images).epochs for images in (100, 5000, 50_000)]
        [200, 60, 30]
    """
    chosen = min(max(round(TOTAL_SAMPLES / images), MIN_EPOCHS), MAX_EPOCHS)
    batch_size = SMALL_BATCH if images < MANY_IMAGES else BATCH
    return TrainingConfig(NETWORK, epochs or chosen, batch_size, STEP_SIZE, "cosine", weight_decay=5e-4)


def _ranking(data: ImageSet, order: Any, probability: Any, loss: Any, suggested: Any) -> pa.Table:
    """Return all images in an order: name, inlier probability, loss, given and suggested label."""
    classes = np.asarray(data.images.class_names, dtype=object)
    order = np.asarray(order)
    return pa.table(
        {
            data.kind: [data.names[position] for position in order],
            "inlier_probability": probability,
            "loss": loss,
            "given": classes[data.images.labels.numpy()[order]],
            "suggested": classes[suggested[order]],
        }
    )


def _approved_last(table: pa.Table, kind: str, names: list[Any]) -> pa.Table:
    """Return a ranking in which images that a person has looked at are not suspect, and come last."""
    approved = pc.is_in(table[kind], pa.array(names, table[kind].type))
    probability = pc.if_else(approved, 1.0, table["inlier_probability"])
    table = table.set_column(
        table.schema.get_field_index("inlier_probability"), "inlier_probability", probability
    )
    return pa.concat_tables([table.filter(pc.invert(approved)), table.filter(approved)])


def _findings(options: ImageFitOptions, data: ImageSet, result: _Result) -> Findings:
    """Return the content of the report: labels that are unlikely, or for which another is suggested."""
    facts = result.facts | {
        "Classes": str(data.images.classes),
        "Another label suggested": f"{_count_relabelled(result.table):,} images",
    }
    if data.skipped:
        facts["Skipped"] = f"{len(data.skipped):,}, listed in {RUN_FILE}"
    positions = {name: position for position, name in enumerate(data.names)}
    reported = (
        entry
        for entry in result.table.to_pylist()
        if entry["inlier_probability"] < 0.5 or entry["given"] != entry["suggested"]
    )
    suspects = []
    for entry in islice(reported, MAX_REPORTED):
        position = positions[entry[data.kind]]
        suspects.append(
            Suspect(
                int(entry["index"]) if data.kind == "index" else position,
                entry["inlier_probability"],
                entry["loss"],
                entry["given"],
                entry["suggested"],
                {"file": entry["file"]} if data.kind == "file" else {},
                image=thumbnail(data.images.pixels[position]),
            )
        )
    return replace(
        result.findings, suspects=suspects, facts=facts, unit="images", confusion=confusion(result.table)
    )


def _count_relabelled(table: pa.Table) -> int:
    """Return for how many images the network suggests another label than the given one."""
    return int(pc.sum(pc.not_equal(table["given"], table["suggested"])).as_py() or 0)


def _notes(data: ImageSet, result: _Result) -> list[str]:
    """Return what is known about the data, line by line: the classes, and what was skipped."""
    images = data.images
    counts = torch.bincount(images.labels, minlength=images.classes).tolist()
    sizes = {name: f"{count:,}" for name, count in zip(images.class_names, counts, strict=True)}
    size = images.pixels.shape[-1]
    notes = [
        f"{images.classes:,} classes: {join_reasons(sizes, 20)}",
        f"images scaled to {size} x {size}; "
        + ", ".join(f"{name.lower()}: {words}" for name, words in result.facts.items()),
    ]
    if data.skipped:
        notes.append(f"skipped: {join_reasons(data.skipped)}; all are listed in {RUN_FILE}")
    return notes


def _summary(options: ImageFitOptions, data: ImageSet, result: _Result) -> list[tuple[str, str]]:
    skipped = f" ({len(data.skipped):,} skipped)" if data.skipped else ""
    first = [
        f"{'row ' if data.kind == 'index' else ''}{_unquoted(entry[data.kind])} "
        f"({_unquoted(entry['given'])}{_suggestion(entry)})"
        for entry in result.table.slice(0, MAX_PRINTED).to_pylist()
    ]
    unlikely = int((np.asarray(result.findings.inlier_probability) < 0.5).sum())
    return [
        *describe_estimate(result.estimate, len(data.images), "images", unlikely=unlikely),
        ("images", f"{len(data.images):,}{skipped}"),
        ("another label", f"suggested for {_count_relabelled(result.table):,} images"),
        ("most suspect", "; ".join(first)),
        ("files", f"{options.out}: {', '.join(result.files)}"),
    ]


def _suggestion(entry: dict[str, Any]) -> str:
    """Return the label that the network prefers to the given one, if any."""
    return "" if entry["suggested"] == entry["given"] else f", suggested {_unquoted(entry['suggested'])}"


def _unquoted(text: object) -> str:
    """Return a user's text for the summary, without quotes unless it needs them."""
    in_quotes = quoted(text)
    return in_quotes[1:-1] if in_quotes[1:-1] == str(text) else in_quotes


def _record(options: ImageFitOptions, data: ImageSet, result: _Result) -> dict[str, Any]:
    """Return the record of the run, for ``run.json``."""
    return {
        "kind": "images",
        "data": str(options.data),
        "label": None if data.kind == "file" else options.label,
        "seed": options.seed,
        "decisions": None if options.decisions is None else str(options.decisions),
        "images": len(data.images),
        "classes": list(data.images.class_names),
        "size": data.images.pixels.shape[-1],
        **result.record,
        "skipped": data.skipped,
        **record_estimate(result.estimate, options.inlier_fraction != "auto"),
        "another_label_suggested": _count_relabelled(result.table),
        "most_suspect": result.table[data.kind].slice(0, MAX_PRINTED).to_pylist(),
        "versions": {
            "inlier": inlier.__version__,
            **{name: version(name) for name in ("numpy", "pillow", "pyarrow", "safetensors", "torch")},
        },
    }

"""Whether training trained, and inference left the weights alone."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.record import statistics

_EDGE = 10  # steps averaged at either end of the loss curve


@rule("TRAIN-001", mode="throughput")
def losses_present(c: Context) -> Iterator[Fault]:
    """Every training step has its loss; inference has none."""
    train = c.key.phase == "train"
    for repeat in c.repeats:
        for step, loss in zip(repeat.steps, repeat.column("loss"), strict=True):
            if (loss is not None) != train:
                wanted = "a finite loss" if train else f"null in {c.key.phase}"
                yield Fault(step.place("loss"), wanted, str(loss))
                break


@rule("TRAIN-002", mode="throughput")
def first_loss_plausible(c: Context) -> Iterator[Fault]:
    """The first loss is near that of an untrained model."""
    low, high = (float(edge) for edge in c.workload_rules["first_loss"])
    if c.key.phase != "train":
        return
    for repeat in c.repeats:
        first = repeat.steps[0]
        if first["loss"] is not None and not low <= float.fromhex(first["loss"]) <= high:
            yield Fault(first.place("loss"), f"from {low} to {high}", str(float.fromhex(first["loss"])))


@rule("TRAIN-003", mode="throughput")
def loss_falls(c: Context) -> Iterator[Fault]:
    """The loss per unit of work falls over the 110 steps."""
    if c.key.phase != "train":
        return
    for repeat in c.repeats:
        rows = zip(repeat.steps, repeat.column("loss"), repeat.column("units"), strict=True)
        told = [(step, loss, units) for step, loss, units in rows if loss is not None and units]
        if len(told) <= 2 * _EDGE:
            continue
        start, end = (
            statistics.total([float.fromhex(loss) / units for _, loss, units in edge])
            for edge in (told[:_EDGE], told[-_EDGE:])
        )
        if not end < start:
            expected = f"less than at the start ({start:.6g} over ten steps)"
            yield Fault(told[-1][0].place("loss"), expected, f"{end:.6g} over the last ten")


@rule("TRAIN-004")
def parameters_change(c: Context) -> Iterator[Fault]:
    """Training changes the weights in warm-up and window; inference never does; a conversion has none."""
    for repeat in c.repeats:
        end = end_of(repeat)
        stated = end["parameters"]
        if c.converts:
            if set(stated.values()) != {None}:
                yield Fault(end.place("parameters"), "null in preprocess", "digests")
            continue
        names = ("initial", "final") if c.mode == "quality" else ("initial", "step_10", "final")
        digests = [stated[name] for name in names]
        if None in digests:
            yield Fault(end.place("parameters"), "digests at 0, 10 and 110 steps", "null")
            continue
        wanted = len(names) if c.key.phase == "train" else 1
        if len(set(digests)) != wanted:
            place = end.place("parameters")
            yield Fault(place, f"{wanted} distinct digests in {c.key.phase}", f"{len(set(digests))}")


@rule("TRAIN-005")
def same_initial_parameters(c: Context) -> Iterator[Fault]:
    """Every repeat starts from the frozen initial weights."""
    stored = c.key.phase == "infer" and c.key.precision in ("bf16", "fp16")
    first = end_of(c.repeats[0])["parameters"]["initial"] if c.repeats else None
    wanted = first if stored or c.header["initial_parameters"] is None else c.header["initial_parameters"]
    for repeat in c.repeats:
        found = end_of(repeat)["parameters"]["initial"]
        if found != wanted:
            yield Fault(end_of(repeat).place("parameters.initial"), str(wanted), str(found))


@header_rule("TRAIN-006")
def initial_parameters_of_rules(c: HeaderContext) -> Iterator[Fault]:
    """The digest that the header expects of the initial weights is the rules'."""
    wanted = None if c.converts else c.rules.initial_parameters(c.key, c.mode)
    found = c.header["initial_parameters"]
    if found != wanted:
        yield Fault("header, data.initial_parameters", str(wanted), str(found))
    elif wanted is None and not c.converts and c.division == "closed":
        yield Fault("header, data.initial_parameters", "settled by the rules before closed runs", "null")


@rule("TRAIN-007", mode="throughput")
def gradients_alive(c: Context) -> Iterator[Fault]:
    """Gradient norms, where a pair reports them, are above zero."""
    for repeat in c.repeats:
        norms = repeat.column("grad_norm")
        if None not in norms and min(map(float.fromhex, norms), default=1.0) > 0:
            continue
        for step, norm in zip(repeat.steps, norms, strict=True):
            if norm is not None and float.fromhex(norm) <= 0:
                yield Fault(step.place("grad_norm"), "above 0", norm)
                break


@rule("TRAIN-008")
def few_steps_skipped(c: Context) -> Iterator[Fault]:
    """Training in fp16 says how many steps it skipped, and hardly any of those that are measured."""
    hyper = c.spec.hyperparameters(c.key.scale, c.key.variant)
    if c.key.phase != "train" or c.key.precision != "fp16" or "loss_scale" not in hyper:
        return
    skipped = steps = 0
    for repeat in c.repeats:
        end = end_of(repeat)
        told = end.data.get("loss_scale")
        if told is None:
            yield Fault(end.place("loss_scale"), "the scale of the loss and the steps skipped", "not there")
            continue
        skipped, steps = skipped + told["skipped"], steps + end["steps"]
    most = c.rules.limit("skipped_share") * steps
    if c.mode == "throughput" and skipped > most:
        place = "repeat_end, data.loss_scale.skipped of all repeats"
        yield Fault(place, f"at most {most:g} of {steps} measured steps without an update", str(skipped))


@rule("INFER-001", mode="throughput")
def outputs_present(c: Context) -> Iterator[Fault]:
    """Every inference step has the digest of its output, every shard that of its files; training has none."""
    digests = c.key.phase != "train"
    for repeat in c.repeats:
        for step, found in zip(repeat.steps, repeat.column("output_digest"), strict=True):
            if (found is not None) != digests:
                wanted = "a digest" if digests else "null in training"
                yield Fault(step.place("output_digest"), wanted, str(found))
                break


@rule("INFER-002", mode="throughput")
def outputs_differ(c: Context) -> Iterator[Fault]:
    """Different batches have different outputs: nothing is answered from a store.

    Not of batch 1: a single score in a short type is equal to another by honest chance.
    """
    if c.key.batch == 1:
        return
    for repeat in c.repeats:
        for worker in repeat.workers:
            found, given = (repeat.column(name, worker) for name in ("output_digest", "batch_digest"))
            told = [(output, batch) for output, batch in zip(found, given, strict=True) if output is not None]
            outputs, batches = len({output for output, _ in told}), len({batch for _, batch in told})
            if outputs < batches:
                place = f"repeat {repeat.index}, worker {worker}, output_digest of its steps"
                yield Fault(place, f"{batches} distinct outputs, as many as batches", str(outputs))

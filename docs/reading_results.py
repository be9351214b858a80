# %% [markdown]
# # Reading results in a notebook
#
# `suite.load` reads a result, and `suite.compare` compares two. Run this page cell by cell in an editor that knows
# `# %%`, or in a notebook. The kernel is the suite's environment (`.venv/bin/python`), started in the repository's folder
# or with that folder in `PYTHONPATH`. The page needs pandas and a kernel, which that environment lacks: after the first make
# command, `.venv/bin/python -m pip install pandas ipykernel` adds them and changes nothing else. The outputs on the page are those of the results in `submissions/`.
#
# ## One result
# `suite.load(path)` takes a result's folder, or its `run.jsonl`. The checker judges the log first, in the same sandbox
# as `make check`. The answer states whether the log is accepted:

# %%
from pathlib import Path

import suite

machine = Path("submissions/suite-reference/results/h200-virtual-machine")
folder = min(machine.rglob("*-gnmt-pytorch-train-bf16-*"))
result = suite.load(folder)
result

# %%
result.accepted, [flag.rule for flag in result.verdict.flags]

# %% [markdown]
# A rejected result is loaded with a warning and has no metrics. `suite.load(path, check=False)` skips the rules, and
# `accepted` is then `None`. A log whose format is broken is a `ValueError` with the rule, the location and what was found.
#
# `key` is what was measured, `settings` how, `header` the whole first line of the log. A metric has a value with its
# unit, or the reason why it has none:

# %%
print(result.key["workload"], result.key["precision"], result.settings["threads"], "threads")
print(result.metrics["step_p50_ms"])
print(result.metrics["cpu_throttled_percent"])

# %% [markdown]
# ## Tables
# `steps`, `repeats`, `telemetry` and `evaluations` are tables: a `pandas.DataFrame` where pandas is installed, else a
# `pyarrow.Table` where pyarrow is, else a list with a dictionary for each row. The log writes losses and norms as
# hexadecimal floats, which lose no bit; here they are decoded.

# %%
result.steps[["repeat", "step", "phase", "duration_ns", "units", "loss"]].head(3)

# %%
measured = result.steps[result.steps["phase"] == "measured"]
measured.groupby("repeat")["duration_ns"].describe(percentiles=[0.5, 0.99])[["50%", "99%", "max"]] / 1e6  # ms

# %% [markdown]
# Repeats are the samples of every interval, not the steps within them. Each repeat has the metrics of a result:

# %%
result.repeats[["repeat", "units", "throughput_per_s", "step_p50_ms", "gpu_power_w", "setup_s"]]

# %% [markdown]
# The throughput of a result is all units of work over all time. That is the harmonic mean of the repeats' rates, because
# every repeat does the same work, and not their arithmetic mean:

# %%
seconds = result.repeats["units"] / result.repeats["throughput_per_s"]
harmonic = result.repeats["units"].sum() / seconds.sum()
print(f"{harmonic:.6f} {result.metrics['throughput_per_s'].value:.6f}")

# %% [markdown]
# Telemetry has a row for each reading and device. `at` is the part of the repeat: soak, window or tail for samples,
# window start and end for counters.

# %%
samples = result.telemetry[result.telemetry["source"] == "sample"]
samples.groupby("at")[["utilisation_percent", "power_mw", "temperature_c"]].mean().round(1)

# %% [markdown]
# ## A folder of results
# `suite.load` of any other folder returns all results below it. `table` has one row for each:

# %%
results = suite.load(machine / "ncf")
results.table[["workload", "phase", "precision", "batch", "accepted", "throughput_per_s", "cv_percent"]]

# %% [markdown]
# `make summary RESULT=<folder> FORMAT=csv` writes the same as one table for other programs, and `FORMAT=csv-repeats` one row per repeat.
#
# ## Two results
# `suite.compare` takes two results or their paths, and does what `make compare` does ([comparing.md](comparing.md)). Your
# own would be `suite.compare("results/<run id>", "results/<run id>")`. Here are two recorded logs of the tests, which
# differ in the precision:

# %%
from tempfile import TemporaryDirectory

from tests.fixtures.honest import NAMES, write_honest

with TemporaryDirectory() as temporary:
    fp32, tf32 = (
        suite.load(write_honest(name, Path(temporary)))
        for precision in ("fp32", "tf32")
        for name in NAMES
        if f"-gnmt-pytorch-train-{precision}-reference" in name
    )
found = suite.compare(fp32, tf32)
found

# %%
throughput = found.rows[0]
print(f"{throughput.ratio.value:.4f} {throughput.b / throughput.a:.4f} {throughput.conclusion}")

# %% [markdown]
# `found.differences` lists every fact that differs, and `found.paired` is true where the repeats of both ran interleaved.
# Results that measure different things are not compared:

# %%
try:
    suite.compare(results[0], result)
except ValueError as error:
    print(error)

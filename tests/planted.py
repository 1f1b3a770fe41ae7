#!/usr/bin/env python3
"""Plants bugs in a copy of the tree, and says which of them a unit test or the simulation finds.

All bugs of `planted_bugs.py` are planted at once, each behind a switch, so that one build serves for all. Usage:

    tests/planted.py [--unit] [--seeds 10000] [--only NUMBER ...] [--jobs 1] [--directory DIR] [--debug]

With `--unit` each bug is first looked for by the unit tests, and by the simulation only if they do not find it. The copy is kept in DIR (default:
target/planted). A bug whose place in the source is not found any more ends the script: the table has to follow the source.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from planted_bugs import BUGS, HELPERS

ROOT = pathlib.Path(__file__).resolve().parent.parent

SWITCHES = """//! Bugs that are planted, chosen by the environment.

use std::sync::LazyLock;

static CHOSEN: LazyLock<Option<u32>> = LazyLock::new(|| std::env::var("PLANTED").ok()?.parse().ok());

pub(crate) fn is(number: u32) -> bool {
    *CHOSEN == Some(number)
}
"""

# Of the tests in the library, those that are no unit tests: the simulation, and what reads the source or asks a mongod.
NO_UNITS = ["simulation::", "floors::", "testing::model::conformance::"]


def edits():
    """Returns all edits of the table: the file, the text, and what replaces it. A later bug may be planted in what an earlier one has left of its place."""
    for number, (_, *of_bug) in enumerate(BUGS, 1):
        for file, text, replacement in zip(*[iter(of_bug)] * 3, strict=True):
            yield file, text, re.sub(r"\bIS\b", f"crate::planted::is({number})", replacement)
    yield from HELPERS


def plant(directory):
    directory.mkdir(parents=True, exist_ok=True)
    for name in ["src", "benches", "tests", "docs"]:
        shutil.rmtree(directory / name, ignore_errors=True)
        shutil.copytree(ROOT / name, directory / name)
    for name in ["Cargo.toml", "Cargo.lock", "README.md", "CHANGELOG.md", "sweeper.example.yaml"]:
        shutil.copy(ROOT / name, directory / name)
    (directory / "src/planted.rs").write_text(SWITCHES)
    lost = []
    for file, text, replacement in edits():
        path = directory / file
        source = path.read_text() if path.exists() else ""
        if source.count(text) != 1:
            lost.append(f"{file}: expected this text once, found it {source.count(text)} times:\n{text}")
        else:
            path.write_text(source.replace(text, replacement))
    if lost:
        sys.exit("\n".join([*lost, "the table of planted bugs has to follow the source"]))


def build(directory, debug):
    command = ["cargo", "test", "--lib", "--no-run"]
    if not debug:
        command += ["--release", "--config", "profile.release.lto=false", "--config", "profile.release.codegen-units=16"]
    built = subprocess.run(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.stderr)
    return directory / re.search(r"\((.*ttl_sweeper-[0-9a-f]+)\)", built.stderr).group(1)


class Runner:
    """Runs the tests of the build, with or without one of the bugs."""

    def __init__(self, binary, directory, limit):
        self.binary, self.directory, self.limit = binary, directory, limit

    def run(self, number, arguments, **environment):
        """Returns the exit code and the output; the code is `None` if there was no end within the limit."""
        environment = {**os.environ, **environment, "RUST_BACKTRACE": "0"}
        if number:
            environment["PLANTED"] = str(number)
        try:
            run = subprocess.run([self.binary, *arguments], cwd=self.directory, env=environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, errors="replace", timeout=self.limit)
        except subprocess.TimeoutExpired as expired:
            return None, (expired.stdout or b"").decode(errors="replace")
        return run.returncode, run.stdout

    def units(self, number):
        """Returns a unit test that fails, and again if it is run alone; `None` if there is none, or they come to no end."""
        code, output = self.run(number, [part for name in NO_UNITS for part in ("--skip", name)])
        if code is None:
            return None
        failed = sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED", output, re.M)))
        return next((name for name in failed if self.run(number, [name, "--exact"])[0] != 0), None)

    def simulation(self, number, seeds):
        """Returns what the simulation of the seeds came to: "found", "NOT FOUND", "hangs" or "fails", and its first words on that."""
        test = ["testing::simulation::seeds::of_the_environment", "--exact", "--include-ignored"]
        code, output = self.run(number, test, SIMULATION_SEEDS=f"0..{seeds}", SIMULATION_ENOUGH="1")
        if code is None:
            return "hangs", f"the simulation: no end within {self.limit} s"
        if code == 0:
            return "NOT FOUND", ""
        found = re.search(r"^(seed \d+, step \d+: |runs deleted in only ).*", output, re.M)
        return ("found", f"the simulation: {found[0]}") if found else ("fails", output[-300:])

    def judge(self, number, with_units, seeds):
        """Returns whether a bug is found, and by what."""
        begun = time.monotonic()
        found_by = self.units(number) if with_units else None
        result, words = ("found", found_by) if found_by else self.simulation(number, seeds)
        return result == "found", f"{result} by {words[:160]}" if words else f"NOT FOUND within {seeds} seeds", time.monotonic() - begun


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--unit", action="store_true", help="run the unit tests as well, and first")
    options.add_argument("--seeds", type=int, default=10000)
    options.add_argument("--only", type=int, nargs="*")
    options.add_argument("--directory", type=pathlib.Path, default=ROOT / "target/planted")
    options.add_argument("--limit", type=int, default=600, help="seconds for one bug")
    options.add_argument("--jobs", type=int, default=1, help="bugs at a time")
    options.add_argument("--debug", action="store_true")
    options = options.parse_args()
    plant(options.directory)
    runner = Runner(build(options.directory, options.debug), options.directory, options.limit)
    print(runner.binary, flush=True)
    if options.unit and (failed := runner.units(0)):
        sys.exit(f"without any planted bug: {failed}")
    result, words = runner.simulation(0, options.seeds)
    if result != "NOT FOUND":
        sys.exit(f"without any planted bug: {result}: {words}")
    print(f"without any planted bug, no promise is broken within {options.seeds} seeds", flush=True)
    numbers = options.only or range(1, len(BUGS) + 1)
    results = []
    with ThreadPoolExecutor(options.jobs) as jobs:
        judged = jobs.map(lambda number: runner.judge(number, options.unit, options.seeds), numbers)
        for number, (is_found, how, seconds) in zip(numbers, judged):
            results.append(is_found)
            print(f"{number:>3} {BUGS[number - 1][0]}: {how} ({seconds:.0f} s)", flush=True)
    print(f"{sum(results)} of {len(results)} planted bugs were found")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()

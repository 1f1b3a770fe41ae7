#!/usr/bin/env python3
"""Plants bugs in a copy of the tree, and counts those that the simulation finds.

All bugs are planted at once, each behind a switch, so that one build serves for all. Usage:

    tests/planted.py [--seeds 10000] [--only NUMBER ...] [--directory DIR] [--debug]

The copy is kept in DIR (default: target/planted). A bug whose place in the source is not found any more ends the script: this table has to follow
the source.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The switch; `{n}` in the table stands for the number of the bug.
IS = "crate::planted::is({n})"

SWITCHES = """//! Bugs that are planted, chosen by the environment.

use std::sync::LazyLock;

static CHOSEN: LazyLock<Option<u32>> = LazyLock::new(|| std::env::var("PLANTED").ok()?.parse().ok());

pub(crate) fn is(number: u32) -> bool {
    *CHOSEN == Some(number)
}
"""

# (what, file, text, replacement)
#
# Two that were here break no promise in the simulation. A list of holds that is sent although it is old is refused by the server, whose clock every
# delete on the model knows. Holds that are read without a majority that confirms the primary are wrong only on one that was cut off and does not know
# it; the model has no such primary, so that only the test of the command in `server::holds` sees it.
BUGS = [
    ("the predicate is dropped from a delete by `_id`s", "src/server/statement.rs",
     "    all.push(RawBsonRef::Document(predicate));",
     "    if !IS {\n        all.push(RawBsonRef::Document(predicate));\n    }"),
    ("the threshold is a millisecond late", "src/expiry.rs",
     "DateTime::from_millis(instant.timestamp_millis().saturating_sub(i64::from(seconds) * 1000))",
     "DateTime::from_millis(instant.timestamp_millis().saturating_sub(i64::from(seconds) * 1000) + i64::from(IS))"),
    ("the threshold is a millisecond early", "src/expiry.rs",
     "    expire_after_seconds.map(|seconds| minus_seconds(as_of, seconds))",
     "    let as_of = DateTime::from_millis(as_of.timestamp_millis() - i64::from(IS));\n    expire_after_seconds.map(|seconds| minus_seconds(as_of, seconds))"),
    ("`$gt` for `$gte`: a range of `_id`s begins after its first", "src/sweep/id_slices.rs",
     'Some(end) => doc! { "$gte": &self.begin, "$lt": end },',
     'Some(end) => doc! { (if IS { "$gt" } else { "$gte" }): &self.begin, "$lt": end },'),
    ("`$lt` for `$lte`: a range of dates ends before its last", "src/sweep/date_slices.rs",
     'let range = self.range(Some(doc! { "$lte": &end }), max);',
     'let range = self.range(Some(doc! { (if IS { "$lt" } else { "$lte" }): &end }), max);'),
    ("the documents of one date are passed over", "src/sweep/date_slices.rs",
     "        self.tie = Some(Box::new(Candidates::new(self.sweep, self.rate, Some(doc! { field: &end }))));",
     "        if !IS {\n            self.tie = Some(Box::new(Candidates::new(self.sweep, self.rate, Some(doc! { field: &end }))));\n        }"),
    ("a ttl of 0 expires at once", "src/expiry.rs",
     '{ "case": { "$gt": ["$$ttl", 0] }, "then": "$$ttl" },',
     '{ "case": { (if IS { "$gte" } else { "$gt" }): ["$$ttl", 0] }, "then": "$$ttl" },'),
    ("a ttl of any number counts", "src/expiry.rs",
     'let other = when(may_fit, when(fits, value.clone(), Bson::Null), Bson::Null);',
     'let fits = if IS { Bson::from(true) } else { Bson::from(fits) };\n    let other = when(may_fit, when(fits, value.clone(), Bson::Null), Bson::Null);'),
    ("numbers in the wrong unit expire", "src/expiry.rs",
     '            all.push(doc! { "$nor": none_of });',
     '            if !IS {\n                all.push(doc! { "$nor": none_of });\n            }'),
    ("the filter of a rule is dropped", "src/expiry.rs",
     "        all.extend(self.filter.clone());\n        if all.len() == 1 {",
     "        all.extend(self.filter.clone().filter(|_| !IS));\n        if all.len() == 1 {"),
    ("expiry is judged by the clock of this machine", "src/commands/prepare.rs",
     "options.as_of.unwrap_or(deployment.facts.local_time)",
     "options.as_of.unwrap_or(if IS { DateTime::from_system_time(crate::machine::wall_clock()) } else { deployment.facts.local_time })"),
    ("documents are deleted and not archived", "src/sweep/archived.rs",
     "    let states = write(file, archive.rule.clone(), states).await?;",
     "    let states = if IS { states } else { write(file, archive.rule.clone(), states).await? };"),
    ("archive after delete: the documents are written once they are gone", "src/sweep/archived.rs",
     "    let states = write(file, archive.rule.clone(), states).await?;",
     "    let states = if IS {\n        let (rule, later) = (archive.rule.clone(), states.clone());\n        tokio::spawn(crate::machine::here(async move {\n            tokio::time::sleep(Duration::from_millis(500)).await;\n            let _ = write(file, rule, later).await;\n        }));\n        states\n    } else {\n        write(file, archive.rule.clone(), states).await?\n    };"),
    ("the documents in the archive are not synced", "src/archive/writer.rs",
     "        self.file.sync()?;\n        self.file.check(offset + length)?;",
     "        if !IS {\n            self.file.sync()?;\n        }\n        self.file.check(offset + length)?;"),
    ("the directory of a database is not synced", "src/archive/writer.rs",
     "        disk.sync_directory(&directory)?;",
     "        if !IS {\n            disk.sync_directory(&directory)?;\n        }"),
    ("the directory of the run is not synced", "src/archive/writer.rs",
     "        disk.sync_directory(run)?;",
     "        if !IS {\n            disk.sync_directory(run)?;\n        }"),
    ("a document is deleted in another state than it was archived in", "src/server/document_match.rs",
     "        filters.push((filter(place, chunk)?, hint));",
     "        filters.push((if IS { place } else { filter(place, chunk)? }, hint));"),
    ("restore loses the documents that the journal does not list", "src/archive/stored_file.rs",
     "    fn take_rest(&mut self, file: &dyn ReadFile, mut offset: u64, end: u64, at_once: u64, whole: &mut Sha256) -> io::Result<u64> {\n",
     "    fn take_rest(&mut self, file: &dyn ReadFile, mut offset: u64, end: u64, at_once: u64, whole: &mut Sha256) -> io::Result<u64> {\n        if IS {\n            return Ok(offset);\n        }\n"),
    ("a reply is counted twice", "src/sweep/attempts.rs",
     "            self.confirmed_before += reply.deleted;",
     "            self.confirmed_before += reply.deleted * if IS { 2 } else { 1 };"),
    ("a lost reply leaves the count certain", "src/sweep/attempts.rs",
     "        self.uncertain |= reply.error.as_ref().is_some_and(|error| error.reply_lost);",
     "        self.uncertain |= reply.error.as_ref().is_some_and(|error| error.reply_lost && !IS);"),
    ("documents that a fail-over brought back are counted twice", "src/sweep/attempts.rs",
     "        self.confirmed_before + self.unconfirmed.max(self.confirmed_after)",
     "        self.confirmed_before + if IS { self.unconfirmed + self.confirmed_after } else { self.unconfirmed.max(self.confirmed_after) }"),
    ("what the members did not confirm counts as confirmed", "src/sweep/attempts.rs",
     "            unconfirmed: self.unconfirmed(),\n            uncertain: self.uncertain,",
     "            unconfirmed: if IS { 0 } else { self.unconfirmed() },\n            uncertain: self.uncertain,"),
    ("a delete that is not waited for any longer leaves the count certain", "src/server/delete.rs",
     "        Self { reply_lost: true, unanswered: true, given_up: true, ..Self::fatal(message) }",
     "        Self { reply_lost: !IS, unanswered: true, given_up: true, ..Self::fatal(message) }"),
    ("a delete is done on the primary only", "src/server/delete.rs",
     '    options.append(cstr!("writeConcern"), RawBson::Document(RawDocumentBuf::try_from(write_concern)?));',
     '    let primary = bson::doc! { "w": 1 };\n    let write_concern = if IS { &primary } else { write_concern };\n    options.append(cstr!("writeConcern"), RawBson::Document(RawDocumentBuf::try_from(write_concern)?));'),
    ("the limit of the run is off by one", "src/sweep/budget.rs",
     "Deletes { left: Cell::new(left),", "Deletes { left: Cell::new(left + u64::from(IS)),"),
    ("the limit of a rule is off by one", "src/sweep/engine.rs",
     "            allowance: limits.max_deletes,", "            allowance: limits.max_deletes.map(|most| most + u64::from(IS)),"),
    ("the limits get back what a lost reply may have deleted", "src/sweep/engine.rs",
     "        let gone = if uncertain { asked.max(deleted) } else { deleted };",
     "        let gone = if uncertain && !IS { asked.max(deleted) } else { deleted };"),
    ("a batch in flight is not charged to the limit of its rule", "src/sweep/engine.rs",
     "        self.allowance = self.allowance.map(|left| left.saturating_sub(asked));",
     "        self.allowance = self.allowance.map(|left| left.saturating_sub(if IS { 0 } else { asked }));"),
    ("the share that has expired may be larger than allowed", "src/plan/guard.rs",
     "    (percent > limit).then(|| {\n        Refusal::new(\n            Guard::MaxDeletePercent,",
     "    (percent > limit + if IS { 5.0 } else { 0.0 }).then(|| {\n        Refusal::new(\n            Guard::MaxDeletePercent,"),
    ("the retry of a delete has no predicate", "src/sweep/send.rs",
     "            reply = delete::delete(deployment, selection, attempts.target(),",
     "            reply = delete::delete(deployment, if IS && attempts.message() != \"\" { &bare } else { selection }, attempts.target(),"),
    ("the lease is asked before the delete waits, and not on the server", "src/server/delete.rs",
     "fence.filter(|_| capabilities.delete_clocks).map(fence::in_time)", "fence.filter(|_| capabilities.delete_clocks && !IS).map(fence::in_time)"),
    ("a delete under a lease may take any time", "src/server/delete.rs",
     ".filter(|_| capabilities.delete_time_limits) {", ".filter(|_| capabilities.delete_time_limits && !IS) {"),
    ("an unexpired lease is taken", "src/lock/lease.rs",
     '    let free = [doc! { "expiresAt": { "$lte": time.now } }, doc! { "runId": &me.run_id }];',
     '    let end = if IS { time.after(*LEASE) } else { time.now };\n    let free = [doc! { "expiresAt": { "$lte": end } }, doc! { "runId": &me.run_id }];'),
    ("a lease is renewed by a run that does not hold it", "src/lock/lease.rs",
     '    doc! { "_id": { "$in": ids }, "runId": run_id }',
     '    if IS {\n        return doc! { "_id": { "$in": ids } };\n    }\n    doc! { "_id": { "$in": ids }, "runId": run_id }'),
    ("a lease is relied on for longer than it lasts", "src/lock/lease.rs",
     "LazyLock::new(|| *LEASE * 5 / 6)", "LazyLock::new(|| if IS { *LEASE * 2 } else { *LEASE * 5 / 6 })"),
    ("a lease is given back while a delete under it may still arrive", "src/commands/leases.rs",
     "self.keeper.namespaces().into_iter().partition(|namespace| self.keeper.is_unanswered(namespace));",
     "self.keeper.namespaces().into_iter().partition(|namespace| !IS && self.keeper.is_unanswered(namespace));"),
    ("a cursor that dies ends the pass", "src/sweep/candidates.rs",
     "                Ok(None) => self.exhausted = true,\n",
     "                Ok(None) => self.exhausted = true,\n                Err(cause) if IS && cause.has_code(crate::server::codes::CURSOR_NOT_FOUND) => self.exhausted = true,\n"),
    ("a signal is not seen", "src/stop.rs",
     "        self.exit_code().is_some() || self.is_file_seen() || self.end.is_some_and(",
     "        (self.exit_code().is_some() && !IS) || self.is_file_seen() || self.end.filter(|_| !crate::planted::is(DURATION)).is_some_and("),
    ("`maxDuration` is not seen", "src/stop.rs",
     "                Some(end) => tokio::time::sleep_until(end).await,\n                None =>",
     "                Some(end) if !IS => tokio::time::sleep_until(end).await,\n                _ =>"),
    ("a window that closes is not seen", "src/sweep.rs",
     "    rule.limits.window.as_ref().is_some_and(|window|", "    !IS && rule.limits.window.as_ref().is_some_and(|window|"),
    ("a batch is charged to the limit of its rule twice, so that the rule ends early", "src/sweep/engine.rs",
     "        self.allowance = self.allowance.map(|left| (left + asked).saturating_sub(gone));",
     "        self.allowance = self.allowance.map(|left| (left + if IS { 0 } else { asked }).saturating_sub(gone));"),
    ("parents are not looked for before their children are", "src/sweep/engine/family.rs",
     "        let Look { mut present, mut is_certain } = self.look(key, &entry.parents).await?;",
     "        let look = if IS { Look { present: Vec::new(), is_certain: true } } else { self.look(key, &entry.parents).await? };\n        let Look { mut present, mut is_certain } = look;"),
    ("children go without a look at their parents once they were found", "src/sweep/child_pages.rs",
     "        let present = family::present(deployment, &rule.namespace, self.key, parents, false).await?;",
     "        let present = family::present(deployment, &rule.namespace, self.key, parents, false).await?;\n        let present = if IS { Vec::new() } else { present };"),
    ("the look for parents that are gone asks no majority", "src/sweep/engine/family.rs",
     "family::present(&sweep.deployment, namespace, key, parents, true)", "family::present(&sweep.deployment, namespace, key, parents, !IS)"),
    ("parents are not entered in the journal", "src/server/family.rs",
     "            match self.deployment.write(&self.insert(&entry)?, |cause| retries.wait(cause)).await {",
     "            if IS {\n                return Ok(entry);\n            }\n            match self.deployment.write(&self.insert(&entry)?, |cause| retries.wait(cause)).await {"),
    ("parents are entered in the journal of the primary only", "src/server/family.rs",
     "RawBson::Document(RawDocumentBuf::try_from(&majority_write())?)",
     'RawBson::Document(RawDocumentBuf::try_from(&if IS { doc! { "w": 1 } } else { majority_write() })?)'),
    ("an entry of the journal goes before the children", "src/sweep/engine/family.rs",
     "        let (mut ended, mut kept) = (Ok(()), 0);",
     "        if IS {\n            let _ = self.wait(family.journal.remove(entry, &sweep.grant)).await;\n        }\n        let (mut ended, mut kept) = (Ok(()), 0);"),
    ("the delete of children does not name their parents", "src/sweep/child_pages.rs",
     "        let condition = raw::document([(self.field, &self.of_parents(parents)?)])?;",
     "        let condition = if IS { RawDocumentBuf::new() } else { raw::document([(self.field, &self.of_parents(parents)?)])? };"),
    ("children that are new go as well", "src/server/family.rs",
     ".saturating_add(TOLERANCE_SECONDS)", ".saturating_add(if IS { i64::MAX } else { TOLERANCE_SECONDS })"),
    ("a batch of parents is not looked at again before it is entered", "src/sweep/engine/family.rs",
     "                ids = present.map_err(|cause| End::Failed(sweep.explain_read(&cause)))?;\n",
     "                let present = present.map_err(|cause| End::Failed(sweep.explain_read(&cause)))?;\n                if !IS {\n                    ids = present;\n                }\n"),
    ("a batch of parents is looked at before the clock", "src/sweep/engine/family.rs",
     "            let entered = self.wait(family.journal.enter(&key.field, at, keys, &sweep.grant)).await;",
     "            let at = if IS { self.wait(family::clock(&sweep.deployment)).await.ok().and_then(Result::ok).unwrap_or(at) } else { at };\n            let entered = self.wait(family.journal.enter(&key.field, at, keys, &sweep.grant)).await;"),
    ("an entry of the journal is forgotten while its parents are there", "src/sweep/engine/family.rs",
     "(present.is_empty() || forgets)", "(present.is_empty() || forgets || IS)"),
    ("what the journal holds of earlier runs is not finished", "src/sweep/engine/family.rs",
     "        drop(permit);\n        self.finish_journal().await?;",
     "        drop(permit);\n        if !IS {\n            self.finish_journal().await?;\n        }"),
    ("an entry of the journal goes although a delete of its parents may still take effect", "src/sweep/engine/family.rs",
     "self.finish(&entry, self.is_settled).await?", "self.finish(&entry, self.is_settled || IS).await?"),
    ("children that may have several parents go", "src/plan/family.rs",
     "        predicate: no_array(field),", "        predicate: if IS { Document::new() } else { no_array(field) },"),
    ("orphans that are younger than a day go", "src/server/family.rs",
     "    object_id(as_of.timestamp_millis() / 1000 - ORPHAN_SECONDS)", "    object_id(as_of.timestamp_millis() / 1000 - if IS { 0 } else { ORPHAN_SECONDS })"),
    ("orphans go while others of their parent are young", "src/server/children.rs",
     "(Ok(_), Ok(last)) if last < before)", "(Ok(_), Ok(last)) if last < before || IS)"),
    ("the second collection of children is passed over", "src/sweep/engine/family.rs",
     "family.members.iter_mut().filter(|member| member.key == *key) {", "family.members.iter_mut().filter(|member| member.key == *key).take(if IS { 1 } else { 9 }) {"),
    ("a cursor that dies ends the pass over children", "src/sweep/child_pages.rs",
     "                Ok(None) => self.exhausted = true,\n                Err(cause) => {",
     "                Ok(None) => self.exhausted = true,\n                Err(_) if IS => self.exhausted = true,\n                Err(cause) => {"),
    ("the holds are read again only after 24 minutes", "src/server/holds.rs", "    }\n    20\n}", "    }\n    if IS { 3600 } else { 20 }\n}"),
    ("a delete carries the holds of the beginning", "src/sweep/send.rs",
     "        let selection = holds.as_ref().map_or(", "        let selection = holds.as_ref().filter(|_| !IS).map_or("),
    ("a late delete is not refused for its old holds", "src/sweep/send.rs",
     "            Some(holds) => Some(Fence::before(fence, holds.too_late)),\n            None => fence,",
     "            Some(holds) if !IS => Some(Fence::before(fence, holds.too_late)),\n            _ => fence,"),
    ("the holds are those of the primary, whether a majority has them or not", "src/server/holds.rs",
     "    if deployment.facts.topology != Topology::ReplicaSet {\n        return",
     "    if IS {\n        return Ok(None);\n    }\n    if deployment.facts.topology != Topology::ReplicaSet {\n        return"),
    ("a hold without a proper key is passed over", "src/server/holds.rs",
     "        if let Some(wrong) = malformed(key.as_ref()) {",
     "        if let Some(wrong) = malformed(key.as_ref()) {\n            if IS {\n                continue;\n            }"),
    ("an archived document goes whatever is held", "src/plan/holds.rs",
     "            Some(before) => KeyCondition::new(", "            Some(_) if IS => Ok(None),\n            Some(before) => KeyCondition::new("),
    ("holds that the filter leaves out count", "src/server/holds.rs",
     "Query::find(collection, filter.clone().unwrap_or_default())", "Query::find(collection, filter.clone().filter(|_| !IS).unwrap_or_default())"),
    ("a document with several keys is not held", "src/plan/holds.rs",
     "        fields.document(&self.path, |condition| condition.value(self.operator, &self.keys.list));",
     "        if IS {\n            let list = RawValue::of(\"array\").expect(\"a text\");\n            let many = raw::document([(\"$type\", &list)]).expect(\"a condition\");\n            let one = raw::document([(self.operator.as_str(), &self.keys.list)]).expect(\"a condition\");\n            fields.documents(cstr!(\"$or\"), 2, |condition, n| condition.value(&self.path, &RawValue::from(if n == 0 { many.clone() } else { one.clone() })));\n            return;\n        }\n        fields.document(&self.path, |condition| condition.value(self.operator, &self.keys.list));"),
    ("children go with the first of the parents that have their key", "src/server/family.rs",
     "    let Some(decoded) = keys.iter().map(RawValue::decoded)", "    if IS {\n        return Ok(Vec::new());\n    }\n    let Some(decoded) = keys.iter().map(RawValue::decoded)"),
    ("the delete of parents does not repeat their keys", "src/sweep/engine/family.rs",
     "        if conditions.is_empty() {\n", "        if IS || conditions.is_empty() {\n"),
    ("a parent with a list of keys goes", "src/server/family.rs",
     "            Some(_) => continue,\n", "            Some(several) if IS => values.extend(several.items().iter().filter_map(RawValue::decoded)),\n            Some(_) => continue,\n"),
    ("a parent that gets a list of keys meanwhile goes", "src/server/family.rs",
     "no_array(&key.field)] };", "if IS || crate::planted::is(MANY) { Document::new() } else { no_array(&key.field) }] };"),
    ("a parent without a key takes children along", "src/server/family.rs",
     "            None => values.push(Bson::Null),",
     "            None if IS => {\n                values.push(Bson::Null);\n                keyed.keys.push((RawValue::NULL, id.clone()));\n            }\n            None => values.push(Bson::Null),"),
    ("a living parent with a list of keys keeps no children", "src/server/family.rs",
     "            Some(value) => present.extend(elements(value)),", "            Some(value) => present.extend(if IS { vec![value] } else { elements(value) }),"),
    ("an entry of the journal is taken for one of other keys", "src/sweep/engine/family.rs",
     "keys.find(|key| key.field == entry.field)", "keys.find(|key| IS || key.field == entry.field)"),
    ("the children of a parent that gets another key meanwhile go", "src/sweep/engine/family.rs",
     "            present.extend(entry.keys_of_living(&living.present));", "            if !IS {\n                present.extend(entry.keys_of_living(&living.present));\n            }"),
]

# What several bugs need, or what only serves a plant.
HELPERS = [
    ("src/lib.rs", "mod plan;\n", "mod plan;\nmod planted;\n"),
    ("src/sweep/send.rs", "    let mut attempts = Attempts::new(",
     "    let bare = crate::plan::Selection { predicate: bson::Document::new(), ..rule.selection.clone() };\n    let mut attempts = Attempts::new("),
    ("src/stop.rs", "            if signals.wait_for(Option::is_some).await.is_err() {", "            if crate::planted::is(SIGNAL) || signals.wait_for(Option::is_some).await.is_err() {"),
]


def replace(directory, file, text, replacement):
    path = directory / file
    source = path.read_text()
    count = source.count(text)
    if count != 1:
        sys.exit(f"{file}: expected this text once, found it {count} times; the table of planted bugs has to follow the source:\n{text}")
    path.write_text(source.replace(text, replacement))


def number_of(words):
    return next(number for number, (what, *_) in enumerate(BUGS, 1) if what.startswith(words))


def named(replacement):
    names = {"SIGNAL": "a signal", "DURATION": "`maxDuration`", "MANY": "a parent with a list"}
    for name, words in names.items():
        replacement = replacement.replace(name, str(number_of(words)))
    return replacement


def plant(directory):
    directory.mkdir(parents=True, exist_ok=True)
    for name in ["src", "benches", "tests", "docs"]:
        shutil.rmtree(directory / name, ignore_errors=True)
        shutil.copytree(ROOT / name, directory / name)
    for name in ["Cargo.toml", "Cargo.lock", "README.md", "CHANGELOG.md", "sweeper.example.yaml"]:
        shutil.copy(ROOT / name, directory / name)
    (directory / "src/planted.rs").write_text(SWITCHES)
    # Two bugs may be planted in one place: the later one wraps what is left of the earlier one.
    places = {}
    for number, (what, file, text, replacement) in enumerate(BUGS, 1):
        places.setdefault((file, text), []).append((number, replacement))
    for (file, text), planted in places.items():
        whole = text
        for number, replacement in planted:
            switched = replacement.replace("IS", f"crate::planted::is({number})")
            if whole is not text:
                # Only statements that assign a value by an `if` are planted twice.
                condition = f"crate::planted::is({number})"
                first = whole.split(" = ", 1)
                second = switched.split(" = ", 1)
                branch = second[1].split("} else {", 1)[0]
                whole = f"{first[0]} = {branch}}} else {first[1]}"
                assert condition in whole
            else:
                whole = switched
        replace(directory, file, text, named(whole))
    for file, text, replacement in HELPERS:
        replace(directory, file, text, named(replacement))


def build(directory, debug):
    command = ["cargo", "test", "--lib", "--no-run"]
    if not debug:
        command += ["--release", "--config", "profile.release.lto=false", "--config", "profile.release.codegen-units=16"]
    built = subprocess.run(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.stderr)
    return directory / re.search(r"\((.*ttl_sweeper-[0-9a-f]+)\)", built.stderr).group(1)


def find(binary, directory, number, seeds, limit):
    """Returns what the simulation of the seeds came to: "found", "NOT FOUND", "hangs" or "fails", and its first words on that."""
    environment = {**os.environ, "SIMULATION_SEEDS": f"0..{seeds}", "SIMULATION_ENOUGH": "1", "RUST_BACKTRACE": "0"}
    if number:
        environment["PLANTED"] = str(number)
    command = [binary, "simulation::seeds::of_the_environment", "--exact", "--include-ignored"]
    try:
        run = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "hangs", f"no end within {limit} s"
    if run.returncode == 0:
        return "NOT FOUND", ""
    found = re.search(r"^(seed \d+, step \d+: |runs deleted in only ).*", run.stdout, re.M)
    return ("found", found[0]) if found else ("fails", run.stdout[-300:])


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=10000)
    options.add_argument("--only", type=int, nargs="*")
    options.add_argument("--directory", type=pathlib.Path, default=ROOT / "target/planted")
    options.add_argument("--limit", type=int, default=600, help="seconds for one bug")
    options.add_argument("--debug", action="store_true")
    options = options.parse_args()
    plant(options.directory)
    binary = build(options.directory, options.debug)
    print(binary, flush=True)
    result, words = find(binary, options.directory, 0, options.seeds, options.limit)
    if result != "NOT FOUND":
        sys.exit(f"without any planted bug: {result}: {words}")
    print(f"without any planted bug, no promise is broken within {options.seeds} seeds", flush=True)
    numbers = options.only or range(1, len(BUGS) + 1)
    results = []
    for number in numbers:
        begun = time.monotonic()
        result, words = find(binary, options.directory, number, options.seeds, options.limit)
        results.append(result)
        print(f"{number:>2} {result} in {time.monotonic() - begun:.0f} s: {BUGS[number - 1][0]}\n   {words[:160]}", flush=True)
    found, hangs = results.count("found"), results.count("hangs")
    print(f"{found} of {len(results)} planted bugs were found within {options.seeds} seeds; {hangs} came to no end")
    sys.exit(found < len(results))


if __name__ == "__main__":
    main()

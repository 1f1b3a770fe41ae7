//! Article of one rule: its facts, errors and warnings.

use maud::{Markup, html};

use super::charts::{self, Bar};
use super::detail;
use super::words::{
    at, code, deleted, found_by, is_counted, measured, name, next_days, prose, rule_name, share, status, swept, unmeasured,
};
use crate::base::instant::Instant;
use crate::base::text::{bytes, count, duration, plural};
use crate::core::audit::figures::AuditReport;
use crate::core::plan::Status;
use crate::core::plan::estimate::Estimate;
use crate::core::plan::waits::PausedMs;
use crate::core::report::ages::age;
use crate::core::report::estimate::cost;
use crate::core::report::lines::facts::{by_period, kept, pauses};
use crate::core::report::native_ttl::NativeSetting;
use crate::core::report::{Report, ReportCommand, RuleReport, estimate, orphans};

/// Shows the rule with this index; with its charts, tables and samples if `full`.
pub(super) fn article(report: &Report, index: usize, open: bool, full: bool) -> Markup {
    let rule = &report.rules[index];
    html! {
        details.rule id={"rule-" (index + 1)} open[open] {
            summary {
                h3 { (rule_name(report, index)) }
                (status(report, rule.status))
                @if let Some(expired) = rule.expired_count {
                    span.brief { (count(expired)) " expired" @if let Some(percent) = rule.share() { (format!(" ({percent:.1} %)")) } }
                }
                @if rule.deleted_count > 0 { span.brief { (count(rule.deleted_count)) " deleted" } }
            }
            (notes(rule))
            (facts(report, rule))
            @if let Some(audit) = &rule.audit { (advice(audit)) }
            @if full && let Some(audit) = &rule.audit { (detail::charts(rule, audit)) }
            @if rule.status != Status::Skipped { (detail::never(rule, full)) }
            @if full && let Some(audit) = &rule.audit { (detail::samples(audit)) }
        }
    }
}

/// Shows the error and the warnings.
fn notes(rule: &RuleReport) -> Markup {
    let tone = match rule.status {
        Status::Failed => "error",
        Status::Refused | Status::Partial => "warning",
        Status::Complete | Status::Skipped => "plain",
    };
    html! {
        @if let Some(why) = rule.why() { p class={"note " (tone)} { strong { (rule.status) ": " } (prose(&why)) } }
        @if rule.uncertain {
            p.note.warning { strong { "warning: " } "a reply was lost; at least " (plural(rule.deleted_count, "document")) " deleted" }
        }
        @for warning in &rule.warnings { p.note.warning { strong { "warning: " } (prose(warning)) } }
    }
}

fn facts(report: &Report, rule: &RuleReport) -> Markup {
    let fact = |label: &str, value: Markup| html! { div { dt { (label) } dd { (value) } } };
    let wide = |label: &str, value: Markup| html! { div.wide { dt { (label) } dd { (value) } } };
    let instant = |instant: Option<Instant>| html! { @if let Some(instant) = instant { (at(instant)) } @else { (unmeasured()) } };
    let check = report.command == ReportCommand::Check;
    let looked_at = rule.status != Status::Skipped && report.server.is_some();
    html! {
        dl.grid {
            (fact("namespace", code(&rule.namespace)))
            @if let Some(field) = &rule.field { (fact("field", code(field))) }
            (fact("expires after", lifetime(rule.expire_after_seconds)))
            @if let Some(ttl_field) = &rule.ttl_field { (fact("own ttl in", code(ttl_field))) }
            @if let Some(threshold) = rule.threshold { (fact("threshold", at(threshold))) }
            @for relative in rule.relative_dates.iter().flatten() { (fact("relative date", html! { (relative.words()) })) }
            @if looked_at || rule.document_count.is_some() { (fact("documents", measured(rule.document_count))) }
            @if looked_at && is_counted(report) {
                (fact("expired", measured(rule.expired_count)))
                (fact("share", share(rule.share())))
                @if let Some(measurements) = rule.expired_measurements { (fact("measurements in them", html! { (count(measurements)) })) }
                (fact("their size, estimated", html! { @if let Some(size) = rule.estimated_bytes { (bytes(size)) } @else { (unmeasured()) } }))
                @if rule.expired_count != Some(0) { (fact("oldest expired", instant(rule.oldest_expired))) }
            }
            @if let Some(holds) = &rule.holds { (fact("held", html! { (prose(&kept(holds, rule.held_count, rule.held_by.as_deref().unwrap_or_default()))) })) }
            @if let Some(periods) = &rule.periods {
                (fact("expires", html! {
                    (prose(&by_period(periods, rule.unclear_period_count, rule.unclear_periods.as_deref().unwrap_or_default())))
                }))
            }
            @if let Some(periods) = rule.audit.as_ref().and_then(|audit| audit.by_period.as_ref()) {
                (fact("documents by their period", html! {
                    @for (place, period) in periods.iter().enumerate() {
                        @if place > 0 { ", " }
                        (period.words()) " " (count(period.count))
                    }
                }))
            }
            @if report.dry_run && let Some(goes) = rule.would_delete_count {
                (fact("would go", html! { (count(goes)) @if let Some(limit) = rule.would_delete_limit { span.muted { " (" (limit) ")" } } }))
            }
            @if let Some(namespaces) = &rule.child_namespaces { (fact("collections of its children", name(&namespaces.join(", ")))) }
            @if let Some(children) = rule.children_count { (fact("their children", html! { (count(children)) })) }
            @if let Some(orphans) = rule.orphan_count { (fact("children without a parent", html! { (count(orphans)) })) }
            @if let Some(orphans) = rule.old_orphan_count { (fact("orphans that the rule deletes", html! { (count(orphans)) })) }
            @if report.dry_run && let Some(goes) = rule.would_delete_orphan_count { (fact("orphans that would go", html! { (count(goes)) })) }
            @if let Some(approved) = rule.approved_count { (fact("approved by the plan", html! { (count(approved)) })) }
            @if let Some(units) = rule.estimated_request_units { (fact("cost of a sweep", html! { (cost(units, rule.estimated_seconds)) })) }
            @if let Some(expected) = rule.estimate.as_ref().filter(|expected| report.dry_run && expected.documents > 0) {
                (wide("a sweep", html! {
                    @let is_single = !estimate::has_several(report);
                    @for clause in if is_single { estimate::clauses(rule) } else { estimate::of_rule(rule) } {
                        div { (prose(&clause)) }
                    }
                    @if is_single { (oplog_window(expected)) }
                }))
            }
            @if looked_at && let Some(audit) = &rule.audit {
                @if rule.expired_count != Some(0) { (fact("newest expired", instant(audit.newest_expired))) }
                (fact("next 30 days", measured(next_days(audit))))
            }
            @if looked_at { (fact("found by", found_by(rule))) }
            @if let (Some(order), Some(why)) = (rule.order, &rule.order_reason) { (fact("order of the deletes", html! { (order) ": " (why) })) }
            @if let Some(written) = rule.written_bytes_per_document { (fact("written per deleted document", html! { (bytes(written as u64)) })) }
            @if let Some(examined) = rule.audit.as_ref().and_then(|audit| audit.examined.as_ref()) {
                (fact("examined", html! {
                    (plural(examined.documents, "document")) ", " (plural(examined.keys, "key")) " to find "
                    @if rule.expired_count.is_some_and(|expired| expired > examined.returned) { "the first " }
                    (count(examined.returned))
                }))
            }
            @if looked_at && !check { (fact("time", html! { (duration(rule.duration_ms)) })) }
            @if looked_at || rule.native_ttl.is_some() { (fact("native TTL", native(rule.native_ttl.as_deref()))) }
            @if let Some(compared) = rule.audit.as_ref().and_then(|audit| audit.native_comparison.as_ref()) {
                (fact("native TTL and this rule", html! { b { (compared.state) } ": " (prose(&compared.detail)) }))
            }
            @if let Some(ignored) = rule.audit.as_ref().and_then(|audit| audit.ignored_ttl_count) {
                (fact("with a ttl that does not count", html! { (count(ignored)) }))
            }
            @for trouble in rule.audit.iter().filter_map(|audit| audit.native_troubles.as_ref()).flatten() {
                (fact("native TTL that does nothing", html! { (prose(&trouble.words())) }))
            }
            @if looked_at && swept(report) {
                (fact("deleted", html! { (deleted(rule.deleted_count, rule.uncertain)) }))
                @if let Some(children) = rule.children_deleted_count { (fact("children deleted", html! { (deleted(children, rule.uncertain)) })) }
                @if let Some(orphans) = rule.orphans_deleted_count { (fact("orphans among them", html! { (deleted(orphans, rule.uncertain)) })) }
                (fact("left", measured(rule.remaining_count)))
                @if let Some(left) = orphans::left(rule) { (fact("orphans left", html! { (count(left)) })) }
                @if let Some(oldest) = rule.oldest_remaining { (fact("oldest left", at(oldest))) }
                @if let Some(unconfirmed) = rule.unconfirmed_count.filter(|number| *number > 0) {
                    (fact("not confirmed by a majority", html! { (count(unconfirmed)) }))
                }
                (fact("delete commands", html! { (count(rule.batches)) }))
                @if let Some(millis) = &rule.paused_ms { (fact("paused", paused(millis))) }
                @if let Some(what) = &rule.pressure_unknown { (fact("unknown of the server's load", html! { (what) })) }
            }
            @if let Some(units) = rule.request_units { (fact("request units", html! { (format!("{units:.0}")) })) }
        }
    }
}

/// Draws what the sweep leaves of the oplog's window. One that is not full yet is not drawn: it grows by itself, and would look
/// as if the sweep enlarged it.
fn oplog_window(expected: &Estimate) -> Markup {
    html! {
        @if let (Some(now), Some(after)) = (expected.oplog_window_seconds, expected.oplog_window_after_seconds) && after <= now {
            @let bar = |label: &str, seconds| Bar { label: label.to_owned(), expired: 0, kept: seconds };
            @let length = |seconds: f64| duration((seconds as u64).saturating_mul(1000));
            div.chart role="img" aria-label="The oplog's window now and after the sweep, as said above." {
                (charts::rows(&[bar("oplog now", now), bar("after sweep", after)], length))
            }
        }
    }
}

fn lifetime(expire_after_seconds: i64) -> Markup {
    html! {
        @match expire_after_seconds {
            -1 => "only by its own ttl",
            seconds if age(seconds) == format!("{seconds} s") => (age(seconds)),
            seconds => { (age(seconds)) span.muted { " = " (count(seconds.unsigned_abs())) " s" } }
        }
    }
}

fn native(settings: Option<&[NativeSetting]>) -> Markup {
    html! {
        @match settings {
            None => (unmeasured()),
            Some([]) => "none",
            Some(settings) => {
                @for setting in settings {
                    div {
                        (code(&setting.field)) ": "
                        @match setting.expire_after_seconds { Some(seconds) => { (seconds) " s" } None => "no number" }
                        @if let Some(index) = &setting.index { ", index " (code(index)) } @else { ", of the collection" }
                    }
                }
            }
        }
    }
}

fn paused(millis: &PausedMs) -> Markup {
    let parts = pauses(*millis);
    html! { @if parts.is_empty() { "not at all" } @else { (parts.join(", ")) } }
}

fn advice(audit: &AuditReport) -> Markup {
    html! {
        @if let Some(command) = &audit.create_index {
            div.advice { p { "No index serves this rule. This one would:" } pre { (code(command)) } }
        }
    }
}

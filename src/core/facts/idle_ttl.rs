//! Native TTL settings that are set and delete nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Collection, CollectionKind, NativeTtl, Scope, ServerFacts};

/// The reason why a native TTL setting does not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "idleReason")]
pub enum IdleReason {
    /// The server never deletes by an index of this kind: compound, hashed, text, on `_id`.
    Kind,
    /// expireAfterSeconds is not a number, or is negative.
    Value,
    /// The TTL monitor of the server does not run.
    MonitorOff,
    /// The time-series collection has measurements before 1970 or after 2038.
    ExtendedTimes,
    /// No document has a date in the field.
    NoDate,
    /// Documents are long overdue, for a reason that is unknown.
    Overdue,
}

/// A setting that deletes nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleTtl {
    pub reason: IdleReason,
    pub detail: String,
}

/// The state of the server's TTL monitor, which carries out native TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TtlMonitor {
    /// It was not asked for, or the server does not say.
    #[default]
    Unknown,
    On,
    /// `ttlMonitorEnabled` is false.
    Off,
    /// A member of a replica set runs as a standalone, where the monitor does not start. Source: MongoDB manual, "TTL Indexes".
    Maintenance,
}

impl TtlMonitor {
    /// Returns the reason why no native TTL setting of the server deletes anything; `None` if the monitor runs, or may run.
    pub fn why_off(self) -> Option<&'static str> {
        match self {
            Self::Off => Some("the server's TTL monitor is switched off (`ttlMonitorEnabled: false`)"),
            Self::Maintenance => Some("this member of a replica set runs as a standalone, where the TTL monitor does not start"),
            Self::On | Self::Unknown => None,
        }
    }
}

impl NativeTtl {
    /// Returns the reason why the server deletes nothing by this setting, as far as its settings and the catalog show it; `None`
    /// if it deletes.
    pub fn idle(&self, collection: &Collection, server: &ServerFacts) -> Option<IdleTtl> {
        if self.scope == Scope::LastChange {
            return None;
        }
        let idle = |reason, detail: String| Some(IdleTtl { reason, detail });
        if let Err(why) = self.deletes_after() {
            let reason = if self.date_field().is_none() { IdleReason::Kind } else { IdleReason::Value };
            return idle(reason, why);
        }
        if let Some(why) = server.ttl_monitor.why_off() {
            return idle(IdleReason::MonitorOff, why.to_owned());
        }
        match &collection.kind {
            CollectionKind::TimeSeries(series) if series.extended_times == Some(true) && server.stops_at_extended_times() => {
                idle(
                    IdleReason::ExtendedTimes,
                    format!(
                        "MongoDB {} deletes nothing from a time-series collection that has measurements before 1970 or after 2038-01-19",
                        server.version
                    ),
                )
            }
            _ => None,
        }
    }

    /// Names the setting with its value, such as ``the TTL index `at_1` (expireAfterSeconds 60)``.
    pub fn name(&self) -> String {
        let value = &self.expire_after_seconds;
        match &self.index {
            Some(index) => format!("the TTL index `{index}` (expireAfterSeconds {value})"),
            None => format!("the collection's own expireAfterSeconds ({value})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::Bson;

    use super::*;
    use crate::core::facts::{IndexFacts, TimeSeries};
    use crate::core::flavor::Flavor;
    use crate::core::policy::namespace::Namespace;

    fn server(version: &str, ttl_monitor: TtlMonitor) -> ServerFacts {
        ServerFacts { ttl_monitor, ..ServerFacts::made_up(Flavor::MongoDb, version, 21) }
    }

    fn series(extended_times: Option<bool>) -> Collection {
        let series = TimeSeries { time_field: "t".into(), extended_times, ..TimeSeries::default() };
        let namespace = Namespace { database: "a".into(), collection: "b".into() };
        let collection = Collection::new(namespace, CollectionKind::TimeSeries(series));
        Collection { expire_after_seconds: Some(Bson::Int64(60)), ..collection }
    }

    fn reason(collection: &Collection, server: &ServerFacts) -> Option<IdleReason> {
        collection.ttl()[0].idle(collection, server).map(|idle| idle.reason)
    }

    #[test]
    fn versions_differ_in_times_outside_of_1970_to_2038() {
        let extended = Some(IdleReason::ExtendedTimes);
        for (version, expected) in [
            ("5.0.9", None),
            ("6.0.5", None),
            ("6.0.6", extended),
            ("7.0.28", extended),
            ("7.3.0", extended),
            ("8.0.11", extended),
            ("8.0.12", None),
            ("8.1.0", None),
            ("9.0.0-rc1", None),
        ] {
            let server = server(version, TtlMonitor::On);
            assert_eq!(reason(&series(Some(true)), &server), expected, "{version}");
            assert_eq!([Some(false), None].map(|seen| reason(&series(seen), &server)), [None, None], "{version}");
        }
    }

    #[test]
    fn a_setting_is_idle_by_its_kind_its_value_or_the_monitor() {
        let (on, off) = (server("7.0.28", TtlMonitor::Unknown), server("7.0.28", TtlMonitor::Off));
        for (direction, value, with_monitor, without) in [
            (Bson::Int32(1), Bson::Int32(60), None, IdleReason::MonitorOff),
            (Bson::Int32(1), Bson::Double(f64::NAN), Some(IdleReason::Value), IdleReason::Value),
            (Bson::from("hashed"), Bson::Int32(60), Some(IdleReason::Kind), IdleReason::Kind),
        ] {
            let index = IndexFacts {
                name: "i".into(),
                key: vec![("at".into(), direction)],
                partial: None,
                hidden: false,
                sparse: false,
                unique: false,
                collation: None,
                expire_after_seconds: Some(value.clone()),
            };
            let namespace = Namespace { database: "a".into(), collection: "b".into() };
            let collection = Collection { indexes: vec![index], ..Collection::new(namespace, CollectionKind::Plain) };
            assert_eq!((reason(&collection, &on), reason(&collection, &off)), (with_monitor, Some(without)), "{value}");
        }
    }
}

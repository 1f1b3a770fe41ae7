//! Integration tests of `sweeper`, in one program: a folder for each area, a file for each subject.

// A test fails by a panic.
#![allow(clippy::unwrap_used)]

mod support;

mod archive {
    mod crashes;
    mod faults;
    mod links;
    mod listed;
    mod lost_reply;
    mod races;
    mod restore;
    mod sharded;
    mod written;
}

mod audit {
    mod figures;
    mod idle_native;
    mod run;
    mod said;
    mod same_survey;
    mod sample;
    mod why;
}

mod bucket {
    mod azure;
    mod credentials;
    mod faults;
    mod google;
    mod sweeps;
}

mod children {
    mod archived;
    mod crashes;
    mod failover;
    mod faults;
    mod keys;
    mod lease;
    mod orphans;
    mod racing;
    mod refused;
    mod together;
    mod why;
}

mod connection {
    mod credentials;
    mod mistakes;
    mod options;
    mod roles;
    mod secrets;
    mod tls;
    mod users;
}

mod differential {
    mod agreement;
    mod comparison;
    mod databases;
    mod effects;
    mod filters;
    mod open;
    mod oracle;
    mod policies;
    mod seeds;
    mod values;
    mod witnesses;
}

mod docs {
    mod commands;
    mod examples;
    mod faults;
    mod links;
    mod manifests;
    mod metrics;
    mod pages;
    mod prose;
    mod recording;
    mod units;
}

mod expiry {
    mod boundary;
    mod epoch_and_object_id;
    mod epoch_own_ttl;
    mod id_field;
    mod iso8601;
    mod oracle;
    mod oracle_names;
    mod oracle_options;
    mod per_document_ttl;
    mod relative_dates;
    mod time_series;
}

mod faults {
    mod collections;
    mod every_command;
    mod fail_points;
    mod failover;
    mod hangup;
    mod lag;
    mod lost_reply;
    mod lost_server;
    mod pressure;
    mod replica_set;
    mod resolver;
    mod schedules;
    mod signals;
}

mod holds {
    mod during;
    mod kept;
    mod oracle;
    mod refused;
    mod services;
}

mod guards {
    mod clock;
    mod detached;
    mod hints;
    mod one_judgement;
    mod oplog;
    mod own_counts;
    mod refusals;
    mod unknown_fields;
    mod unknown_types;
    mod window;
}

mod locks {
    mod file;
    mod late_deletes;
    mod lease;
    mod lease_services;
    mod turns;
}

mod native {
    mod apply;
    mod diff;
    mod import;
    mod import_text;
    mod partial_series;
}

mod periods {
    mod during;
    mod kept;
    mod oracle;
    mod refused;
    mod services;
}

mod policy {
    mod cut;
    mod parse;
    mod refused;
    mod schema;
    mod variables;
}

mod process {
    mod command_line;
    mod every;
    mod init;
    mod listen;
    mod log_json;
    mod packaging;
    mod pause_file;
    mod progress;
    mod prompt;
    mod steered;
    mod stop_file;
    mod streams;
    mod unread;
}

mod reclaim {
    mod emptied;
    mod ended;
    mod refused;
    mod space;
}

mod report {
    mod check;
    mod diff;
    mod formats;
    mod history;
    mod history_shown;
    mod hostile_names;
    mod html;
    mod html_hostile;
    mod metrics;
    mod narrow;
    mod outputs;
    mod same_numbers;
}

mod services {
    mod amazon;
    mod any_server;
    mod cosmos;
    mod cosmos_collections;
    mod cosmos_costs;
    mod cosmos_metadata;
    mod cosmos_native;
    mod cosmos_sharded;
    mod cosmos_ttl;
    mod cosmos_units;
    mod document_db;
    mod document_db_answers;
    mod proxy;
    mod router;
    mod router_trouble;
    mod shard_failover;
    mod shard_keys;
    mod sharded;
}

mod sweep {
    mod ahead;
    mod bad_input;
    mod batches;
    mod collated_ids;
    mod head;
    mod limits;
    mod moving;
    mod nothing;
    mod order;
    mod races;
    mod saved_plan;
    mod smoke;
    mod strange_ids;
    mod stretches;
    mod turns;
}

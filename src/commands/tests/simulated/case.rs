//! A server with parents and children, and runs on it in which others act at a certain command.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use server_model::{BEGINNING, Deletion, Model, Observer};

use super::Surroundings;
use crate::base::watch;
use crate::commands::cli::{Cli, Command, SweepArgs};
use crate::core::policy::parse::parse;
use crate::core::report::rule::RuleReport;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::transport::{Batches, ServerCommand, Transport};
use crate::testing::disk::SimulatedDisk;
use crate::testing::machines::Machine;
use crate::testing::model::Client;

/// Collection of the parents, whose expired documents go.
pub(super) const PARENTS: &str = "app.c";

/// Collection of the children, whose field `p` names their parent.
pub(super) const CHILDREN: &str = "app.d";

pub(super) const JOURNAL: &str = "ops.j";

const DAY: i64 = 86_400_000;

/// Virtual time within which a run ends.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// A server, and the disk of the machine on which runs take place.
pub(super) struct Case {
    pub model: Arc<Model>,
    pub disk: SimulatedDisk,
    /// The reason of a pause file, as long as that is there; `None` for the file that the arguments name.
    pub pause: Option<watch::Receiver<Option<String>>>,
}

struct Unobserved;

impl Observer for Unobserved {
    fn deleted(&self, _: &Deletion<'_>) {}
}

impl Case {
    /// Creates a server with these parents, some of which have expired, and a child for each of the others: the age of its `_id`
    /// in days, and its parent.
    pub(super) fn new(expired: &[i32], living: &[i32], children: &[(i64, i32)]) -> Self {
        let model = Model::new(1, Arc::new(Unobserved));
        let case = Self { model, disk: SimulatedDisk::with_directory(Path::new("/")), pause: None };
        for (id, days) in expired.iter().map(|id| (*id, 2)).chain(living.iter().map(|id| (*id, 0))) {
            let at = DateTime::from_millis(BEGINNING - days * DAY);
            case.model.put(PARENTS, &id.into(), Some(doc! { "_id": id, "at": at }));
        }
        case.model.create_index(PARENTS, "at", 1);
        case.model.create_index(CHILDREN, "p", 1);
        children.iter().for_each(|(days, parent)| add_child(&case.model, *days, *parent));
        case
    }

    /// Returns the parents of the children that are there, in ascending order.
    pub(super) fn parents_of_children(&self) -> Vec<i32> {
        let mut parents: Vec<i32> = self.model.documents(CHILDREN).iter().map(|child| child.get_i32("p").unwrap()).collect();
        parents.sort_unstable();
        parents
    }

    /// Adds an entry of an earlier run to the journal: a parent in a collection, and collections of its children, whose field `p`
    /// names it.
    pub(super) fn add_entry(&self, parents: &str, parent: i32, children: &[&str]) -> Document {
        let places: Vec<Document> = children.iter().map(|namespace| doc! { "namespace": *namespace, "field": "p" }).collect();
        let entry = doc! {
            "_id": ObjectId::new(), "namespace": parents, "rule": "r", "run": "earlier", "at": DateTime::from_millis(BEGINNING - DAY),
            "field": "_id", "parents": [parent], "children": places,
        };
        self.model.put(JOURNAL, &entry["_id"].clone(), Some(entry.clone()));
        entry
    }

    /// Returns the entries of the journal, without the leases.
    pub(super) fn entries(&self) -> Vec<Document> {
        self.model.documents(JOURNAL).into_iter().filter(|document| document.contains_key("namespace")).collect()
    }

    /// Sweeps with further keys of the rule and arguments. `others` act on the server right before a command is sent.
    pub(super) async fn sweep(
        &self,
        keys: &str,
        args: &[&str],
        mut others: impl FnMut(&Model, &Document) + Send + 'static,
    ) -> RuleReport {
        let policy = format!(
            "version: 1\njournal: {{collection: {JOURNAL}}}\ncollections:\n  - namespace: {PARENTS}\n    field: at\n    expireAfter: 1d\n    \
             children: [{{namespace: {CHILDREN}, field: p}}]\n{keys}"
        );
        let model = self.model.clone();
        let others: Others = Box::new(move |command| others(&model, command));
        let (_signals, signals) = watch::channel(None);
        let surroundings = Surroundings {
            run_id: "run".into(),
            policy: parse("sweeper.yaml", &policy, &|_| None, true).unwrap(),
            policies: watch::channel(None).1,
            only: Vec::new(),
            server: Arc::new(Overheard { client: Client::new(&self.model, "sweeper"), others: Mutex::new(others) }),
            disk: Arc::new(self.disk.clone()),
            pause: self.pause.clone(),
            signals,
        };
        let machine = Machine::new(SystemTime::UNIX_EPOCH + Duration::from_millis(BEGINNING.unsigned_abs()));
        let args = sweep_args(args);
        let swept = tokio::time::timeout(MAX_TIME, machine.run(super::sweep(surroundings, &args))).await;
        swept.expect("a run that ends").unwrap().rules.remove(0)
    }
}

/// Writes a child with an ObjectId that is so many days old.
pub(super) fn add_child(model: &Model, days: i64, parent: i32) {
    let mut bytes = ObjectId::new().bytes();
    let seconds = u32::try_from((BEGINNING - days * DAY) / 1000).unwrap();
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    let id = ObjectId::from_bytes(bytes);
    model.put(CHILDREN, &id.into(), Some(doc! { "_id": id, "p": parent }));
}

/// Returns the collection that a command of this name is for, if it is one.
pub(super) fn target<'a>(command: &'a Document, name: &str) -> Option<&'a str> {
    command.iter().next().filter(|(first, _)| *first == name).and_then(|(_, target)| Bson::as_str(target))
}

/// Does nothing.
pub(super) fn nobody(_: &Model, _: &Document) {}

fn sweep_args(args: &[&str]) -> SweepArgs {
    let words: Vec<OsString> = ["sweeper", "sweep", "--yes"].iter().chain(args).map(OsString::from).collect();
    match Cli::read(&words).unwrap().command {
        Command::Sweep(args) => args,
        other => panic!("{other:?}"),
    }
}

type Others = Box<dyn FnMut(&Document) + Send>;

/// A client whose commands others know before the server.
struct Overheard {
    client: Arc<Client>,
    others: Mutex<Others>,
}

impl Overheard {
    fn overhear(&self, command: &ServerCommand) {
        (self.others.lock())(&Document::try_from(&*command.body).unwrap());
    }
}

impl Transport for Overheard {
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>> {
        self.overhear(&command);
        self.client.run(command)
    }

    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
        self.overhear(&command);
        self.client.open(command)
    }
}

//! The bill of a service that charges each request, and the one connection over which its requests go.
//!
//! The service reports only the cost of the last request on a connection, so every request goes over a connection of its own, one
//! at a time. A request waits for its turn, for the wait that the service asked for, and for the limit of the rule that it
//! belongs to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::error::ServerError;
use super::overload::Overload;
use super::timeout::{MAX_COMMAND_TIME, in_task, in_task_unless};
use super::transport::{Batches, Extent, Patience, ServerCommand, Transport};
use crate::core::pace::units::{QUERY, RuleCosts, UnitLimit};
use crate::core::plan::SweepRule;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;

/// Patience with the question what a command has cost: an unknown cost does no harm.
const BILL: Patience = Patience::Limit(Duration::from_secs(10));

/// Commands that are charged to a collection. All others have a budget of the account's own (Microsoft, "Azure Cosmos DB service
/// quotas").
const OF_A_COLLECTION: [&str; 8] = ["aggregate", "count", "delete", "distinct", "find", "findAndModify", "insert", "update"];

/// The bill of a deployment for one run.
struct Meter {
    begun: Instant,
    total: Mutex<f64>,
    accounts: Mutex<BTreeMap<(String, Namespace), Account>>,
    /// The earliest time of the next request, by the collection that had no room; the account's own budget is under an empty
    /// name.
    not_before: Mutex<HashMap<String, Instant>>,
}

impl Meter {
    fn new() -> Self {
        Self { begun: Instant::now(), total: Mutex::default(), accounts: Mutex::default(), not_before: Mutex::default() }
    }
}

/// The bill of one rule in one namespace. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account(Arc<Mutex<AccountState>>);

#[derive(Debug, Default)]
struct AccountState {
    spent: f64,
    limit: Option<UnitLimit>,
    costs: RuleCosts,
}

impl Account {
    /// Returns the number of documents that a batch may take under the rule's limit; `None` if it has none.
    pub(crate) fn batch_limit(&self) -> Option<u64> {
        let state = self.0.lock();
        state.limit.as_ref().map(|limit| state.costs.batch_limit(limit.per_second()))
    }

    /// Returns the number of documents that one query may load under the rule's limit; `None` if it has none.
    pub(crate) fn find_limit(&self) -> Option<i64> {
        let state = self.0.lock();
        let limit = state.limit.as_ref()?;
        // A cast from float saturates.
        Some((limit.per_second() / 2.0 / state.costs.of_find().unwrap_or(f64::MAX).max(0.01)) as i64)
    }

    /// Returns the units that a second may cost; `None` for no limit.
    pub(crate) fn limit(&self) -> Option<f64> {
        self.0.lock().limit.as_ref().map(UnitLimit::per_second)
    }

    /// Returns the units that the rule has cost so far.
    pub(crate) fn spent(&self) -> f64 {
        self.0.lock().spent
    }

    /// Returns the wait that the rule's limit asks for before a command.
    fn wait(&self, command: &ServerCommand, now: Duration) -> Duration {
        let state = self.0.lock();
        let Some(limit) = &state.limit else { return Duration::ZERO };
        let of_documents = |each: Option<f64>, documents| each.map(|each| each * documents as f64 + QUERY);
        let expected = match (name(&command.body), command.extent) {
            ("delete", Extent::Documents(documents)) => of_documents(state.costs.of_delete(), documents),
            (_, Extent::Documents(documents)) => of_documents(state.costs.of_find(), documents),
            (_, Extent::Units(units)) => Some(units),
            (_, Extent::Unknown) => Some(QUERY),
        };
        // The cost of a document that nothing is known about may be anything.
        limit.wait(expected.unwrap_or(f64::MAX), now)
    }

    fn charge(&self, name: &str, extent: Extent, units: f64, now: Duration) {
        let mut state = self.0.lock();
        state.spent += units;
        if let Some(limit) = &mut state.limit {
            limit.charge(units, now);
        }
        match (name, extent) {
            ("delete", Extent::Documents(documents)) => state.costs.delete.learn(units, documents),
            (_, Extent::Documents(documents)) => state.costs.find.learn(units, documents),
            (_, Extent::Unknown | Extent::Units(_)) => {}
        }
    }
}

/// A connection whose requests are charged to an account.
#[derive(Clone)]
struct Metered {
    meter: Arc<Meter>,
    /// At most one connection, whose last request is known.
    transport: Arc<dyn Transport>,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// `None` for requests that belong to no rule.
    account: Option<Account>,
}

/// The connections of a deployment that bills requests.
#[derive(Clone)]
pub(crate) struct Billing {
    requests: Metered,
    /// For requests that cannot wait for others.
    aside: Metered,
}

impl Billing {
    /// Begins a bill for two transports, each of which must have at most one connection.
    pub(crate) fn new(requests: Arc<dyn Transport>, aside: Arc<dyn Transport>) -> Self {
        let meter = Arc::new(Meter::new());
        Self { requests: Metered::new(&meter, requests), aside: Metered::new(&meter, aside) }
    }

    /// Returns the transport of the requests that belong to no rule.
    pub(crate) fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.requests.clone())
    }

    /// Ends the sessions of both connections.
    pub(crate) async fn close(&self) {
        self.requests.close().await;
        self.aside.close().await;
    }
}

/// The right to send one request over the connection.
type Turn = OwnedMutexGuard<()>;

impl Metered {
    fn new(meter: &Arc<Meter>, transport: Arc<dyn Transport>) -> Self {
        Self { meter: meter.clone(), transport, turn: Arc::default(), account: None }
    }

    fn of(&self, rule: &str, namespace: &Namespace) -> Self {
        let account = self.meter.accounts.lock().entry((rule.to_owned(), namespace.clone())).or_default().clone();
        Self { account: Some(account), ..self.clone() }
    }

    /// Returns the wait before a command may be sent.
    fn wait(&self, command: &ServerCommand) -> Duration {
        let now = Instant::now();
        let asked = self.meter.not_before.lock().get(&budget(command)).map(|end| end.saturating_duration_since(now));
        let limit = self.account.as_ref().map(|account| account.wait(command, now - self.meter.begun));
        asked.unwrap_or_default().max(limit.unwrap_or_default())
    }

    /// Waits until a command may be sent, and has its turn.
    ///
    /// Errors: the connection is in use for longer than any command takes.
    async fn turn(&self, command: &ServerCommand) -> Result<Turn, ServerError> {
        loop {
            self.ready(command).await;
            let turn = self.next_turn().await?;
            // Other requests may have used up the room meanwhile.
            if self.wait(command).is_zero() {
                return Ok(turn);
            }
        }
    }

    async fn next_turn(&self) -> Result<Turn, ServerError> {
        let turn = tokio::time::timeout(MAX_COMMAND_TIME, self.turn.clone().lock_owned()).await;
        turn.map_err(|_| ServerError::timeout(MAX_COMMAND_TIME))
    }

    async fn ready(&self, command: &ServerCommand) {
        loop {
            let wait = self.wait(command);
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Adds the cost of the last request to the bill. An unknown cost cannot be counted, but does not affect the command itself.
    ///
    /// A command that the service refused to run is not its last request: the cost would be the cost of an earlier one.
    async fn bill(&self, command: &Billed, error: Option<&ServerError>) {
        if error.is_some_and(|cause| cause.overload().is_none()) {
            return;
        }
        let Ok(ask) = ServerCommand::of(&command.database, &doc! { "getLastRequestStatistics": 1 }, BILL) else { return };
        let Ok(statistics) = self.transport.run(ask).await else { return };
        let Ok(units) = statistics.get_f64("RequestCharge") else { return };
        *self.meter.total.lock() += units;
        if let Some(account) = &self.account {
            account.charge(&command.name, command.extent, units, self.meter.begun.elapsed());
        }
    }

    /// Keeps everybody from the budget of a command for the time that the service asked for.
    fn observe(&self, command: &Billed, cause: &ServerError) {
        if let Some(Overload::Throttled { retry_after: Some(wait) }) = cause.overload() {
            let end = Instant::now() + wait;
            let mut not_before = self.meter.not_before.lock();
            let known = not_before.entry(command.budget.clone()).or_insert(end);
            *known = end.max(*known);
        }
    }
}

/// The parts of a command that its bill depends on.
struct Billed {
    name: String,
    database: String,
    extent: Extent,
    budget: String,
}

impl Billed {
    fn of(command: &ServerCommand) -> Self {
        let (name, budget) = (name(&command.body).to_owned(), budget(command));
        Self { name, database: command.database.clone(), extent: command.extent, budget }
    }
}

fn name(body: &RawDocumentBuf) -> &str {
    body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str())
}

/// Returns the name of the budget that a command is charged to.
fn budget(command: &ServerCommand) -> String {
    let collection = match command.body.iter().next() {
        Some(Ok((name, value))) if OF_A_COLLECTION.contains(&name.as_str()) => value.as_str(),
        _ => None,
    };
    collection.map(|collection| format!("{}.{collection}", command.database)).unwrap_or_default()
}

impl Transport for Metered {
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>> {
        Box::pin(async move {
            let turn = self.turn(&command).await?;
            let (me, billed, ends_unawaited) = (self.clone(), Billed::of(&command), command.ends_unawaited);
            // In a task of its own: the cost is asked for even if the caller no longer waits for the reply.
            let metered = async move {
                let _turn = turn;
                let reply = me.transport.run(command).await;
                let refused = match &reply {
                    Ok(reply) => ServerError::of_write(reply),
                    Err(cause) => Some(cause.clone()),
                };
                refused.iter().for_each(|cause| me.observe(&billed, cause));
                me.bill(&billed, reply.as_ref().err()).await;
                reply
            };
            in_task_unless(ends_unawaited, metered).await
        })
    }

    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
        Box::pin(async move {
            let turn = self.turn(&command).await?;
            let (me, billed) = (self.clone(), Billed::of(&command));
            let metered = async move {
                let _turn = turn;
                let opened = me.transport.open(command).await;
                opened.as_ref().err().into_iter().for_each(|cause| me.observe(&billed, cause));
                me.bill(&billed, opened.as_ref().err()).await;
                opened.map(|batches| MeteredBatches { batches: Some(batches), is_first: true, metered: me, billed })
            };
            let batches = in_task(metered).await?;
            Ok(Box::new(batches) as Box<dyn Batches>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.transport.close()
    }
}

/// A cursor whose batches are charged. The first batch has come with the cursor.
struct MeteredBatches {
    /// `None` after an error, or after a batch was abandoned on its way.
    batches: Option<Box<dyn Batches>>,
    is_first: bool,
    metered: Metered,
    billed: Billed,
}

impl Batches for MeteredBatches {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<RawDocumentBuf>>, ServerError>> {
        Box::pin(async {
            let Some(mut batches) = self.batches.take() else {
                return Err(ServerError::other("the cursor was given up after an error"));
            };
            let _turn = self.metered.next_turn().await?;
            let batch = batches.next().await?;
            self.batches = Some(batches);
            if batch.is_some() && !std::mem::take(&mut self.is_first) {
                self.metered.bill(&self.billed, None).await;
            }
            Ok(batch)
        })
    }
}

impl Deployment {
    /// Returns the same deployment with its requests charged to one rule in one namespace, where the service bills them.
    pub(crate) fn charged_to(&self, rule: &str, namespace: &Namespace) -> Self {
        let Some(billing) = &self.billing else { return self.clone() };
        let requests = billing.requests.of(rule, namespace);
        let transport = Arc::new(requests.clone());
        Self { transport, billing: Some(Billing { requests, ..billing.clone() }), ..self.clone() }
    }

    /// Returns the same deployment with its requests charged to one rule in one namespace, and held to its limit.
    pub(crate) fn charged_within(&self, rule: &str, namespace: &Namespace, max_request_units: Option<u32>) -> Self {
        let charged = self.charged_to(rule, namespace);
        if let Some(Account(state)) = charged.account() {
            let limit = &mut state.lock().limit;
            *limit = limit.take().or_else(|| max_request_units.map(UnitLimit::new));
        }
        charged
    }

    /// Returns the same deployment with its requests bound to the collections of a rule, charged to it, and held to its limit.
    pub(crate) fn of_rule(&self, rule: &SweepRule) -> Self {
        let charged = self.bound_to(rule).charged_within(&rule.name, &rule.namespace, rule.limits.max_request_units);
        if let Some(Account(state)) = charged.account() {
            state.lock().costs.average_bytes = rule.selection.size.average_bytes;
        }
        charged
    }

    /// Returns the same deployment with a connection of its own, for requests that cannot wait for others.
    pub(crate) fn aside(&self) -> Self {
        let Some(billing) = &self.billing else { return self.clone() };
        Self { transport: Arc::new(billing.aside.clone()), ..self.clone() }
    }

    /// Returns the bill of the rule that the requests are charged to; `None` if there is no such rule, or the service bills
    /// nothing.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.billing.as_ref()?.requests.account.as_ref()
    }

    /// Waits until a delete may be sent: until the service has room, and the rule's limit too. Returns the time that this took;
    /// zero where nothing is billed.
    pub(crate) async fn ready_to_delete(&self, namespace: &Namespace, extent: Extent) -> Duration {
        let Some((requests, command)) = self.billed("delete", namespace, extent) else { return Duration::ZERO };
        let begun = Instant::now();
        requests.ready(&command).await;
        begun.elapsed()
    }

    /// Returns the wait before a query for so many documents: until the service has room, and the rule's limit too.
    pub(crate) fn wait_to_find(&self, namespace: &Namespace, documents: u64) -> Duration {
        let billed = self.billed("find", namespace, Extent::Documents(documents));
        billed.map_or(Duration::ZERO, |(requests, command)| requests.wait(&command))
    }

    /// Returns a command to ask the wait of, and the connection that it would go over; `None` if the service bills nothing.
    fn billed(&self, name: &str, namespace: &Namespace, extent: Extent) -> Option<(&Metered, ServerCommand)> {
        let billing = self.billing.as_ref()?;
        let command = ServerCommand::of(&namespace.database, &doc! { name: &namespace.collection }, BILL).ok()?;
        Some((&billing.requests, command.extent(extent)))
    }

    /// Returns the units that the run has spent so far; `None` if the service bills nothing.
    pub(crate) fn units_spent(&self) -> Option<f64> {
        self.billing.as_ref().map(|billing| *billing.requests.meter.total.lock())
    }

    /// Returns the units that the run has spent on one rule in one namespace; `None` if the service bills nothing.
    pub(crate) fn units_spent_on(&self, rule: &str, namespace: &Namespace) -> Option<f64> {
        let requests = self.billing.as_ref()?.requests.of(rule, namespace);
        requests.account.map(|account| account.spent())
    }
}

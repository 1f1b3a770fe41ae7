//! The way between a run and the server, which is cut off at times: commands then wait on it, and arrive when it is whole again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::World;
use super::relations::JOURNAL;
use super::scenario::{LAST, Scenario, SweptRule};
use super::trace::digest;
use super::{pauses, relatives};
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::transport::{Batches, Patience, ServerCommand, Transport};
use crate::testing::machines::Machine;
use crate::testing::model::Client;

/// Longest time that a run may take to end, once it has to: 5 s, and 6 s more for the reply to a delete.
const MAX_END: Duration = Duration::from_secs(12);

/// The connection of one run.
pub(super) struct Link {
    world: Arc<World>,
    machine: Arc<Machine>,
    run: String,
    client: Arc<Client>,
    begun: Instant,
    /// Times for which the way is cut off, in milliseconds.
    cuts: Range<u64>,
    state: Mutex<State>,
}

struct State {
    random: fastrand::Rng,
    /// The next time at which the way is cut off, and the time at which it is whole again.
    cut: Option<(Instant, Instant)>,
    signalled: Option<Instant>,
}

/// Time after which the pause file is seen by every rule that begins another batch.
const MAX_PAUSE_SEEN: Duration = Duration::from_secs(3);

impl Link {
    pub(super) fn new(
        world: &Arc<World>,
        machine: &Arc<Machine>,
        run: &str,
        cuts: Range<u64>,
        random: fastrand::Rng,
    ) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            machine: machine.clone(),
            run: run.to_owned(),
            client: Client::new(&world.model, run),
            begun: Instant::now(),
            cuts,
            state: Mutex::new(State { random, cut: None, signalled: None }),
        })
    }

    /// Returns the time at which a command can go on its way.
    fn open_from(&self) -> Instant {
        let now = Instant::now();
        let Some(every) = self.world.scenario.troubles.partition_every.filter(|_| !self.world.is_calm()) else { return now };
        let mut state = self.state.lock();
        let State { random, cut, .. } = &mut *state;
        if cut.is_none_or(|(_, until)| until <= now) {
            let from = now + Duration::from_millis(random.u64(every / 2..every * 2));
            *cut = Some((from, from + Duration::from_millis(random.u64(self.cuts.clone()))));
        }
        cut.filter(|(from, _)| *from <= now).map_or(now, |(_, until)| until)
    }

    /// Lets others create parents again, at times, between a look at them and the delete of their children. That delete then
    /// arrives when the look is about as old as it may be. Returns the time at which the command can go on its way.
    fn look_grows_old(&self, command: &ServerCommand) -> Instant {
        let now = Instant::now();
        let is_of_children = || {
            let family = self.world.scenario.family.as_ref()?;
            let name = command.body.get_str("delete").ok()?;
            family.collection(&format!("{}.{name}", command.database))
        };
        let chance = self.world.scenario.pauses.as_ref().and_then(|pauses| pauses.looks).filter(|_| !self.world.is_calm());
        let Some(one_in) = chance.filter(|_| is_of_children().is_some()) else { return now };
        let random = &mut self.state.lock().random;
        if random.u8(..one_in) > 0 {
            return now;
        }
        relatives::create_again(&self.world, random);
        now + Duration::from_millis(pauses::near_two_seconds(random))
    }

    /// Judges that no batch begins long after the pause file has appeared, as far as nothing else delays it.
    fn judge_pause(&self, command: &ServerCommand) {
        let is_of_batch = !command.body.get_str("delete").is_ok_and(|name| JOURNAL.ends_with(&format!(".{name}")));
        let is_late = self.world.paused().is_some_and(|since| since.elapsed() > MAX_PAUSE_SEEN);
        if is_late && is_of_batch && self.world.scenario.troubles.are_none() && !self.machine.has_slept() {
            self.world.trace.violated(|| format!("{} begins a batch although the pause file is there", self.run));
        }
    }

    /// Notes that the run has got a signal.
    pub(super) fn signalled(&self) {
        self.state.lock().signalled = Some(Instant::now());
    }

    /// Judges that the run goes on within a few seconds of its end, as a whole or with further deletes.
    pub(super) fn judge_time(&self, is_delete: bool) {
        // Whether the machine sleeps, or its clock is set: then no one can tell in time.
        if self.machine.has_slept() {
            return;
        }
        let slack = if is_delete { Duration::from_secs(3) } else { MAX_END };
        let what = if is_delete { "deletes" } else { "ends" };
        if let Some(signalled) = self.state.lock().signalled.filter(|signalled| signalled.elapsed() > slack) {
            self.world.trace.violated(|| format!("{} {what} {:?} after a signal", self.run, signalled.elapsed()));
        }
        let Scenario { max_duration, rules, .. } = &self.world.scenario;
        let limit = max_duration.filter(|_| self.run != LAST).map(Duration::from_secs);
        if let Some(limit) = limit.filter(|limit| self.begun.elapsed() > *limit + slack) {
            self.world
                .trace
                .violated(|| format!("{} {what} after {:?}, its `maxDuration` is {limit:?}", self.run, self.begun.elapsed()));
        }
        // A clock that was just set forward has closed the window without time to notice it.
        if self.machine.was_set_within(slack) {
            return;
        }
        let closed = rules.iter().map(SweptRule::closes).collect::<Option<Vec<_>>>().and_then(|closed| closed.into_iter().max());
        let wall_clock = bson::DateTime::from_system_time(self.machine.wall_clock()).timestamp_millis();
        if let Some(closed) = closed.filter(|closed| is_delete && wall_clock > *closed + 3000) {
            self.world.trace.violated(|| format!("{} deletes {} ms after its window", self.run, wall_clock - closed));
        }
    }

    fn told(&self, command: &ServerCommand, result: Result<String, &ServerError>) {
        let name =
            || command.body.iter().next().and_then(Result::ok).map(|(name, _)| name.as_str().to_owned()).unwrap_or_default();
        self.world.trace.step(digest(&self.run), || match result {
            Ok(reply) => format!("{} {}: {reply}", self.run, name()),
            Err(cause) => format!("{} {} fails: {cause}", self.run, name()),
        });
    }
}

impl Transport for Arc<Link> {
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>> {
        Box::pin(async move {
            assert!(!self.machine.is_killed(), "a run that was killed sends a command");
            if command.body.iter().next().is_some_and(|first| first.is_ok_and(|(name, _)| name == "delete")) {
                self.judge_time(true);
                self.judge_pause(&command);
            }
            let from = self.open_from().max(self.look_grows_old(&command));
            self.world.trace.step(command.body.as_bytes().len() as u64, || {
                let body = Document::try_from(&*command.body).unwrap_or_default();
                format!("{} sends {body}", self.run)
            });
            let reply = if from > Instant::now() {
                let (client, sent) = (self.client.clone(), command.clone());
                // Like the driver: a command on its way goes on without its client.
                let later = tokio::spawn(async move {
                    sleep_until(from).await;
                    client.run(sent).await
                });
                let (Patience::Limit(limit) | Patience::WhileRunning(limit)) = command.patience;
                let in_time = timeout(limit, later).await.unwrap_or_else(|_| Ok(Err(ServerError::timeout(limit))));
                in_time.expect("the model does not panic")
            } else {
                self.client.run(command.clone()).await
            };
            self.told(&command, reply.as_ref().map(Document::to_string));
            reply
        })
    }

    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
        Box::pin(async move {
            self.world.trace.step(command.body.as_bytes().len() as u64, || {
                let body = Document::try_from(&*command.body).unwrap_or_default();
                format!("{} opens {body}", self.run)
            });
            sleep_until(self.open_from()).await;
            let opened = self.client.open(command.clone()).await;
            self.told(&command, opened.as_ref().map(|_| "a cursor".into()));
            opened
        })
    }
}

//! Servers that one test after another has to itself, or that tests share. A mongod calibrates its clock when it starts, which
//! takes two thirds of a second of a processor: as long as many a test.

use std::any::Any;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;

use super::mongod::{Mongod, block_on};
use super::replica_set::ReplicaSet;

/// Time in which a server has to be empty again; one that takes longer is ended.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Fail points that tests set.
const FAIL_POINTS: [&str; 4] = ["failCommand", "hangAfterStartingIndexBuild", "hangDuringBatchRemove", "setYieldAllLocksWait"];

/// Databases of the server itself.
const OWN: [&str; 3] = ["admin", "config", "local"];

/// Servers that no test has at the moment, and those that tests share. They end with the last case.
#[derive(Default)]
pub(crate) struct Pool {
    standalones: Mutex<Vec<Mongod>>,
    sets: Mutex<Vec<ReplicaSet>>,
    shared: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

/// Returns the pool of this run.
pub(crate) fn pool() -> Arc<Pool> {
    static POOL: Shared<Pool> = Shared::new();
    POOL.or_begin(Arc::default)
}

/// A place for a value that the first test that needs it creates, and that ends with the pool. The value itself cannot be
/// static: it would never be dropped, and the server process would outlive the tests.
pub(crate) struct Shared<T>(Mutex<Weak<T>>);

/// A shared value, with the pool that keeps it for other tests.
pub(crate) struct Kept<T> {
    value: Arc<T>,
    _pool: Arc<Pool>,
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub(crate) fn get(&self, start: impl FnOnce() -> T) -> Kept<T> {
        // First, so that it lasts while the value begins.
        self.kept_by(pool(), start)
    }

    fn kept_by(&self, pool: Arc<Pool>, start: impl FnOnce() -> T) -> Kept<T> {
        let value = self.or_begin(|| Arc::new(start()));
        let shared: Arc<dyn Any + Send + Sync> = value.clone();
        let mut of_pool = lock(&pool.shared);
        // The pool that kept the value until now may end at this moment.
        if !of_pool.iter().any(|other| Arc::ptr_eq(other, &shared)) {
            of_pool.push(shared);
        }
        drop(of_pool);
        Kept { value, _pool: pool }
    }

    fn or_begin(&self, begin: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut shared = lock(&self.0);
        shared.upgrade().unwrap_or_else(|| {
            let begun = begin();
            *shared = Arc::downgrade(&begun);
            begun
        })
    }
}

/// Returns the standalone server of all tests that can share one.
pub(crate) fn standalone() -> Kept<Mongod> {
    static STANDALONE: Shared<Mongod> = Shared::new();
    STANDALONE.get(|| Mongod::start(&[]))
}

/// A kind of servers that can be lent.
pub(crate) trait Lent: Send + Sync + Sized + 'static {
    fn idle(pool: &Pool) -> &Mutex<Vec<Self>>;

    fn begin() -> Self;

    fn members(&self) -> &[Mongod];

    fn client(&self) -> impl Future<Output = Client> + Send;
}

/// A standalone server that logs each command.
impl Lent for Mongod {
    fn idle(pool: &Pool) -> &Mutex<Vec<Self>> {
        &pool.standalones
    }

    fn begin() -> Self {
        let verbose = "logComponentVerbosity={command: {verbosity: 1}, write: {verbosity: 1}}";
        Self::start(&["--setParameter", verbose, "--setParameter", "maxLogSizeKB=100000"])
    }

    fn members(&self) -> &[Mongod] {
        std::slice::from_ref(self)
    }

    fn client(&self) -> impl Future<Output = Client> + Send {
        self.client()
    }
}

/// A replica set of one member.
impl Lent for ReplicaSet {
    fn idle(pool: &Pool) -> &Mutex<Vec<Self>> {
        &pool.sets
    }

    fn begin() -> Self {
        Self::start(1, &[])
    }

    fn members(&self) -> &[Mongod] {
        &self.members
    }

    fn client(&self) -> impl Future<Output = Client> + Send {
        self.client()
    }
}

/// A server that no other test has until this is dropped. After a test that passed it is emptied, and goes to another test.
pub(crate) struct Alone<T: Lent> {
    /// `None` only while it is dropped.
    server: Option<T>,
    pool: Arc<Pool>,
}

impl<T: Lent> Alone<T> {
    /// Takes an idle server, or starts one.
    pub(crate) async fn take() -> Self {
        let pool = pool();
        let idle = lock(T::idle(&pool)).pop();
        let server = match idle {
            Some(server) => server,
            None => tokio::task::spawn_blocking(T::begin).await.expect("a server"),
        };
        Self { server: Some(server), pool }
    }
}

impl<T: Lent> Deref for Alone<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.server.as_ref().expect("a server")
    }
}

impl<T: Lent> DerefMut for Alone<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.server.as_mut().expect("a server")
    }
}

impl<T: Lent> Drop for Alone<T> {
    fn drop(&mut self) {
        let Some(server) = self.server.take().filter(|_| !std::thread::panicking()) else { return };
        let emptied = async { tokio::time::timeout(MAX_TIME, async { empty(&server.client().await).await }).await };
        if !matches!(block_on(emptied), Ok(Ok(()))) {
            return;
        }
        for member in server.members() {
            let log = fs::File::options().write(true).open(member.dir.path().join("log"));
            log.and_then(|log| log.set_len(0)).expect("the log of mongod");
        }
        lock(T::idle(&self.pool)).push(server);
    }
}

/// Removes what a test left on a server: its fail points and parameters, its data, its users.
async fn empty(client: &Client) -> mongodb::error::Result<()> {
    let admin = client.database("admin");
    let parameters = doc! { "setParameter": 1, "ttlMonitorEnabled": false, "internalQueryExecYieldIterations": 1000 };
    let fail_points = FAIL_POINTS.map(|name| doc! { "configureFailPoint": name, "mode": "off" });
    let names = client.list_database_names().await?;
    for command in fail_points.into_iter().chain([parameters]) {
        admin.run_command(command).await?;
    }
    for name in names.iter().filter(|name| !OWN.contains(&name.as_str())) {
        client.database(name).drop().await?;
    }
    for of_all in ["dropAllUsersFromDatabase", "dropAllRolesFromDatabase"] {
        admin.run_command(doc! { of_all: 1 }).await?;
    }
    Ok(())
}

fn lock<T>(of_pool: &Mutex<T>) -> MutexGuard<'_, T> {
    of_pool.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_value_of_a_pool_that_ends_lasts_as_long_as_the_next_pool() {
    let shared = Shared::new();
    let [ending, next] = [(); 2].map(|()| Arc::<Pool>::default());
    let first = shared.kept_by(ending, || 1);
    let second = shared.kept_by(next.clone(), || 2);
    let value = Arc::downgrade(&second.value);
    drop((first, second));
    assert_eq!(value.upgrade().as_deref(), Some(&1));
    drop(next);
    assert_eq!(value.upgrade(), None);
}

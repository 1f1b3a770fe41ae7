use bson::DateTime;

use super::*;
use crate::shell::lock::moment::tests::{ago, later};

const S: Duration = Duration::from_secs(1);

fn time(millis: i64) -> ServerTime {
    ServerTime { now: DateTime::from_millis(millis), asked: Moment::now() }
}

fn namespace() -> Namespace {
    Namespace { database: "app".into(), collection: "c.d".into() }
}

#[test]
fn a_lease_is_relied_on_for_less_than_it_lasts() {
    let taken = time(0);
    let left = |after| left(Some(taken), later(taken.asked, after, after));
    assert_eq!((*LEASE, *RELIED_ON, *HEARTBEAT, *LOOK, *CREATED), (60 * S, 50 * S, 20 * S, 2 * S, 5 * S));
    assert!(*LOOK + *LAST_REPLY < *CREATED && *RELIED_ON + *LAST_REPLY < *LEASE);
    assert_eq!([0, 49, 50, 51].map(|after| left(after * S)), [50 * S, S, Duration::ZERO, Duration::ZERO]);
    assert_eq!(super::left(None, taken.asked), Duration::ZERO);
}

#[test]
fn what_is_over_comes_back_only_where_it_was_renewed() {
    let renewals = Renewals::new(ServerTime { asked: ago(51 * S), ..time(0) }, Arc::default());
    let leases = Leases::new(BTreeMap::from([(namespace(), renewals.lease())]));
    let fence = || leases.of(&namespace()).unwrap().fence();
    assert!(leases.is_over(&namespace()) && fence().is_none());
    assert!(leases.why_over(&namespace()).contains("could not be renewed within 50 s"));
    renewals.renewed(time(100_000));
    assert!(!leases.is_over(&namespace()));
    let Fence { begins_before, max_time } = fence().unwrap();
    let max_time = max_time.unwrap();
    // Some milliseconds may have passed since.
    assert!(max_time > 39 * S && max_time <= 40 * S, "{max_time:?}");
    assert_eq!(begins_before.timestamp_millis() + i64::try_from(max_time.as_millis()).unwrap(), 150_000);
    renewals.lost();
    assert!(leases.is_over(&namespace()) && fence().is_none() && renewals.is_lost());
    assert!(leases.why_over(&namespace()).contains("`app.c.d` was lost: another run has it"));
    assert!(!Leases::default().is_over(&namespace()));
}

#[tokio::test(start_paused = true)]
async fn of_two_leases_on_a_namespace_each_has_to_stand() {
    let lock = Renewals::new(time(0), Arc::default());
    for is_earlier in [true, false] {
        let journal = Renewals::new(time(if is_earlier { -10_000 } else { 10_000 }), Arc::default());
        let [lock_only, of_journal] =
            [&lock, &journal].map(|renewals| Leases::new(BTreeMap::from([(namespace(), renewals.lease())])));
        let leases = lock_only.and(of_journal).and(Leases::default());
        let Fence { begins_before, max_time } = leases.of(&namespace()).unwrap().fence().unwrap();
        let end = begins_before.timestamp_millis() + i64::try_from(max_time.unwrap().as_millis()).unwrap();
        assert_eq!(end, if is_earlier { 40_000 } else { 50_000 });
        leases.of(&namespace()).unwrap().note_unanswered();
        assert!(lock.is_unanswered() && journal.is_unanswered());
        let (namespace, lost) = (namespace(), tokio::time::Instant::now());
        tokio::join!(leases.over(&namespace), async { if is_earlier { journal.lost() } else { lock.lost() } });
        assert!(lost.elapsed() < S && leases.is_over(&namespace));
        assert!(leases.of(&namespace).unwrap().fence().is_none());
        assert!(leases.why_over(&namespace).contains("another run has it"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_noticed_when_it_comes_and_its_loss_at_once() {
    let begun = tokio::time::Instant::now();
    // A keeper that has ended renews nothing, but what it renewed last stays good.
    let lease = Renewals::new(time(0), Arc::default()).lease();
    lease.over().await;
    assert!(begun.elapsed() >= 50 * S, "{:?}", begun.elapsed());
    let renewals = Renewals::new(time(0), Arc::default());
    let lease = renewals.lease();
    let lost = tokio::time::Instant::now();
    tokio::join!(lease.over(), async { renewals.lost() });
    assert!(lost.elapsed() < S, "{:?}", lost.elapsed());
    renewals.renewed(time(0));
    assert!(lease.is_over(), "what is lost is not renewed");
}

#[test]
fn a_delete_without_an_answer_is_known_to_the_keeper() {
    let renewals = Renewals::new(time(0), Arc::default());
    assert!(!renewals.is_unanswered());
    renewals.lease().clone().note_unanswered();
    assert!(renewals.is_unanswered());
}

#[test]
fn a_lease_is_taken_where_it_has_expired_by_the_servers_clock_or_is_ones_own() {
    let me = Holder::me("me", DateTime::from_millis(5));
    let (filter, update) = taking(&namespace(), &me, &time(1_000));
    let expired = doc! { "expiresAt": { "$lte": DateTime::from_millis(1_000) } };
    assert_eq!(filter, doc! { "_id": "app.c.d", "$or": [expired, { "runId": "me" }] });
    let mut lease = update.get_document("$set").unwrap().clone();
    lease.extend(update.get_document("$max").unwrap().clone());
    let occupant = occupant(&lease);
    assert_eq!(occupant.holder, Some(Holder { since: "1970-01-01T00:00:01.000Z".into(), ..me }));
    assert_eq!(occupant.expires_at, Some(DateTime::from_millis(61_000)));
    assert_eq!(super::occupant(&doc! { "expiresAt": "soon", "runId": 5 }), Occupant::default());
}

#[test]
fn renewing_and_releasing_touch_ones_own_only_and_a_late_renewal_shortens_nothing() {
    let filter = owned(&[namespace()], "me");
    assert_eq!(filter, doc! { "_id": { "$in": ["app.c.d"] }, "runId": "me" });
    let now = time(1_000);
    let at = |millis| DateTime::from_millis(millis);
    assert_eq!(renewing(&now), doc! { "$max": { "heartbeat": at(1_000), "expiresAt": at(61_000) } });
    assert_eq!(releasing(&now), doc! { "$set": { "runId": null, "expiresAt": at(1_000) } });
    assert_eq!(releasing_new(&now), doc! { "$set": { "runId": null, "expiresAt": at(6_000) } });
}

//! Tests of restoring, into a model of a server.

use std::path::Path;

use bson::{DateTime, Document, doc};
use server_model::{Deletion, Model, Observer};

use super::*;
use crate::base::watch;
use crate::core::policy::Compression;
use crate::shell::archive::writer::Archive;
use crate::testing::disk::SimulatedDisk;
use crate::testing::model::Client;

struct Unobserved;

impl Observer for Unobserved {
    fn deleted(&self, _: &Deletion<'_>) {}
}

fn namespace(collection: &str) -> Namespace {
    Namespace { database: "app".into(), collection: collection.into() }
}

/// Writes an archive with these batches, each of a collection, which is of children if it is `d`; reads it again.
fn archived(batches: &[(&str, &[Document])]) -> Vec<Verified> {
    let disk = Arc::new(SimulatedDisk::with_directory(Path::new("/")));
    let archive = Archive::on(disk.clone(), Path::new("/"), "run", DateTime::from_millis(0));
    for (collection, documents) in batches {
        let file = archive.begin(&namespace(collection), Compression::Zstd, "{}", *collection == "d").unwrap();
        let documents: Vec<_> = documents.iter().map(|document| RawDocumentBuf::try_from(document).unwrap()).collect();
        file.try_lock().unwrap().append("rule", documents.iter().map(|document| document.as_bytes())).unwrap();
    }
    archive.end(Vec::new()).unwrap();
    let stored = reader::open(disk, archive.path()).unwrap();
    stored.files.into_iter().map(|file| file.verify().unwrap()).collect()
}

/// Restores a file into a collection that has these documents. Returns the counts, and the documents that are there then.
async fn restored(file: Verified, present: Present, there: &[Document]) -> (Put, Vec<Document>) {
    let model = Model::new(1, Arc::new(Unobserved));
    for document in there {
        model.put("app.c", &document["_id"].clone(), Some(document.clone()));
    }
    let deployment = Client::new(&model, "sweeper").deployment("run");
    let target = RestoreTarget::open(&deployment, &namespace("c"), &[], present, false).await.unwrap().unwrap();
    let mut done = Put::default();
    let (_signals, signals) = watch::channel(None);
    let part = RestorePart { file, to: namespace("c") };
    put(&deployment, target, present, &Stop::by(signals), part, &mut done).await.unwrap();
    let mut documents = model.documents("app.c");
    documents.sort_by_key(|document| document.get_i32("_id").unwrap());
    (done, documents)
}

#[tokio::test(start_paused = true)]
async fn of_several_states_of_a_document_the_last_is_restored_within_a_batch_and_across_batches() {
    let state = |id: i32, v: i32| doc! { "_id": id, "v": v };
    let batches: [&[Document]; 3] = [&[state(1, 1), state(2, 1)], &[state(1, 2)], &[state(3, 1), state(3, 2)]];
    let file = || archived(&batches.map(|batch| ("c", batch))).remove(0);
    let last = [state(1, 2), state(2, 1), state(3, 2)];
    let (done, documents) = restored(file(), Present::Keep, &[]).await;
    assert_eq!((documents.as_slice(), done.inserted, done.counted()), (&last[..], 3, 5));
    let (done, documents) = restored(file(), Present::Replace, &[state(1, 9), state(2, 9)]).await;
    assert_eq!((documents.as_slice(), done.inserted, done.counted()), (&last[..], 1, 5));
    // Documents that are there stay, unless they are to be replaced.
    let (done, documents) = restored(file(), Present::Keep, &[state(1, 9)]).await;
    assert_eq!((&documents[0], done.inserted, done.different), (&state(1, 9), 2, 3));
}

#[test]
fn children_come_before_their_parents() {
    let document: &[Document] = &[doc! { "_id": 1 }];
    let files = archived(&[("c", document), ("d", document), ("b", document)]);
    assert_eq!(files.iter().map(|file| file.namespace.collection.as_str()).collect::<Vec<_>>(), ["d", "b", "c"]);
}

#[test]
fn counts_that_do_not_add_up_are_an_error() {
    let report = NamespaceReport { document_count: 21, ..NamespaceReport::default() };
    let all = Put { inserted: 1, replaced: 2, same: 3, different: 4, conflicts: 5, refused: 6, ..Put::default() };
    assert_eq!(complete(&report, &all), Ok(()));
    for (inserted, counted) in [(0, "20"), (2, "22")] {
        let why = complete(&report, &Put { inserted, ..all.clone() }).unwrap_err();
        assert!(why.contains(&format!("add up to {counted}, and the archive has 21 documents")), "{why}");
    }
}

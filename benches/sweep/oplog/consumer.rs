//! A consumer of a change stream that is away for as long as a guard is for.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::ResumeToken;
use tokio::sync::watch;

use crate::server::Server;

/// Time in which a stream that is resumed shows an insert.
const PATIENCE: Duration = Duration::from_secs(30);

/// A change stream that was left, and an insert that it has not seen.
pub(crate) struct Consumer {
    collection: Collection<Document>,
    token: ResumeToken,
    inserted: i32,
}

/// The change streams of one run.
pub(crate) struct Consumed {
    pub opened: u32,
    /// Those that showed the insert when they were resumed.
    pub resumed: u32,
}

impl Consumer {
    /// Opens a stream, leaves it, and inserts a document for it to see.
    pub(crate) async fn open(server: &Server) -> Self {
        let collection = server.database().collection("consumed");
        collection.drop().await.expect("a drop");
        let consumer = Self { token: token(&collection).await, collection, inserted: 0 };
        consumer.insert().await;
        consumer
    }

    async fn insert(&self) {
        self.collection.insert_one(doc! { "_id": self.inserted }).await.expect("an insert");
    }

    /// Resumes the stream whenever it was `away` for so long, and when the sweep is over.
    pub(crate) async fn consume(mut self, away: Duration, mut over: watch::Receiver<bool>) -> Consumed {
        let mut consumed = Consumed { opened: 0, resumed: 0 };
        loop {
            drop(tokio::time::timeout(away, over.wait_for(|over| *over)).await);
            let is_last = *over.borrow();
            consumed.opened += 1;
            consumed.resumed += u32::from(self.resume().await);
            if is_last {
                return consumed;
            }
            self.token = token(&self.collection).await;
            self.inserted += 1;
            self.insert().await;
        }
    }

    /// Returns whether the stream goes on where it was left.
    async fn resume(&self) -> bool {
        let Ok(mut stream) = self.collection.watch().resume_after(self.token.clone()).await else { return false };
        let Ok(Ok(Some(event))) = tokio::time::timeout(PATIENCE, stream.try_next()).await else { return false };
        event.document_key == Some(doc! { "_id": self.inserted })
    }
}

async fn token(collection: &Collection<Document>) -> ResumeToken {
    collection.watch().await.expect("a change stream").resume_token().expect("its token")
}

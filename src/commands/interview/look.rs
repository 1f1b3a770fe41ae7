//! The look at a deployment whose collections the questions offer.

use std::time::Duration;

use bson::Uuid;
use tokio::time::timeout;
use tracing::warn;

use crate::base::failure::Failure;
use crate::commands::cli::{Common, InitArgs};
use crate::commands::session::connection::Uri;
use crate::core::draft::{DateField, date_fields};
use crate::core::facts::{Collection, CollectionKind};
use crate::core::policy::namespace::NamespacePattern;
use crate::shell::server::look::sample::{self, Listed};
use crate::shell::server::{Deployment, connect};

/// Time after which the questions begin without a look at the deployment.
const MAX_LOOK_TIME: Duration = Duration::from_secs(10);

/// A deployment and its collections.
pub(super) struct Look {
    pub deployment: Deployment,
    pub listed: Listed,
}

impl Look {
    pub(super) fn collection(&self, namespace: &str) -> Option<&Collection> {
        let mut fit = self.listed.fit.iter().map(|counted| &counted.collection);
        fit.find(|collection| collection.namespace.to_string() == namespace)
    }

    /// Checks that a namespace is not known to be one that no rule can sweep.
    ///
    /// Errors: it is; the text says why.
    pub(super) fn judge(&self, namespace: &str) -> Result<(), String> {
        let unfit = self.listed.unfit.iter().find(|collection| collection.namespace.to_string() == namespace);
        match unfit.map(|collection| &collection.kind) {
            None => Ok(()),
            Some(CollectionKind::View) => {
                Err(format!("`{namespace}` is a view, which has no documents of its own; expected the collection behind it"))
            }
            Some(_) => Err(format!("`{namespace}` is a capped collection, which drops its oldest documents by itself")),
        }
    }

    pub(super) async fn close(self) -> Option<String> {
        let replica_set = self.deployment.facts.set_name.clone();
        self.deployment.close().await;
        replica_set
    }
}

/// Looks at the deployment if there is a connection string, and judges the namespaces of the options.
///
/// Errors: the connection string is empty or cannot be read, or an option names a view or a capped collection.
pub(super) async fn look_for(options: &Common, args: &InitArgs) -> anyhow::Result<Option<Look>> {
    let uri = Uri::given(options).map(|uri| uri.require()).transpose()?;
    let look = look(uri, &args.namespace).await;
    let judged = args.namespace.iter().try_for_each(|namespace| look.as_ref().map_or(Ok(()), |look| look.judge(namespace)));
    judged.map_err(|why| Failure::usage(format!("--namespace: {why}; nothing was written")))?;
    Ok(look)
}

/// Connects if there is a connection string, and lists the collections that the patterns match; all without one. A failure is
/// only a warning: the questions can be answered without a deployment.
async fn look(uri: Option<String>, named: &[String]) -> Option<Look> {
    let uri = uri?;
    let everything = NamespacePattern { database: "*".into(), collection: "*".into() };
    let named: Vec<_> = named.iter().filter_map(|namespace| NamespacePattern::parse(namespace).ok()).collect();
    let patterns = if named.is_empty() { vec![everything] } else { named };
    let looked = timeout(MAX_LOOK_TIME, async {
        let deployment = connect::connect(&uri, None, &Uuid::new().to_string()).await.map_err(|failure| failure.message)?;
        let listed = sample::collections(&deployment, &patterns).await.map_err(|cause| cause.to_string())?;
        Ok::<_, String>(Look { deployment, listed })
    });
    match looked.await {
        Ok(Ok(look)) => return Some(look),
        Ok(Err(why)) => warn!("no collections to choose from: {why}"),
        Err(_) => warn!("no collections to choose from: no answer within {} s", MAX_LOOK_TIME.as_secs()),
    }
    None
}

/// Returns the fields with dates of the documents that are looked at; none if they cannot be read.
pub(super) async fn sampled(deployment: &Deployment, collection: &Collection) -> Vec<DateField> {
    match sample::documents(deployment, &collection.namespace).await {
        Ok(documents) => date_fields(&documents),
        Err(cause) => {
            warn!("no fields to choose from: reading `{}`: {cause}", collection.namespace);
            Vec::new()
        }
    }
}

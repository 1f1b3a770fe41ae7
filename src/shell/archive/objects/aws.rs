//! Region, endpoint and credentials of the buckets of S3. AWS's own library looks for them in the environment, then in a profile,
//! and at last asks the container or the machine.
//!
//! Source: AWS SDKs and Tools Reference Guide, "Standardized credential providers".

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Chain;
use aws_config::BehaviorVersion;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AwsCredential};
use tokio::sync::Mutex;

/// Time before the end of temporary credentials from which others are asked for.
const MIN_LEFT: Duration = Duration::from_secs(300);

/// Command that puts the credentials of a profile into the environment.
const EXPORT: &str = "`eval \"$(aws configure export-credentials --format env)\"`";

/// Returns a builder that knows region, endpoint and credentials. It may ask the machine for its region.
pub(super) async fn builder() -> AmazonS3Builder {
    let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(http).load().await;
    let mut builder = AmazonS3Builder::from_env();
    if let Some(region) = config.region() {
        builder = builder.with_region(region.as_ref());
    }
    if let Some(endpoint) = config.endpoint_url() {
        builder = builder.with_endpoint(endpoint);
    }
    match config.credentials_provider() {
        Some(provider) => builder.with_credentials(Arc::new(Provided { provider, last: Mutex::default() })),
        None => builder,
    }
}

/// Credentials that are asked for again only before they end: some are given by a service.
#[derive(Debug)]
struct Provided {
    provider: SharedCredentialsProvider,
    last: Mutex<Option<(Arc<AwsCredential>, Option<SystemTime>)>>,
}

#[async_trait::async_trait]
impl CredentialProvider for Provided {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.last.lock().await;
        match &*last {
            Some((credential, end)) if end.is_none_or(|end| SystemTime::now() + MIN_LEFT < end) => Ok(credential.clone()),
            _ => {
                let found = self.provider.provide_credentials().await.map_err(|cause| failed(&cause))?;
                Ok(last.insert((Arc::new(credential(&found)), found.expiry())).0.clone())
            }
        }
    }
}

fn credential(found: &Credentials) -> AwsCredential {
    AwsCredential {
        key_id: found.access_key_id().to_owned(),
        secret_key: found.secret_access_key().to_owned(),
        token: found.session_token().map(str::to_owned),
    }
}

/// Returns the error of a search for credentials, with all that is said of its causes. The machine is asked last.
fn failed(cause: &CredentialsError) -> object_store::Error {
    let mut causes: Vec<String> = Chain::new(cause).map(ToString::to_string).collect();
    causes.dedup();
    let causes = causes.join(": ");
    let none = "neither the environment nor a profile has credentials, and this machine gives none";
    let said = match cause {
        CredentialsError::CredentialsNotLoaded(_) => none.to_owned(),
        _ if causes.contains("IMDS") => format!("{none} ({causes})"),
        _ if causes.contains("feature(s) enabled: sso") => format!(
            "the profile signs in by IAM Identity Center, which sweeper cannot; {EXPORT} hands its credentials over in the environment"
        ),
        _ => causes,
    };
    object_store::Error::Generic { store: "S3", source: said.into() }
}

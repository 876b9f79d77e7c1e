//! Kinds that not every cluster has: HTTPRoute and ServiceMonitor. They are watched while they are there, and looked
//! for while they are not; whoever installs them need not restart us.

use std::time::Duration;

use kube::Client;
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    time::sleep,
};

use crate::{
    controller::{Scope, events, ours, wake_all},
    live::{Follower, Place},
    seen::{Seen, Tracked},
};

/// How often the API server is asked whether it knows them.
const LOOK: Duration = Duration::from_secs(5);
/// Where it did not answer: before the first answer nobody looks at any Agent.
const RETRY: Duration = Duration::from_secs(1);

/// For ever: whether the cluster has this kind. Nothing is said before the first answer.
pub async fn look<K: Tracked>(client: &Client, said: &watch::Sender<Option<bool>>) {
    loop {
        match is_there::<K>(client).await {
            Ok(there) => {
                said.send_if_modified(|before| before.replace(there) != Some(there));
                sleep(LOOK).await;
            }
            Err(error) => {
                tracing::warn!(%error, kind = %K::kind(&()), "cannot find out whether the cluster has this kind");
                sleep(RETRY).await;
            }
        }
    }
}

async fn is_there<K: Tracked>(client: &Client) -> Result<bool, kube::Error> {
    match client.list_api_group_resources(&K::api_version(&())).await {
        Ok(known) => Ok(known.resources.iter().any(|resource| resource.name == K::plural(&()))),
        // A group nobody serves; or nobody may ask, and then nobody could use it.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(false),
        Err(error) => Err(error),
    }
}

/// For ever: follows the kind's objects while there are any to follow.
pub async fn follow<K: Tracked + Send + 'static>(
    client: Client,
    scope: Scope,
    mut follower: Follower,
    mut there: watch::Receiver<Option<bool>>,
    wake: UnboundedSender<Place>,
) {
    loop {
        let now = *there.borrow_and_update();
        let following = async {
            match now {
                Some(true) => {
                    let api = scope.api::<Seen<K>>(&client);
                    events(api, ours(), |event| wake_all(&wake, follower.take(&event))).await;
                }
                Some(false) => wake_all(&wake, follower.absent()),
                None => {}
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = following => {}
            changed = there.changed() => if changed.is_err() { return },
        }
    }
}

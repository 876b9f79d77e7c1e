//! Trees of every kind, and shorthands.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::state::{Id, Slot};
use holdfast_sidecar::store::redis::{Link, RedisConfig, Standalone};
use holdfast_sidecar::workspace::local::Local;
use holdfast_sidecar::workspace::remote::Remote;
use holdfast_sidecar::workspace::{
    About, Condition, Content, Done, FileError, FilePath, Part, Put, Stamp, Tree, TreeLimits, Trees,
};

use crate::stores;

/// A case's way to trees that nobody else uses.
pub struct Bench {
    pub open: fn(TreeLimits) -> Place,
}

impl Bench {
    pub fn trees(&self) -> Opened {
        (self.open)(TreeLimits::default()).trees("test.agent")
    }
}

/// A Redis or a folder that several agents may share.
pub struct Place {
    limits: TreeLimits,
    kind: Kind,
    salt: String,
}

enum Kind {
    Folder(Arc<tempfile::TempDir>),
    Redis(Arc<dyn Link>),
}

/// The trees of one agent there.
pub struct Opened {
    trees: Arc<dyn Trees>,
    folder: Option<Arc<tempfile::TempDir>>,
}

impl std::ops::Deref for Opened {
    type Target = dyn Trees;
    fn deref(&self) -> &Self::Target {
        &*self.trees
    }
}

impl Opened {
    pub fn shared(&self) -> Arc<dyn Trees> {
        Arc::clone(&self.trees)
    }

    pub fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_ref().map(|folder| folder.path())
    }
}

impl Place {
    pub fn trees(&self, agent: &str) -> Opened {
        let agent = format!("{agent}{}", self.salt);
        match &self.kind {
            Kind::Folder(folder) => {
                let trees = Local::open(folder.path(), &agent, self.limits.clone()).expect("a folder");
                Opened { trees: Arc::new(trees), folder: Some(Arc::clone(folder)) }
            }
            Kind::Redis(link) => {
                let trees = Remote::over(Arc::clone(link), &agent, self.limits.clone()).expect("a prefix");
                Opened { trees: Arc::new(trees), folder: None }
            }
        }
    }
}

pub fn local(limits: TreeLimits) -> Place {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    Place { limits, kind: Kind::Folder(folder), salt: String::new() }
}

pub fn remote(limits: TreeLimits) -> Place {
    let link = Standalone::new(RedisConfig::new(stores::shared_url())).expect("a URL");
    Place { limits, kind: Kind::Redis(Arc::new(link)), salt: stores::random_prefix() }
}

pub fn cluster(limits: TreeLimits) -> Place {
    Place { limits, kind: Kind::Redis(stores::cluster_link()), salt: stores::random_prefix() }
}

pub fn path(text: &str) -> FilePath {
    FilePath::new(text).expect(text)
}

pub fn slot(user: Option<&str>, session: &str) -> Slot {
    Slot::new(user, session).expect("a slot")
}

pub fn user(id: &str) -> Tree {
    Tree::User(Id::new("user", id).expect("an id"))
}

pub fn stamp(session: &str, call: &str, fence: u64, op: &str) -> Stamp {
    Stamp {
        slot: slot(Some("u"), session),
        call: Id::new("call", call).expect("an id"),
        fence,
        op: op.to_owned(),
    }
}

pub fn put(content: impl AsRef<[u8]>) -> Put {
    let bytes = content.as_ref().to_vec().into();
    Put { bytes, condition: Condition::Any, stamp: None, answer: String::new() }
}

pub fn stamped(content: &str, stamp: Stamp) -> Put {
    Put { stamp: Some(stamp), answer: format!("wrote {content}"), ..put(content) }
}

pub async fn write(trees: &dyn Trees, tree: &Tree, at: &str, content: impl AsRef<[u8]>) -> About {
    match trees.put(tree, &path(at), &put(content)).await {
        Ok(Done::Written { about, .. }) => about,
        other => panic!("{at}: {other:?}"),
    }
}

pub async fn read(trees: &dyn Trees, tree: &Tree, at: &str) -> Option<String> {
    let found: Option<Content> = trees.read(tree, &path(at), Part::WHOLE).await.expect(at);
    found.map(|content| String::from_utf8(content.bytes.to_vec()).expect("text"))
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within 10 s");
}

pub fn label(error: &FileError) -> String {
    format!("{error:?}").split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
}

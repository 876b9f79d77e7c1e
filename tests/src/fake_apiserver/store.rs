//! Objects, their versions, and who is told of them. Everything is done under one lock that is never held over I/O.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Changes a watch can be taken up from; older ones are gone.
const REMEMBERED: usize = 200_000;

/// A kind of objects, as it stands in a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// `v1`, or a group and a version.
    pub api_version: String,
    pub plural: String,
}

impl Resource {
    pub fn new(api_version: &str, plural: &str) -> Self {
        Self { api_version: api_version.to_owned(), plural: plural.to_owned() }
    }
}

/// One version of an object, written out once for everybody who reads it.
pub struct Object {
    pub version: u64,
    pub value: Arc<Value>,
    pub whole: Bytes,
    /// As PartialObjectMetadata.
    pub metadata: Bytes,
}

impl Object {
    fn new(version: u64, mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = json!(version.to_string());
        let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": value["metadata"]});
        let (whole, metadata) = (value.to_string().into(), partial.to_string().into());
        Self { version, value: Arc::new(value), whole, metadata }
    }

    fn text(&self, of: &str) -> &str {
        self.value["metadata"][of].as_str().unwrap_or_default()
    }

    pub fn bytes(&self, metadata_only: bool) -> &Bytes {
        if metadata_only { &self.metadata } else { &self.whole }
    }
}

/// Which objects, and how much of each.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub namespace: Option<String>,
    /// Label and value. A label that changes is not followed.
    pub labels: Vec<(String, String)>,
    pub metadata_only: bool,
}

impl Selection {
    fn takes(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| object.text("namespace") == namespace)
            && self.labels.iter().all(|(name, value)| object.value["metadata"]["labels"][name] == **value)
    }

    fn line(&self, change: &Change) -> Bytes {
        let (kind, object) = (change.kind, change.object.bytes(self.metadata_only));
        let mut line = Vec::with_capacity(object.len() + 40);
        line.extend_from_slice(br#"{"type":""#);
        line.extend_from_slice(kind.as_bytes());
        line.extend_from_slice(br#"","object":"#);
        line.extend_from_slice(object);
        line.extend_from_slice(b"}\n");
        line.into()
    }
}

#[derive(Clone)]
struct Change {
    kind: &'static str,
    object: Arc<Object>,
}

#[derive(Default)]
struct Collection {
    objects: BTreeMap<(String, String), Arc<Object>>,
    changes: VecDeque<Change>,
    /// How many changes there ever were.
    changed: u64,
    watches: Vec<(Selection, UnboundedSender<Bytes>)>,
    listeners: Vec<UnboundedSender<Arc<Value>>>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    collections: HashMap<Resource, Collection>,
    calls: BTreeMap<String, u64>,
}

#[derive(Default)]
pub struct Store(Mutex<Inner>);

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("not found")]
    NotFound,
    #[error("conflict")]
    Conflict,
    #[error("gone")]
    Gone,
}

pub struct Applied {
    pub object: Arc<Object>,
    pub created: bool,
}

/// Some objects, the version they are of, and where the next page begins.
pub struct Page {
    pub objects: Vec<Arc<Object>>,
    pub version: u64,
    pub next: Option<(String, String)>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn called(&self, verb: &str, resource: &str) {
        *self.lock().calls.entry(format!("{verb} {resource}")).or_default() += 1;
    }

    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.lock().calls.clone()
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.lock().collections.get(resource)?.objects.get(&key).cloned()
    }

    pub fn count(&self, resource: &Resource, is_so: impl Fn(&Value) -> bool) -> usize {
        let inner = self.lock();
        let objects = inner.collections.get(resource).into_iter().flat_map(|found| found.objects.values());
        objects.filter(|object| is_so(&object.value)).count()
    }

    pub fn changes(&self, resource: &Resource) -> UnboundedReceiver<Arc<Value>> {
        let (sender, receiver) = unbounded_channel();
        self.lock().collections.entry(resource.clone()).or_default().listeners.push(sender);
        receiver
    }

    pub fn list(
        &self,
        resource: &Resource,
        selection: &Selection,
        from: Option<&(String, String)>,
        limit: usize,
    ) -> Page {
        use std::ops::Bound::{Excluded, Unbounded};
        let inner = self.lock();
        let mut page = Page { objects: Vec::new(), version: inner.version, next: None };
        let Some(found) = inner.collections.get(resource) else { return page };
        let after = from.map_or(Unbounded, |from| Excluded(from.clone()));
        let rest = found.objects.range((after, Unbounded)).map(|(_, object)| object);
        for object in rest.filter(|object| selection.takes(object)) {
            if page.objects.len() == limit {
                page.next = page.objects.last().map(|last: &Arc<Object>| {
                    (last.text("namespace").to_owned(), last.text("name").to_owned())
                });
                break;
            }
            page.objects.push(Arc::clone(object));
        }
        page
    }

    /// Everything after this version, and then whatever comes.
    pub fn watch(
        &self,
        resource: &Resource,
        selection: Selection,
        after: u64,
    ) -> Result<UnboundedReceiver<Bytes>, Refusal> {
        let mut inner = self.lock();
        let collection = inner.collections.entry(resource.clone()).or_default();
        let full = collection.changes.len() == REMEMBERED;
        if full && collection.changes.front().is_some_and(|oldest| oldest.object.version > after + 1) {
            return Err(Refusal::Gone);
        }
        let (sender, receiver) = unbounded_channel();
        let missed = collection.changes.iter().filter(|change| change.object.version > after);
        for change in missed.filter(|change| selection.takes(&change.object)) {
            let _ = sender.send(selection.line(change));
        }
        collection.watches.push((selection, sender));
        Ok(receiver)
    }

    pub fn version(&self) -> u64 {
        self.lock().version
    }

    pub fn changed(&self, resource: &Resource) -> (u64, u64) {
        let inner = self.lock();
        (inner.version, inner.collections.get(resource).map_or(0, |found| found.changed))
    }

    /// Server-side apply, without anybody's ownership: what is said is merged into what is there. A subresource says
    /// which part of it may change.
    pub fn apply(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        said: &Value,
        manager: &str,
    ) -> Result<Applied, Refusal> {
        let mut inner = self.lock();
        let key = key(said);
        let before = inner.collections.get(resource).and_then(|found| found.objects.get(&key)).cloned();
        if let Some(version) = said["metadata"]["resourceVersion"].as_str()
            && before.as_ref().is_some_and(|before| before.version.to_string() != version)
        {
            return Err(Refusal::Conflict);
        }
        let Some(before) = before else {
            if subresource.is_some() || said["metadata"]["uid"].is_string() {
                return Err(Refusal::NotFound);
            }
            let object = inner.create(resource, said.clone(), manager);
            return Ok(Applied { object, created: true });
        };
        let mut after = (*before.value).clone();
        match subresource {
            Some(part) => merge(&mut after[part], &said[part]),
            None => merge(&mut after, said),
        }
        after["metadata"]["resourceVersion"] = before.value["metadata"]["resourceVersion"].clone();
        if after == *before.value {
            return Ok(Applied { object: before, created: false });
        }
        Ok(Applied { object: inner.replace(resource, &before, after, manager), created: false })
    }

    pub fn create(&self, resource: &Resource, object: &Value, manager: &str) -> Result<Arc<Object>, Refusal> {
        let mut inner = self.lock();
        let taken =
            inner.collections.get(resource).is_some_and(|found| found.objects.contains_key(&key(object)));
        if taken { Err(Refusal::Conflict) } else { Ok(inner.create(resource, object.clone(), manager)) }
    }

    pub fn update(&self, resource: &Resource, object: &Value, manager: &str) -> Result<Arc<Object>, Refusal> {
        let mut inner = self.lock();
        let before = inner.collections.get(resource).and_then(|found| found.objects.get(&key(object)));
        let before = before.cloned().ok_or(Refusal::NotFound)?;
        match object["metadata"]["resourceVersion"].as_str() {
            Some(version) if version != before.version.to_string() => Err(Refusal::Conflict),
            _ => Ok(inner.replace(resource, &before, object.clone(), manager)),
        }
    }

    pub fn delete(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), Refusal> {
        let mut inner = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        let collection = inner.collections.get_mut(resource).ok_or(Refusal::NotFound)?;
        let gone = collection.objects.remove(&key).ok_or(Refusal::NotFound)?;
        let last = Object::new(inner.next(), (*gone.value).clone());
        inner.tell(resource, "DELETED", Arc::new(last));
        Ok(())
    }
}

impl Inner {
    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn create(&mut self, resource: &Resource, mut object: Value, manager: &str) -> Arc<Object> {
        let version = self.next();
        let fields = fields(&object);
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{version:012x}"));
        metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        metadata["generation"] = json!(1);
        metadata["managedFields"] = json!([managed(manager, "Apply", &resource.api_version, &fields)]);
        self.store(resource, "ADDED", Object::new(version, object))
    }

    fn replace(
        &mut self,
        resource: &Resource,
        before: &Object,
        mut after: Value,
        manager: &str,
    ) -> Arc<Object> {
        let version = self.next();
        if after["spec"] != before.value["spec"] {
            let generation = before.value["metadata"]["generation"].as_i64().unwrap_or_default();
            after["metadata"]["generation"] = json!(generation + 1);
        }
        if after["status"] != before.value["status"] {
            let fields = fields(&json!({"status": after["status"]}));
            let mut entry = managed(manager, "Apply", &resource.api_version, &fields);
            entry["subresource"] = json!("status");
            if let Some(managers) = after["metadata"]["managedFields"].as_array_mut() {
                managers.retain(|entry| entry["subresource"] != "status");
                managers.push(entry);
            }
        }
        self.store(resource, "MODIFIED", Object::new(version, after))
    }

    fn store(&mut self, resource: &Resource, kind: &'static str, object: Object) -> Arc<Object> {
        let object = Arc::new(object);
        let collection = self.collections.entry(resource.clone()).or_default();
        collection.objects.insert(key(&object.value), Arc::clone(&object));
        self.tell(resource, kind, Arc::clone(&object));
        if resource.plural == "deployments" {
            self.roll_out(resource, &object);
        }
        object
    }

    fn tell(&mut self, resource: &Resource, kind: &'static str, object: Arc<Object>) {
        let Some(collection) = self.collections.get_mut(resource) else { return };
        let change = Change { kind, object };
        collection.watches.retain(|(selection, sender)| {
            if selection.takes(&change.object) {
                sender.send(selection.line(&change)).is_ok()
            } else {
                !sender.is_closed()
            }
        });
        collection.listeners.retain(|sender| sender.send(Arc::clone(&change.object.value)).is_ok());
        if collection.changes.len() == REMEMBERED {
            collection.changes.pop_front();
        }
        collection.changes.push_back(change);
        collection.changed += 1;
    }

    /// The controller of Deployments, whose pods are ready at once.
    fn roll_out(&mut self, resource: &Resource, deployment: &Arc<Object>) {
        let generation = &deployment.value["metadata"]["generation"];
        if deployment.value["status"]["observedGeneration"] == *generation {
            return;
        }
        let replicas = deployment.value["spec"]["replicas"].as_i64().unwrap_or(1);
        let mut after = (*deployment.value).clone();
        after["status"] = json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability.",
                 "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "ReplicaSet has successfully progressed.",
                 "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"},
            ],
        });
        self.replace(resource, deployment, after, "kube-controller-manager");
    }
}

fn key(object: &Value) -> (String, String) {
    let text = |of: &str| object["metadata"][of].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Who set what: as large as a real server's, so that whoever keeps it pays for it.
fn managed(manager: &str, operation: &str, api_version: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": api_version, "time": "2026-01-01T00:00:00Z",
           "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn fields(value: &Value) -> Value {
    let mut set = Map::new();
    match value {
        Value::Object(object) => {
            let told = object.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
            set.extend(told.map(|(name, value)| (format!("f:{name}"), fields(value))));
        }
        Value::Array(items) => {
            for item in items.iter().filter(|item| item["name"].is_string() || item["type"].is_string()) {
                let by = if item["name"].is_string() { "name" } else { "type" };
                set.insert(format!("k:{}", json!({by: item[by]})), fields(item));
            }
        }
        _ => {}
    }
    Value::Object(set)
}

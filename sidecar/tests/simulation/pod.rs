//! A replica as the world sees it: a process that runs, stands still or is dead, and the one that comes after it.
//!
//! A process is known by what it does to others. One that is stopped or dead does not reach the store, the model, a
//! tool or a client; what it does in its own memory nobody can see.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_sidecar::session::{Sessions, Settings};
use holdfast_sidecar::store::MemoryStore;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::model::FakeModel;
use super::store::FaultyStore;
use super::tools::FakeTools;
use super::world::World;

const RUNNING: u8 = 0;
const STOPPED: u8 = 1;
const DEAD: u8 = 2;

/// What stands between a process and everybody else.
pub struct Gate {
    pub name: String,
    state: AtomicU8,
    changed: Notify,
    partitioned: AtomicBool,
}

impl Gate {
    fn new(name: String) -> Self {
        Self {
            name,
            state: AtomicU8::new(RUNNING),
            changed: Notify::new(),
            partitioned: AtomicBool::new(false),
        }
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    pub fn is_dead(&self) -> bool {
        self.state() == DEAD
    }

    /// Goes on while the process runs, waits while it is stopped, and never comes back from the dead.
    pub async fn pass(&self) {
        loop {
            let changed = self.changed.notified();
            match self.state() {
                RUNNING => return,
                DEAD => return pending().await,
                _ => changed.await,
            }
        }
    }

    pub async fn death(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_dead() {
                return;
            }
            changed.await;
        }
    }

    fn enter(&self, state: u8) {
        if !self.is_dead() {
            self.state.store(state, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
    }

    pub fn kill(&self) {
        self.enter(DEAD);
    }

    pub fn stop(&self) {
        self.enter(STOPPED);
    }

    pub fn go_on(&self) {
        self.enter(RUNNING);
    }

    pub fn partition(&self, on: bool) {
        self.partitioned.store(on, Ordering::Relaxed);
    }

    pub fn partitioned(&self) -> bool {
        self.partitioned.load(Ordering::Relaxed)
    }

    /// A client's request to this process. `None`: the connection broke.
    pub async fn serve<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let answer = async {
            self.pass().await;
            let answer = answer.await;
            self.pass().await;
            answer
        };
        tokio::select! {
            biased;
            () = self.death() => None,
            answer = answer => Some(answer),
        }
    }
}

#[derive(Clone)]
pub struct Process {
    pub gate: Arc<Gate>,
    pub sessions: Sessions,
}

/// One replica and its successors.
pub struct Pod {
    index: usize,
    world: Arc<World>,
    store: Arc<MemoryStore>,
    process: Mutex<Option<Process>>,
}

impl Pod {
    pub fn new(index: usize, world: &Arc<World>, store: &Arc<MemoryStore>) -> Arc<Self> {
        let pod =
            Self { index, world: Arc::clone(world), store: Arc::clone(store), process: Mutex::new(None) };
        Arc::new(pod)
    }

    /// The process that runs now, if one does.
    pub fn process(&self) -> Option<Process> {
        self.process.lock().expect("nobody panics here").clone().filter(|process| !process.gate.is_dead())
    }

    /// Starts a process, and another whenever one has died.
    pub async fn keep_alive(self: Arc<Self>) {
        for generation in 0.. {
            let process = self.start(generation);
            let attending = process.sessions.clone();
            tokio::spawn(async move { attending.attend().await });
            let gate = Arc::clone(&process.gate);
            *self.process.lock().expect("nobody panics here") = Some(process);
            gate.death().await;
            *self.process.lock().expect("nobody panics here") = None;
            let pause = self.world.draw(|rng| rng.pick(&[1, 50, 800]));
            sleep(Duration::from_millis(pause)).await;
        }
    }

    fn start(&self, generation: u32) -> Process {
        let name = format!("r{}.{generation}", self.index);
        self.world.trace(|| format!("{name} starts"));
        let gate = Arc::new(Gate::new(name.clone()));
        let settings = Settings { replica: name, ..self.world.plan.settings.clone() };
        let sessions = Sessions::new(
            FaultyStore::new(&self.world, &gate, &self.store),
            Arc::new(FakeModel::new(&self.world, &gate)),
            Arc::new(FakeTools::new(&self.world, &gate)),
            settings,
        );
        Process { gate, sessions }
    }
}

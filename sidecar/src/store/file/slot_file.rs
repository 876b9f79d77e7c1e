//! One slot and its file: a snapshot in the first line, the changes of one operation in each further line.
//!
//! What is answered is in the file; what is in the file and was not answered is an operation whose caller will ask
//! again. A last line without its end is the remains of a write that was cut off, hence of an unanswered operation.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk;
use super::folder::{self, Folder, Replace, refused};
use crate::state::Slot;
use crate::store::contract::Millis;
use crate::store::error::StoreError;
use crate::store::slot::{Change, Head, Progress, SlotData};

const FORMAT: u32 = 1;
/// A log shorter than this is not worth a new snapshot.
const MIN_LOG: u64 = 64 << 10;
/// How much of a running call's lease and running time may be known to this process alone.
const UNWRITTEN: Millis = 10_000;

#[derive(Serialize, Deserialize)]
struct Snapshot<S, D> {
    format: u32,
    slot: S,
    data: D,
}

/// One operation. What had run out by then is forgotten before the changes are made, just as it was the first time.
#[derive(Serialize, Deserialize)]
struct Line<C> {
    at: Millis,
    changes: C,
}

pub(super) struct SlotFile {
    slot: Slot,
    path: PathBuf,
    data: SlotData,
    written: Option<Written>,
    /// The file was put in place and its folder could not be synced: nothing may be answered before that is made good.
    unsettled: bool,
}

/// How far the file is known to be good.
#[derive(Clone, Copy)]
struct Written {
    len: u64,
    snapshot: u64,
    /// Compact once the log is longer than this.
    patience: u64,
    at: Millis,
}

/// What an operation's changes need before it may be answered.
#[derive(PartialEq)]
enum Need {
    /// To be known here: a restart voids it anyway.
    Nothing,
    /// To be written; the next sync takes it along. A killed process has not lost it.
    Write,
    /// To be on disk.
    Sync,
    /// To be all there is: what it replaces must not stay in the file.
    Snapshot,
}

impl SlotFile {
    /// Reads a slot. A missing file is a slot nobody has used; anything else that is not a whole slot is an error.
    pub(super) fn load(folder: &Folder, slot: &Slot) -> Result<Self, StoreError> {
        let path = folder.slot_file(slot);
        let absent = Self {
            slot: slot.clone(),
            path: path.clone(),
            data: SlotData::default(),
            written: None,
            unsettled: false,
        };
        let Some((file, bytes)) = open(&path)? else {
            folder.check()?;
            return Ok(absent);
        };
        let (found, data, written) = replay(&bytes).map_err(|why| corrupt(&path, &why))?;
        if found != *slot {
            return Err(corrupt(&path, &format!("it holds session {found} where {slot} belongs")));
        }
        // A process that was killed may have left lines that are not on disk yet. They are answered from now on.
        disk::sync(&path, &file).map_err(|error| refused(&path, &error))?;
        let mut loaded = Self { data, written: Some(written), unsettled: true, ..absent };
        loaded.settle()?;
        loaded.void_lease();
        Ok(loaded)
    }

    /// A slot is read when its process starts to deal with it, and kept while its lease is held: so a lease that is read
    /// is one of a dead process. Its token stays, and the next grant counts an attempt.
    fn void_lease(&mut self) {
        if self.data.head.token.is_some() {
            self.data.head.until = 0;
        }
    }

    pub(super) fn data(&self) -> &SlotData {
        &self.data
    }

    /// The data as it is at `now`.
    pub(super) fn data_at(&mut self, now: Millis) -> &SlotData {
        self.data.forget(now);
        &self.data
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn bytes(&self) -> usize {
        self.written.map_or(0, |written| usize::try_from(written.len).unwrap_or(usize::MAX))
    }

    pub(super) fn is_settled(&self) -> bool {
        !self.unsettled
    }

    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        if self.unsettled {
            // Its folder, and the folder of that, which may be as new.
            for folder in self.path.ancestors().skip(1).take(2) {
                disk::sync_folder(folder).map_err(|error| refused(folder, &error))?;
            }
            self.unsettled = false;
        }
        Ok(())
    }

    /// Makes changes that need no disk, or gives them back.
    pub(super) fn change_in_memory(&mut self, now: Millis, changes: Vec<Change>) -> Result<(), Vec<Change>> {
        if !changes.is_empty() && self.need(now, &changes) != Need::Nothing {
            return Err(changes);
        }
        self.data.apply_all(changes);
        Ok(())
    }

    /// Makes changes last, then makes them. Where that fails, the data and the good part of the file are as before,
    /// except after `Unanswered`: then the file may tell otherwise to the next process.
    pub(super) fn change(&mut self, now: Millis, changes: Vec<Change>) -> Result<(), StoreError> {
        self.settle()?;
        let need = self.need(now, &changes);
        let Some(written) = self.written.filter(|_| need != Need::Snapshot) else {
            let mut data = self.data.clone();
            data.apply_all(changes);
            return self.replace(now, data);
        };
        let mut line = to_json(&self.path, &Line { at: now, changes: &changes })?;
        let changes = match on_one_line(&mut line) {
            Spelling::Same => changes,
            Spelling::Changed => {
                parse::<Line<Vec<Change>>>(&line).map_err(|why| corrupt(&self.path, &why))?.changes
            }
        };
        line.push(b'\n');
        append(&self.path, written.len, &line, need == Need::Sync)?;
        self.written = Some(Written { len: written.len + line.len() as u64, at: now, ..written });
        self.data.apply_all(changes);
        Ok(())
    }

    pub(super) fn has_outgrown_its_snapshot(&self) -> bool {
        self.written.is_some_and(|written| written.len - written.snapshot > written.patience)
    }

    /// The same state, in fewer bytes. When it fails, the longer file is as good; the next try waits.
    pub(super) fn compact(&mut self, now: Millis) -> Result<(), StoreError> {
        if let Some(written) = &mut self.written {
            written.patience *= 2;
        }
        self.data.forget(now);
        self.replace(now, self.data.clone())
    }

    /// Removes the file of a slot nothing is left of.
    pub(super) fn remove(&self) -> io::Result<()> {
        if self.written.is_some() {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    fn replace(&mut self, now: Millis, data: SlotData) -> Result<(), StoreError> {
        let snapshot = Snapshot { format: FORMAT, slot: &self.slot, data: &data };
        let mut line = to_json(&self.path, &snapshot)?;
        let data = match on_one_line(&mut line) {
            Spelling::Same => data,
            Spelling::Changed => {
                parse::<Snapshot<Slot, SlotData>>(&line).map_err(|why| corrupt(&self.path, &why))?.data
            }
        };
        line.push(b'\n');
        let settled = match folder::replace(&self.path, &line) {
            Ok(()) => Ok(()),
            Err(Replace::Refused(error)) => return Err(refused(&self.path, &error)),
            Err(Replace::Unsettled(error)) => {
                Err(StoreError::Unanswered(format!("{}: {error}", self.path.display())))
            }
        };
        self.unsettled = settled.is_err();
        let len = line.len() as u64;
        self.written = Some(Written { len, snapshot: len, patience: MIN_LOG.max(len), at: now });
        self.data = data;
        settled
    }

    /// Why less than a sync is ever enough: a lease is void after a restart, so its end need not be kept; the time a call
    /// has run and the session's own end may be short by [`UNWRITTEN`]; events between journal entries only retell what
    /// the run is doing, and a run that dies is told again under a later fence. All of it only while a token is held:
    /// a slot with a token is never dropped from memory.
    fn need(&self, now: Millis, changes: &[Change]) -> Need {
        let Some(written) = self.written else { return Need::Snapshot };
        if changes.iter().any(|change| matches!(change, Change::Replace(_) | Change::Bury(_))) {
            return Need::Snapshot;
        }
        let of_a_renewal = |change: &Change| match change {
            Change::Head(head) => self.only_times_differ(head),
            Change::Progress(id, progress) => self
                .data
                .calls
                .get(id)
                .is_some_and(|call| *progress == Progress { ran: progress.ran, ..call.progress.clone() }),
            Change::Log { .. } => true,
            _ => false,
        };
        if self.data.head.token.is_none() || !changes.iter().all(of_a_renewal) {
            return Need::Sync;
        }
        let tells = changes.iter().any(|change| matches!(change, Change::Log { .. }));
        if tells || now.saturating_sub(written.at) >= UNWRITTEN { Need::Write } else { Need::Nothing }
    }

    fn only_times_differ(&self, head: &Head) -> bool {
        let Head { updated, until, expires, .. } = *head;
        *head == Head { updated, until, expires, ..self.data.head.clone() }
    }
}

fn open(path: &Path) -> Result<Option<(File, Vec<u8>)>, StoreError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes).map(|_| file));
    match read {
        Ok(file) => Ok(Some((file, bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(path, &error)),
    }
}

/// Writes a line at the end of the good part, or nothing.
fn append(path: &Path, len: u64, line: &[u8], sync: bool) -> Result<(), StoreError> {
    let file = disk::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => corrupt(path, "the file was removed while this process used it"),
        _ => refused(path, &error),
    })?;
    let found = file.metadata().map_err(|error| refused(path, &error))?.len();
    if found < len {
        return Err(corrupt(path, &format!("it has {found} bytes, and {len} were written")));
    }
    if found > len {
        disk::cut(path, &file, len).map_err(|error| refused(path, &error))?;
    }
    let written = disk::write(path, &file, line, len)
        .and_then(|()| if sync { disk::sync(path, &file) } else { Ok(()) });
    written.map_err(|error| match disk::cut(path, &file, len).and_then(|()| disk::sync(path, &file)) {
        Ok(()) => refused(path, &error),
        Err(_) => StoreError::Unanswered(format!("{}: {error}", path.display())),
    })
}

type Replayed = (Slot, SlotData, Written);

fn replay(bytes: &[u8]) -> Result<Replayed, String> {
    let mut lines = whole_lines(bytes);
    let first = lines.next().ok_or("it has no snapshot in its first line")?;
    check_format(first)?;
    let Snapshot { slot, mut data, .. } = parse::<Snapshot<Slot, SlotData>>(first)?;
    let (mut len, mut last) = (first.len() as u64 + 1, data.head.updated);
    let snapshot = len;
    for (number, line) in lines.enumerate() {
        let Line { at, changes } =
            parse::<Line<Vec<Change>>>(line).map_err(|why| format!("line {}: {why}", number + 2))?;
        data.forget(at);
        data.apply_all(changes);
        (len, last) = (len + line.len() as u64 + 1, at);
    }
    Ok((slot, data, Written { len, snapshot, patience: MIN_LOG.max(snapshot), at: last }))
}

/// What a list needs to know of a slot, without its messages.
pub(super) fn peek(path: &Path) -> Result<Option<(Slot, Head)>, StoreError> {
    #[derive(Deserialize)]
    struct OnlyHead {
        head: Head,
    }
    #[derive(Deserialize)]
    struct MaybeHead {
        #[serde(rename = "Head")]
        head: Option<Head>,
    }
    let read = |bytes: &[u8]| -> Result<(Slot, Head), String> {
        let mut lines = whole_lines(bytes);
        let first = lines.next().ok_or("it has no snapshot in its first line")?;
        check_format(first)?;
        let Snapshot { slot, data: OnlyHead { mut head }, .. } = parse::<Snapshot<Slot, OnlyHead>>(first)?;
        for line in lines {
            let changes = parse::<Line<Vec<MaybeHead>>>(line)?.changes;
            head = changes.into_iter().filter_map(|change| change.head).next_back().unwrap_or(head);
        }
        Ok((slot, head))
    };
    let Some((_, bytes)) = open(path)? else { return Ok(None) };
    read(&bytes).map(Some).map_err(|why| corrupt(path, &why))
}

fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

fn check_format(snapshot: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    match parse::<Format>(snapshot)?.format {
        FORMAT => Ok(()),
        found => Err(format!("it has format {found}, and this version knows {FORMAT}; upgrade it")),
    }
}

#[derive(PartialEq)]
enum Spelling {
    Same,
    Changed,
}

/// JSON may have line breaks between its parts, a line may not. A slot must be in memory as it will be read, so
/// whoever wrote such a line goes on with what it says now.
fn on_one_line(json: &mut [u8]) -> Spelling {
    let mut spelling = Spelling::Same;
    for byte in json.iter_mut().filter(|byte| **byte == b'\n') {
        *byte = b' ';
        spelling = Spelling::Changed;
    }
    spelling
}

fn to_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| {
        StoreError::Failed(format!("{}: what it was given is not JSON: {error}", path.display()))
    })
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

pub(super) fn corrupt(path: &Path, why: &str) -> StoreError {
    StoreError::Corrupt(format!("{}: {why}", path.display()))
}
